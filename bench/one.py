"""One figure again: the command that stands beside it on the page.

python -m bench.one CONTESTANT WORK SIZE      prints the turn's JSON

It does what the runner does in one turn: a server and an empty database for those who run on
PostgreSQL, for ``resume-…`` first a process that dies in it, then the contestant in its own
environment.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.cases import Case
from bench.databases import Databases
from bench.environments import PLACE
from bench.plan import CONTESTANTS, LIMIT_SECONDS
from bench.turns import Answer, Place, sample


def turn(name: str, work: str, size: int) -> Answer:
    """What the contestant tells."""
    prepared = work.replace("resume-", "prepare-") if work.startswith("resume-") else ""
    case = Case(work=work, size=size, contestants=(name,), prepared=prepared)
    PLACE.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="one-", dir=PLACE))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        on_server = CONTESTANTS[name].store == "postgres"
        databases = stack.enter_context(Databases()) if on_server else None
        limit = LIMIT_SECONDS["full"]
        return sample(name, case, Place(folder=folder, limit_seconds=limit, databases=databases))


def main(words: list[str] | None = None) -> int:
    """One turn."""
    parser = argparse.ArgumentParser(prog="python -m bench.one")
    parser.add_argument("contestant", choices=list(CONTESTANTS))
    parser.add_argument("work")
    parser.add_argument("size", type=int)
    asked = parser.parse_args(words)
    told = turn(asked.contestant, asked.work, asked.size)
    print(json.dumps(told, indent=1))
    return 1 if "error" in told else 0


if __name__ == "__main__":
    sys.exit(main())
