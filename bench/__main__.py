"""Everything that ``make bench`` and ``make bench-full`` measure, or one chapter of it.

python -m bench quick|full [--only sqlite,postgres,values,where,instructions,scale,sleepers]

The quick form ends within a quarter of an hour on two cores, once the peers are installed. Every
line begins with how far it is and how long the rest will take. At the end the page is written,
each chapter by its newest results.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Literal

from bench import environments, page, run, values_run
from bench.environments import ROOT
from bench.instructions import MISSING
from bench.plan import QUICK_MINUTES_MAX, Form
from bench.progress import Progress, known_seconds

Asked = Literal["quick", "full"]
QUICK = ("sqlite", "postgres", "values", "where")
FULL = (*QUICK, "instructions", "scale", "sleepers")
#: Those that peers take part in.
WITH_PEERS = {"sqlite", "postgres", "values"}
#: What those take that are not made of turns.
SECONDS: dict[tuple[str, Asked], float] = {
    ("values", "quick"): 70,
    ("values", "full"): 90,
    ("where", "quick"): 25,
    ("where", "full"): 25,
    ("instructions", "full"): 600,
    ("scale", "full"): 900,
    ("sleepers", "full"): 900,
}
COMMANDS = {
    "where": ["bench.where", "bench/results/where.json"],
    "instructions": ["bench.instructions", "bench/results/instructions.json"],
    "scale": ["bench.scale_postgres", "bench/results/scale-postgres.json"],
    "sleepers": [
        "bench.sleepers_postgres", "1000000",
        "bench/results/sleepers-postgres.json", "docs/explanation/scale-sleepers.svg",
    ],
}  # fmt: skip


def chapters(form: Asked, only: str) -> list[str]:
    """What was asked for, in the order of the page.

    Raises:
        SystemExit: there is no such chapter in this form.
    """
    known = FULL if form == "full" else QUICK
    wanted = only.split(",") if only else list(known)
    if unknown := sorted({*wanted} - {*known}):
        raise SystemExit(f"no chapter {', '.join(unknown)} in {form}: there are {', '.join(known)}")
    return [each for each in known if each in wanted]


def turns(form: Form, wanted: list[str], progress: Progress) -> None:
    """The chapters that are made of turns."""
    if only := ",".join(each for each in wanted if each in ("sqlite", "postgres")):
        run.main([form, "--only", only], progress)


def other(name: str, form: Form) -> Callable[[], object]:
    """Any of the others."""
    if name == "values":
        return lambda: values_run.main([form])
    command = [sys.executable, "-m", *COMMANDS[name]]

    def do() -> None:
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            raise SystemExit(f"the chapter {name} could not be measured")

    return do


def measure(form: Asked, wanted: list[str], progress: Progress) -> None:
    """One chapter after the other."""
    others = [name for name in wanted if name not in ("sqlite", "postgres")]
    for name in others:
        progress.add([(name,)], SECONDS[name, form])
    turns(form, wanted, progress)
    for name in others:
        print(f"{progress.line()}  {name}", flush=True)
        began = time.monotonic()
        other(name, form)()
        progress.done((name,), time.monotonic() - began)


def main(words: list[str] | None = None) -> int:
    """Install what is missing, measure, write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("form", choices=["quick", "full"])
    parser.add_argument("--only", default="", help=f"chapters, by comma: {', '.join(FULL)}")
    asked = parser.parse_args(words)
    wanted = chapters(asked.form, asked.only)
    if "instructions" in wanted and shutil.which("valgrind") is None:
        print(MISSING, file=sys.stderr)
        return 1
    if WITH_PEERS & {*wanted} and environments.main([]):
        return 1
    limit = QUICK_MINUTES_MAX if asked.form == "quick" else None
    began = time.monotonic()
    progress = Progress(limit, known_seconds(run.RESULTS))
    measure(asked.form, wanted, progress)
    page.main([])
    print(
        f"done after {(time.monotonic() - began) / 60:.1f} minutes: {page.PAGE.relative_to(ROOT)}"
    )
    return 0


if __name__ == "__main__":
    # Asked to stop: as by Ctrl-C, so that whatever was started ends, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
