"""How soon a dead driver's runs go on: with default settings, measured from the kill."""

from __future__ import annotations

import os
import signal
import statistics
import time
from multiprocessing.process import BaseProcess

import pytest

from outlive.model.events import Claimed, StepDone
from outlive.settings import Settings
from tests.conftest import Figure, Stretch
from tests.harness.processes import pid_of, until
from tests.processes import players
from tests.processes.stage import Stage, submit

pytestmark = pytest.mark.alone("time")

#: P5, on one machine.
TAKEOVER_SECONDS_MAX = 1.0
DEFAULTS = Settings()
RUNS = 20
ROUNDS = 6
INTERRUPTED = 200


def kill(child: BaseProcess) -> float:
    """Returns the wall time of the kill."""
    killed_at = time.time()
    os.kill(pid_of(child), signal.SIGKILL)
    child.join()
    return killed_at


def claimed_after(stage: Stage, run_id: str, instant: float) -> float | None:
    """Seconds from the instant to the first claim after it."""
    events = stage.events(run_id)
    if not events:
        return None
    started_at = events[0].started_at / 1000  # type: ignore[union-attr]
    times = [started_at + e.at / 1000 - instant for e in events if isinstance(e, Claimed)]
    # A claim's time is in whole milliseconds.
    return next((seconds for seconds in times if seconds > -0.001), None)


def take_over_times(stage: Stage, run_ids: list[str], killed_at: float) -> list[float]:
    found = [claimed_after(stage, run_id, killed_at) for run_id in run_ids]
    return [seconds for seconds in found if seconds is not None]


def wait_for_takeover(stage: Stage, run_ids: list[str], instant: float) -> list[float]:
    """How long it took for each of them."""
    until(lambda: len(run_ids) == len(take_over_times(stage, run_ids, instant)), "takeover")
    return take_over_times(stage, run_ids, instant)


def steps_done(stage: Stage, run_id: str, name: str) -> int:
    return sum(isinstance(e, StepDone) and name in e.step for e in stage.events(run_id))


def let_go(stage: Stage, run_ids: list[str]) -> None:
    (stage.folder / "go").touch()
    until(lambda: all("completed" == stage.status(r) for r in run_ids), "all runs to end")


def test_a_worker_takes_over_within_a_second(
    stage: Stage, figure: Figure, stretch: Stretch
) -> None:
    """Every run of a killed worker is driven by another, as long as it had a second to notice."""
    times: list[float] = []
    worker = stage.spawn_worker(players.work, ["ticking"], DEFAULTS)
    run_ids = submit(stage, "ticking", RUNS)
    for _ in range(ROUNDS):
        until(lambda: all(is_driven_by_the_newest(stage, r) for r in run_ids), "steps of all")
        successor = stage.spawn_worker(players.work, ["ticking"], DEFAULTS)
        killed_at = kill(worker)
        times += wait_for_takeover(stage, run_ids, killed_at)
        worker = successor

    let_go(stage, run_ids)
    assert [] == stage.audit()
    assert RUNS == len(stage.receipts())
    figure("takeover: runs", len(times))
    figure("takeover: ms, median", round(statistics.median(times) * 1000))
    figure("takeover: ms, longest", round(max(times) * 1000))
    assert max(times) < TAKEOVER_SECONDS_MAX * stretch()


def is_driven_by_the_newest(stage: Stage, run_id: str) -> bool:
    """A step was done behind the last claim."""
    events = stage.events(run_id)
    last = max((n for n, e in enumerate(events) if isinstance(e, Claimed)), default=len(events))
    return any(isinstance(event, StepDone) for event in events[last:])


def call(stage: Stage) -> tuple[BaseProcess, float]:
    """A script that runs the run "own", and when it called ``outlive.run``."""
    script = stage.spawn(players.run, "own", "ticking", [0])
    note = stage.folder / f"called-{script.pid}"
    until(lambda: note.exists() and bool(note.read_text()), "the script to come up")
    return script, float(note.read_text())


def test_a_script_goes_on_at_once(stage: Stage, figure: Figure, stretch: Stretch) -> None:
    """The same call after kill -9 goes on with its own run, with nobody's help."""
    times = []
    for _ in range(5):
        script, called_at = call(stage)
        times += wait_for_takeover(stage, ["own"], called_at)
        until(lambda: is_driven_by_the_newest(stage, "own"), "a step")
        kill(script)

    call(stage)
    let_go(stage, ["own"])
    assert [] == stage.audit()
    figure("takeover: ms until a script goes on, longest", round(max(times[1:]) * 1000))
    assert max(times[1:]) < TAKEOVER_SECONDS_MAX * stretch()


def test_a_script_that_waits_takes_over_from_one_that_dies(
    stage: Stage, figure: Figure, stretch: Stretch
) -> None:
    """Two scripts wait for one run; when its driver is killed, the other one drives it."""
    first, _ = call(stage)
    until(lambda: bool(stage.events("own")), "the run to begin")
    second, _ = call(stage)
    until(lambda: steps_done(stage, "own", "tick") > 3, "steps")

    killed_at = kill(first)
    (seconds,) = wait_for_takeover(stage, ["own"], killed_at)

    let_go(stage, ["own"])
    second.join(10)
    assert 0 == second.exitcode
    figure("takeover: ms by a script that waits", round(seconds * 1000))
    assert seconds < TAKEOVER_SECONDS_MAX * stretch()


def test_a_worker_that_is_told_to_stop_hands_over(
    stage: Stage, figure: Figure, stretch: Stretch
) -> None:
    """After SIGTERM another worker drives its runs, and no lease need pass."""
    first = stage.command("worker", "tests.processes.cast")
    run_ids = submit(stage, "ticking", RUNS)
    until(lambda: all(is_driven_by_the_newest(stage, r) for r in run_ids), "steps of all")
    stage.spawn_worker(players.work, ["ticking"], DEFAULTS)

    told_at = time.time()
    first.terminate()
    longest = max(wait_for_takeover(stage, run_ids, told_at))
    first.communicate(timeout=30)

    let_go(stage, run_ids)
    assert 0 == first.returncode
    assert [] == stage.audit()
    figure("takeover: ms after SIGTERM, longest", round(longest * 1000))
    assert longest < TAKEOVER_SECONDS_MAX * stretch()


def test_a_fresh_worker_recovers_everybodys_runs(stage: Stage, figure: Figure) -> None:
    """Two hundred interrupted runs go on where they were when the next worker comes up."""
    worker = stage.spawn_worker(players.work, ["holding"], DEFAULTS, INTERRUPTED)
    run_ids = submit(stage, "holding", INTERRUPTED)
    until(lambda: all(steps_done(stage, r, "think") for r in run_ids), "all to be in flight")
    kill(worker)

    began = time.time()
    stage.spawn(players.work, ["holding"], DEFAULTS, INTERRUPTED)
    claimed = max(wait_for_takeover(stage, run_ids, began))
    let_go(stage, run_ids)

    assert [] == stage.audit()
    assert INTERRUPTED == len(stage.receipts())
    assert [1] * INTERRUPTED == [steps_done(stage, r, "think") for r in run_ids]
    figure("recovery: interrupted runs", INTERRUPTED)
    figure("recovery: ms from the process's start until all are claimed", round(claimed * 1000))
