"""What may be typed after ``outlive demo``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Says in one line what is wrong and where to look."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(2)


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """``seed`` (or None), ``fast``, ``keep``."""
    parser = OneLineParser(
        prog="outlive demo",
        description="A support agent is killed again and again, in the middle of whatever it does, "
        "and started again each time; it refunds once. Beside it the same agent without Outlive. "
        "Nothing leaves this machine. Ends with 0 only if all went as promised.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, help="when to kill; printed, so that it can be repeated"
    )
    parser.add_argument("--fast", action="store_true", help="no pauses for an audience")
    parser.add_argument("--keep", action="store_true", help="keep the journal and the ledgers")
    return parser.parse_args(argv)
