"""What tests of every folder may ask for: servers, places for trials, chance that can be repeated.

``tests/conftest.py`` takes them in, so that a process of tests has one server, not one per folder.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.harness.postgres_server import PostgresServer

#: A kill loses nothing that the kernel has, so a file system in memory serves as well as a disk.
MEMORY = Path("/dev/shm")
TRIALS_KEPT = 5

_numbers = count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of this process that do it no harm."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server that a test may crash or load."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    """A place of its own for each test: a schema that does not exist yet."""
    return postgres.url(schema=f"test_{next(_numbers)}")


@pytest.fixture
def trials(tmp_path: Path) -> Iterator[Path]:
    """A folder for trials, in memory where there is such a place."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="outlive-crash-", dir=MEMORY))
    yield folder
    # Trials without a violation leave nothing behind; of the others a few are worth a look.
    for trial in sorted(folder.iterdir())[:TRIALS_KEPT]:
        shutil.copytree(trial, tmp_path / trial.name)
    shutil.rmtree(folder)


@pytest.fixture
def chance(figure: Callable[[str, object], None], request: pytest.FixtureRequest) -> random.Random:
    """Where samples come from: a new seed each time, printed; ``OUTLIVE_TEST_SEED`` repeats one."""
    seed = int(os.environ.get("OUTLIVE_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    figure(f"crash points, seed of {request.node.name}", seed)
    return random.Random(seed)


#: Says, when its input ends, how much longer than its own time it took to compute, on average.
_COMPUTER = """
import select, sys, time
took = used = 1e-9
while not select.select([sys.stdin], [], [], 0.03)[0]:
    wall, cpu = time.perf_counter(), time.process_time()
    while time.process_time() - cpu < 0.005:
        pass
    took, used = took + time.perf_counter() - wall, used + time.process_time() - cpu
print(took / used)
"""
#: A test's own processes may keep a machine as busy as this.
STRETCH_QUIET = 1.7


@pytest.fixture
def stretch(
    figure: Callable[[str, object], None], request: pytest.FixtureRequest
) -> Iterator[Callable[[], float]]:
    """Call it once for what a time limit is to be multiplied by: 1 on a quiet machine.

    Beside others a process gets its share of the machine only. What that was during this test is
    measured by a process that computes now and then; a limit that counts on a quiet machine says
    so by this, instead of failing at random.
    """
    command = [sys.executable, "-S", "-c", _COMPUTER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as computer:

        def measured() -> float:
            share = float(computer.communicate()[0])
            if share < STRETCH_QUIET:
                return 1.0
            figure(f"beside others: times as slow during {request.node.name}", round(share, 1))
            return 2 * share

        yield measured
        computer.kill()
