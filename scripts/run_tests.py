"""Runs the tests in two phases and adds them up: most of them side by side, then those that
kill, stop or time processes (marker ``alone``) one after the other.

A machine has its moods, and there are thousands of tests with real processes, threads and disks.
So the few that failed are run again, by themselves; what passes then is named in the last lines, as
something to look at. Not so what has no clock but its own (``STRICT``), and not in full.

The last lines are the figures that tests printed and the sums; the exit code is 1 if a test
failed for good. ``--quick`` runs only what ``make check`` needs.
"""

from __future__ import annotations

import compileall
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
QUICK = ("tests/unit", "tests/values", "tests/test_tidy.py", "tests/test_api.py")
CLOSING = re.compile(r"^=+ (?P<counts>.*\b(passed|failed|errors?|deselected|no tests ran)\b.*) in ")
COUNT = re.compile(r"(\d+) (passed|failed|error|skipped|xfailed|xpassed)")
FAILED = re.compile(r"^(?:FAILED|ERROR) (?P<test>tests/\S+?::.+?)(?: - .*)?$")
TESTS_FAILED, NO_TESTS_RAN = 1, 5
#: More failures than these are no mood.
AGAIN_MAX = 3
#: Seeds, schedules and mutants: one that fails has found something.
STRICT = ("tests/simulation/", "tests/mutants/", "tests/cuts/", "tests/queues/test_simulation.py")
IS_FULL = os.environ.get("OUTLIVE_TEST_FULL") == "1"
BAD = Counter({"failed": 1 << 30, "error": 1 << 30})


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What one call of pytest said."""

    exit_code: int
    counts: Counter[str]
    figures: list[str]
    failed: list[str]


def run_phase(*arguments: str) -> Phase:
    """Run pytest, pass its output on, and take the sums and figures from it."""
    counts: Counter[str] = Counter()
    figures: list[str] = []
    failed: list[str] = []
    command = [sys.executable, "-m", "pytest", *arguments]
    print("$ pytest", *arguments, flush=True)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as pytest:
        for line in pytest.stdout or ():
            print(line, end="", flush=True)
            if line.startswith("figure: "):
                figures.append(line.rstrip())
            elif found := FAILED.match(line):
                failed.append(found["test"])
            elif found := CLOSING.match(line):
                counts = Counter({kind: int(n) for n, kind in COUNT.findall(found["counts"])})
    return Phase(exit_code=pytest.returncode, counts=counts, figures=figures, failed=failed)


def phases(*, quick: bool) -> list[Phase]:
    """All of them are run, even after one that failed."""
    side_by_side = ("-n", str(min(os.cpu_count() or 1, 4)), "--dist", "worksteal")
    if quick:
        paths = [path for path in QUICK if (ROOT / path).exists()]
        return [run_phase(*side_by_side, "-m", "not alone", *paths)]
    limit = ("--timeout", "14400") if IS_FULL else ()
    return [
        run_phase(*side_by_side, "-m", "not alone", "--durations=10", *limit),
        run_phase("-m", "alone", "--durations=10", *limit),
    ]


def run_again(ran: list[Phase]) -> list[Phase]:
    """The same, with the few that failed run by themselves; those that fail again have failed."""
    failed = sorted({test for phase in ran for test in phase.failed})
    is_strict = any(test.startswith(STRICT) for test in failed)
    if IS_FULL or is_strict or not 0 < len(failed) <= AGAIN_MAX:
        return ran
    again = run_phase(*failed)
    if again.exit_code or again.counts["passed"] != len(failed):
        return ran
    told = [f"figure: failed beside others, passed by itself = {test}" for test in failed]
    rest = [_excused(phase) if phase.exit_code == TESTS_FAILED else phase for phase in ran]
    return [*rest, replace(again, figures=[*again.figures, *told])]


def _excused(phase: Phase) -> Phase:
    return replace(phase, exit_code=0, counts=phase.counts - BAD)


def compile_all() -> None:
    """Tests begin thousands of processes: none shall compile, nor write what it compiled."""
    for folder in ("src", "tests"):
        compileall.compile_dir(ROOT / folder, quiet=2)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def main() -> int:
    """Run, add up, say how it went."""
    began = time.monotonic()
    compile_all()
    ran = run_again(phases(quick="--quick" in sys.argv[1:]))
    total = sum((phase.counts for phase in ran), Counter[str]())
    bad = [p.exit_code for p in ran if p.exit_code not in (0, NO_TESTS_RAN)]
    failed = total["failed"] + total["error"]
    print()
    for line in sorted({line for phase in ran for line in phase.figures}):
        print(line)
    if bad and not failed:
        print(f"pytest ended with exit code {bad[0]} without a failed test")
    if total["skipped"]:
        print("a test that can't run must fail and say what it needs: none may be skipped")
    others = "".join(f", {total[kind]} {kind}" for kind in ("skipped", "xfailed") if total[kind])
    seconds = time.monotonic() - began
    print(f"{total['passed']} passed, {failed} failed{others} in {seconds:.0f} s")
    return 1 if bad or total["skipped"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
