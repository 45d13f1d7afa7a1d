"""The disk fails under a worker: it says so and ends; what it acknowledged is there."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlive.errors import StoreFailed
from tests.conftest import Figure
from tests.harness.processes import until
from tests.processes import cast
from tests.processes.stage import Stage

pytestmark = pytest.mark.alone("processes")

STORE_ERROR = 3
RUNS = 3
TURNS = 6
SYNCS, SYNCS_FULL = 10, 40


def submit(stage: Stage, flow: str, *args: int) -> list[str]:
    async def main() -> list[str]:
        async with stage.open_app() as app:
            runs = [await app.submit(getattr(cast, flow), *args, id=f"r{n}") for n in range(RUNS)]
            return [handle.id for handle in runs]

    return asyncio.run(main())


def fail_sync(stage: Stage, number: int) -> tuple[str, ...]:
    """strace options by which each thread's n-th flush of the log fails."""
    fault = ("-e", "trace=fdatasync", "-e", f"inject=fdatasync:error=EIO:when={number}")
    # SQLite does not look at how the flush of a folder ended, so only that of the log counts.
    return ("strace", "-f", "-qq", "-o", "/dev/null", "-P", f"{stage.database}-wal", *fault)


def end(command: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and what it said of it."""
    _, said = command.communicate(timeout=60)
    return command.returncode, said


def work(stage: Stage, under: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return stage.command("worker", "tests.processes.cast", under=under)


def finish(stage: Stage, worker: subprocess.Popen[str], run_ids: list[str]) -> None:
    """This worker brings all runs to their end."""
    until(lambda: all("completed" == stage.status(r) for r in run_ids), "all runs to end")
    worker.terminate()
    assert 0 == end(worker)[0]
    assert [] == stage.audit()


@pytest.fixture
def stages(tmp_path: Path, full: bool) -> Iterator[dict[int, Stage]]:
    """One for each flush that shall fail."""
    made = {}
    for number in range(1, (SYNCS_FULL if full else SYNCS) + 1):
        made[number] = Stage(tmp_path / str(number))
        made[number].folder.mkdir()
    yield made
    for stage in made.values():
        stage.close()


def test_a_failed_flush_ends_the_worker(stages: dict[int, Stage], figure: Figure) -> None:
    """Whichever flush it is: exit code 3, one line that says why, and the runs go on later."""
    kept = 0
    for some in batches(list(stages.items()), 5):
        runs = [submit(stage, "busy", TURNS + n) for n, stage in some]
        broken = [work(stage, fail_sync(stage, n)) for n, stage in some]
        for (number, stage), worker in zip(some, broken, strict=True):
            code, said = end(worker)
            assert STORE_ERROR == code, (number, said)
            assert "disk I/O error" in said
            assert "Traceback" not in said
            kept += sum(stage.acknowledged().values())
            assert_kept(stage)
        whole = [work(stage) for _, stage in some]
        for (_, stage), worker, run_ids in zip(some, whole, runs, strict=True):
            finish(stage, worker, run_ids)
    figure("failed flushes: workers ended with exit code 3", len(stages))
    figure("failed flushes: events acknowledged before, all kept", kept)
    assert kept > 0


def assert_kept(stage: Stage) -> None:
    assert all(len(stage.events(r)) >= seq for r, seq in stage.acknowledged().items())


def batches(stages: list[tuple[int, Stage]], size: int) -> Iterator[list[tuple[int, Stage]]]:
    for begin in range(0, len(stages), size):
        yield stages[begin : begin + size]


def test_a_failed_flush_ends_a_run_here(stage: Stage) -> None:
    """`outlive run` reports the store, not the run; the same call goes on with it afterwards."""
    words = ("run", "tests.processes.cast:busy", "--id", "own", "--input", "[4]")
    number = random.randint(2, 6)

    code, said = end(stage.command(*words, under=fail_sync(stage, number)))
    assert STORE_ERROR == code, (number, said)
    assert "disk I/O error" in said

    again = stage.command(*words)
    printed, said = again.communicate(timeout=60)
    assert (0, "4") == (again.returncode, printed.strip()), said
    assert [] == stage.audit()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk with room for an empty store and little more."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1280k", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_ends_the_worker(stage: Stage, small: Path, figure: Figure) -> None:
    """It says that the disk is full; when there is room again, the runs go on."""
    stage.database = small / "journal.db"
    run_ids = submit(stage, "talkative", 10, 20)

    code, said = end(work(stage))
    assert STORE_ERROR == code, said
    assert "the disk is full" in said
    kept = sum(stage.acknowledged().values())
    assert kept > RUNS
    code, said = end(work(stage))
    assert STORE_ERROR == code, said

    subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
    assert_kept(stage)
    finish(stage, work(stage), run_ids)
    figure("full disk: events acknowledged before, all kept", kept)


def test_a_full_disk_is_told_to_whoever_submits(stage: Stage, small: Path) -> None:
    """Nothing that does not fit is acknowledged."""
    stage.database = small / "journal.db"

    async def main() -> int:
        async with stage.open_app() as app:
            for number in range(10_000):
                try:
                    await app.submit(cast.holding, number, id=f"r{number}")
                except StoreFailed:
                    return number
        return 0

    accepted = asyncio.run(main())

    assert 0 < accepted == len(stage.run_ids())
