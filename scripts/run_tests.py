"""Run the tests in three phases and add them up.

1. ``together``: what needs nothing to itself, one worker per core.
2. ``queues``: what kills, stops or crashes processes and servers of its own. Each resource
   (marker ``alone("postgres")`` and so on) is one queue, and the queues run side by side.
3. ``time``: what measures durations (``alone("time")``), one after the other with nothing beside.

Nothing is run again: a test that fails at random has found something. The last lines are the
figures that tests printed, the slowest tests, the quarantined ones with their reasons, and the
sums; the exit code is 1 if a test failed. ``--quick`` runs only what ``make check`` needs.

Temporary files lie in memory where the system has such a place. A killed process loses nothing
there that it would keep on a disk, and a disk that flushes slowly would decide how long all this
takes and which time limits hold. What a power cut takes is tried by what records the flushes.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
QUICK = (
    "tests/unit",
    "tests/values",
    "tests/test_tidy.py",
    "tests/test_shape.py",
    "tests/test_api.py",
)
#: Of these folders, what takes longest and is none of a change's first questions.
QUICK_WITHOUT = ("tests/values/test_stored_costs.py", "tests/values/test_blobs.py")
CLOSING = re.compile(r"^=+ (?P<counts>.*\b(passed|failed|errors?|deselected|no tests ran)\b.*) in ")
COUNT = re.compile(r"(\d+) (passed|failed|error|skipped|xfailed|xpassed)")
SLOW = re.compile(r"^slow: (?P<seconds>[\d.]+) s (?P<test>.+)$")
NO_TESTS_RAN = 5
SLOWEST = 20
#: Queues that run side by side: their tests wait for leases and time limits more than they compute.
QUEUES_MAX = 3
#: Where files lie in memory, and how much room the tests want there.
MEMORY, ROOM_BYTES = Path("/dev/shm"), 4 << 30
IS_FULL = os.environ.get("OUTLIVE_TEST_FULL") == "1"


@dataclass(slots=True, kw_only=True)
class Phase:
    """What one call of pytest said."""

    exit_code: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    figures: list[str] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    slow: list[tuple[float, str]] = field(default_factory=list)

    def read(self, line: str) -> None:
        """Take sums, figures and times from a line of the output."""
        if line.startswith("figure: "):
            self.figures.append(line)
        elif line.startswith("quarantine: "):
            self.quarantined.append(line)
        elif found := SLOW.match(line):
            self.slow.append((float(found["seconds"]), found["test"]))
        elif found := CLOSING.match(line):
            self.counts = Counter({kind: int(n) for n, kind in COUNT.findall(found["counts"])})


def run_phase(*arguments: str) -> Phase:
    """Run pytest, pass its output on, and take the sums and figures from it."""
    phase, began = Phase(), time.monotonic()
    command = [sys.executable, "-m", "pytest", *arguments]
    print("$ pytest", *arguments, flush=True)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as pytest:
        for line in pytest.stdout or ():
            print(line, end="", flush=True)
            phase.read(line.rstrip())
    phase.exit_code, phase.seconds = pytest.returncode, time.monotonic() - began
    return phase


def phases(*, quick: bool) -> list[Phase]:
    """All of them are run, even after one that failed."""
    together = ("-n", str(min(os.cpu_count() or 1, 4)), "--dist", "worksteal")
    together = (*together, "--phase", "together")
    if quick:
        paths = [path for path in QUICK if (ROOT / path).exists()]
        without = [f"--ignore={path}" for path in QUICK_WITHOUT]
        return [run_phase(*together, *without, *paths)]
    limit = ("--timeout", "14400") if IS_FULL else ()
    return [
        run_phase(*together, *limit),
        run_phase("-n", str(QUEUES_MAX), "--dist", "loadgroup", "--phase", "queues", *limit),
        run_phase("--phase", "time", *limit),
    ]


def compile_all() -> None:
    """Tests begin thousands of processes: none shall compile, nor write what it compiled."""
    for folder in ("src", "tests"):
        compileall.compile_dir(ROOT / folder, quiet=2)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@contextmanager
def files_in_memory() -> Iterator[None]:
    """Let temporary files lie in memory, unless the caller names a place or there is no room."""
    named = "TMPDIR" in os.environ
    if named or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOM_BYTES:
        yield
        return
    folder = tempfile.mkdtemp(prefix="ol-", dir=MEMORY)
    Path(folder).chmod(0o755)  # a database server that we start is another user
    os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tell(ran: list[Phase]) -> None:
    """What is worth a look: figures, the slowest tests, and those in quarantine."""
    print()
    for line in sorted({line for phase in ran for line in phase.figures}):
        print(line)
    slow = sorted((each for phase in ran for each in phase.slow), reverse=True)[:SLOWEST]
    print("\nslowest tests, seconds")
    for seconds, test in slow:
        print(f"{seconds:8.1f}  {test}")
    print("phases, seconds:", ", ".join(f"{phase.seconds:.0f}" for phase in ran))
    for line in sorted({line for phase in ran for line in phase.quarantined}):
        print(line)


def main() -> int:
    """Run, add up, say how it went."""
    began = time.monotonic()
    compile_all()
    with files_in_memory():
        ran = phases(quick="--quick" in sys.argv[1:])
    total = sum((phase.counts for phase in ran), Counter[str]())
    bad = [p.exit_code for p in ran if p.exit_code not in (0, NO_TESTS_RAN)]
    failed = total["failed"] + total["error"]
    tell(ran)
    if bad and not failed:
        print(f"pytest ended with exit code {bad[0]} without a failed test")
    if total["skipped"]:
        print("a test that can't run must fail and say what it needs: none may be skipped")
    kinds = ("skipped", "xfailed", "xpassed")
    others = "".join(f", {total[kind]} {kind}" for kind in kinds if total[kind])
    seconds = time.monotonic() - began
    print(f"{total['passed']} passed, {failed} failed{others} in {seconds:.0f} s")
    return 1 if bad or total["skipped"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
