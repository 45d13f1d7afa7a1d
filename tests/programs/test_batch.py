"""The batch of five hundred: killed in the middle, and failing in ordinary ways."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness.processes import until
from tests.programs.conftest import Failure, Shell

BATCH = ("python", "batch.py", "monday", "500")
FEW = ("python", "batch.py", "monday", "5")
SLEEP = "    await asyncio.sleep(MODEL_SECONDS)\n"


def described(shell: Shell) -> list[str]:
    path = shell.folder / "described.txt"
    return path.read_text().splitlines() if path.exists() else []


def test_it_goes_on_after_a_kill(shell: Shell) -> None:
    """Killed in the middle: only what was under way is described again."""
    batch = shell.start(*BATCH)
    until(lambda: len(described(shell)) > 200, "the first half")
    batch.kill()

    assert "500 described, 0 failed\n" == shell(*BATCH)
    assert 500 == len(set(described(shell)))
    assert len(described(shell)) <= 500 + 2 * 20


FAILURES = [
    Failure(
        name="pictures that can't be read",
        edits=((SLEEP, '    if picture.number > 3:\n        raise OSError("no such picture")\n'),),
        exit_code=0,
        sees=("4 described, 1 failed", "no such picture"),
        status="completed",
    ),
    Failure(
        name="pictures that take too long",
        edits=(('timeout="2s"', 'timeout="50ms"'), ("MODEL_SECONDS = 0.02", "MODEL_SECONDS = 9")),
        exit_code=0,
        sees=("0 described, 5 failed", "step 0.1/describe#1 took longer than 0.05 s"),
        status="completed",
    ),
    Failure(
        name="a set of pictures",
        edits=(("return [Picture(", "return {Picture("), ("range(count)]", "range(count)}")),
        sees=("outlive.map: a set has another order on replay; sort it", "in batch"),
    ),
    Failure(
        name="an open file in each picture",
        edits=(
            ("    name: str\n", "    name: str\n    file: object\n"),
            ('{number}.png")', '{number}.png", open(__file__))'),
        ),
        exit_code=0,
        sees=("describe was given, at $.picture.file: a value of type _io.TextIOWrapper can't be",),
        status="completed",
    ),
    Failure(
        name="a forgotten await",
        edits=(("await outlive.map(", "outlive.map("),),
        sees=("TypeError", "map", "never awaited", "in batch"),
    ),
    Failure(
        name="the flow's decorator is missing",
        edits=(("@outlive.flow\n", ""),),
        sees=("batch is not a flow; decorate it with @outlive.flow",),
        status="",
    ),
    Failure(
        name="a call that blocks in the flow",
        edits=(
            ("    outcomes = await", "    time.sleep(0.6)\n    outcomes = await"),
            ("import sys\n", "import sys\nimport time\n"),
        ),
        exit_code=0,
        sees=("run batch-monday blocks its loop for over 250 ms", "in batch", "5 described"),
        status="completed",
    ),
    Failure(
        name="the flow opens a connection",
        edits=(
            ("outcomes =", 'await asyncio.open_connection("127.0.0.1", 9)\n    outcomes ='),
        ),
        sees=("IoInFlow: flow code called loop.create_connection(); do this in a step", "in batch"),
    ),
    Failure(
        name="a wrong key for the store",
        environment=(("OUTLIVE_KEY", "swordfish"),),
        sees=("OUTLIVE_KEY: key 1 is not 32 bytes in base64; `outlive key` makes one",),
        status="",
    ),
]  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES, ids=str)
def test_a_failure_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch, failure: Failure) -> None:
    """In words that name the step and the author's own line."""
    for name, value in failure.environment:
        monkeypatch.setenv(name, value)
    shell.edit("batch.py", *failure.edits)

    said = shell.start(*FEW).end(failure.exit_code)

    assert [] == [text for text in failure.sees if text not in said], said
    if failure.status:
        assert failure.status == shell.status("batch-monday")


def test_a_full_disk_is_told_and_room_is_enough(shell: Shell, small_disk: Path) -> None:
    """The same command goes on when there is room."""
    shell.edit("batch.py", ('shows {picture.number} cats"', 'shows cats" * 500'))

    said = shell.start(*BATCH).end(1)
    assert "the disk is full" in said.splitlines()[-1]
    assert "make room and start again" in said
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    assert "500 described, 0 failed\n" == shell(*BATCH)
    assert len(described(shell)) < 1000


def test_a_read_only_disk_is_told(shell: Shell, small_disk: Path) -> None:
    """Nothing is described."""
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)

    said = shell.start(*FEW).end(1)
    assert "StoreUnavailable" in said
    assert "ead-only file system" in said
    assert [] == described(shell)


def test_another_count_for_the_same_day_is_refused(shell: Shell) -> None:
    shell(*FEW)

    said = shell.start("python", "batch.py", "monday", "6").end(1)
    assert "run id 'batch-monday' is taken: that run of flow 'batch' has other arguments" in said


def test_control_c_names_the_steps_and_the_way_on(shell: Shell) -> None:
    """The same command goes on with it."""
    batch = shell.start(*BATCH)
    until(lambda: len(described(shell)) > 20, "the first")
    batch.process.send_signal(signal.SIGINT)

    said = batch.end(-signal.SIGINT)
    assert "run batch-monday was stopped and is safe" in said
    assert "describe" in said.splitlines()[-1]
    assert "`outlive resume batch-monday batch` goes on with it" in said
    assert "500 described, 0 failed\n" == shell(*BATCH)


def test_input_that_is_not_json_is_told(shell: Shell) -> None:
    """On the command line: one line, no traceback."""
    said = shell("outlive", "run", "batch:batch", "--input", "[monday]", code=2)
    assert 1 == said.count("\n"), said
    assert "--input" in said
    assert "JSON" in said
