"""The entry point of the command line: parse, run, and report an error in one line.

Exit codes: 0 done, 1 the run failed or can't go on by itself, 2 usage, 3 store or data error, 4 the
store has less than it acknowledged.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from outlive.cli.output import print_note
from outlive.cli.parser import build_parser, demo
from outlive.errors import OutliveError, UsageError

INTERRUPTED = 130
BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    _never_fail_to_print()
    if given[:1] == ["demo"]:
        return demo(given[1:])
    parser = build_parser()
    if not given:
        parser.print_help()
        return UsageError.exit_code
    asked = parser.parse(given)
    try:
        code = int(asked.do(asked))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader is gone; nothing may try to print again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        print_note(
            "outlive: stopped; every run is safe, and what was acknowledged is kept; "
            "type the same command to go on"
        )
        return INTERRUPTED
    except OutliveError as error:
        return _failed(str(error), error.exit_code, debug=asked.debug)
    except Exception as error:
        what = f"unexpected {type(error).__name__}: {error}; --debug shows where"
        return _failed(what, 1, debug=asked.debug)


def _failed(what: str, code: int, *, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print_note(f"outlive: {_one_line(what)}")
    return code


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _never_fail_to_print() -> None:
    """Escape characters that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
