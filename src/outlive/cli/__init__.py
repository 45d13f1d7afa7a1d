"""The command line: one module per group of commands, none with logic of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Ctrl-C during import is reported in one line."""
    try:
        from outlive.cli import entry
    except KeyboardInterrupt:
        sys.stderr.write("outlive: stopped before anything was done\n")
        return _INTERRUPTED
    return entry.main(argv)


__all__ = ["main"]
