"""Instructions of the processor per effect and per one-step run, counted by callgrind.

python -m bench.instructions [FILE]      prints JSON, and writes it

They do not depend on what else the machine does. Each figure is the difference of two sizes, so
that what a process does once (the interpreter's start, imports, opening the store) is not in it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.chapter import table
from bench.environments import PLACE, ROOT
from bench.plan import CONTESTANTS
from bench.turns import command_of, settings

RESULTS = ROOT / "bench" / "results" / "instructions.json"
#: work: two sizes, and how many operations one of a size has.
SIZES = {"many": (50, 150, 20), "starts": (200, 600, 1)}
NAMES = ("floor-l1", "floor-l2", "step", "effect")
LIMIT_SECONDS = 600
COLLECTED = re.compile(r"Collected : (\d+)")
MISSING = (
    "valgrind is missing, which counts instructions. Install it (apt-get install valgrind; "
    "as root, sh scripts/install_tools.sh does that) or leave this chapter out with ONLY."
)
WORDS = (
    "Counted by callgrind (`python -m bench.instructions`), all threads and libraries together, "
    "from the difference of two sizes. Unlike times they do not depend on what else the machine "
    "does. An effect is one of 20 of a run, with many runs at once; a run of one step has its "
    "start and end in it."
)


class NotCounted(Exception):
    """There is no figure; the message says why."""


def instructions(command: list[str], folder: Path) -> int:
    """All that a command executes.

    Raises:
        NotCounted: valgrind is missing, or the command failed.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise NotCounted(MISSING)
    options = ["--tool=callgrind", "--fair-sched=yes", f"--callgrind-out-file={folder}/callgrind"]
    done = subprocess.run(
        [valgrind, *options, *command],
        cwd=ROOT,
        env={**settings(), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    found = COLLECTED.search(done.stderr)
    if done.returncode or found is None:
        raise NotCounted(f"{' '.join(command)} failed under valgrind:\n{done.stderr[-2000:]}")
    return int(found[1])


def per_operation(name: str, work: str, sizes: tuple[int, int, int] | None = None) -> float:
    """What one more effect, or one more run, executes."""
    small, large, operations = sizes or SIZES[work]
    found = []
    PLACE.mkdir(exist_ok=True)
    for size in (small, small, large):
        with tempfile.TemporaryDirectory(dir=PLACE, prefix="instructions-") as folder:
            words = command_of(name, work, size, folder)
            found.append(instructions([sys.executable, *words], Path(folder)))
    # The first one may have compiled modules.
    return (found[2] - found[1]) / ((large - small) * operations)


def measured() -> dict[str, Any]:
    """Of everybody, in both works."""
    told: dict[str, Any] = {}
    for work in SIZES:
        for name in NAMES:
            told.setdefault(name, {})[work] = round(per_operation(name, work))
            print(f"instructions  {work}  {name}: {told[name][work]:,}", flush=True)
    return told


def written(told: dict[str, Any]) -> list[str]:
    """The page's section."""
    rows = [
        [CONTESTANTS[name].title, *(f"{works[work]:,}" for work in SIZES)]
        for name, works in told.items()
    ]
    head = ["instructions", "per step, many runs at once", "per run of one step"]
    return ["## Instructions", "", WORDS, "", *table(head, rows), ""]


def main(words: list[str]) -> int:
    """Count, and say so if that can't be done."""
    try:
        told = measured()
    except NotCounted as problem:
        print(problem, file=sys.stderr)
        return 1
    text = json.dumps(told, indent=1) + "\n"
    print(text, end="")
    if words:
        Path(words[0]).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
