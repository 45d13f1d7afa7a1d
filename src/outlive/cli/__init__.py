"""What people type: one module per group of commands, none with logic of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. A Ctrl-C while it is still imported is told in one line."""
    try:
        from outlive.cli import entry
    except KeyboardInterrupt:
        sys.stderr.write("outlive: stopped before anything was done\n")
        return _INTERRUPTED
    return entry.main(argv)


__all__ = ["main"]
