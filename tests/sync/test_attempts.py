"""Plain bodies run in threads, which nobody can stop: none is repeated beside itself."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from outlive import Retry
from outlive import sync as outlive
from outlive.errors import RunFailed
from outlive.model.events import (
    AttemptFailed,
    EffectDone,
    EffectDoubted,
    EffectIntended,
    StepDone,
)
from tests.harness.theatre import Theatre
from tests.harness.world import world


class Hall:
    """Bodies wait here; how many did at once is remembered."""

    def __init__(self) -> None:
        self.gates = [threading.Event() for _ in range(4)]
        self.entered = self.inside = self.most = 0
        self._lock = threading.Lock()

    def enter(self) -> int:
        with self._lock:
            number = self.entered
            self.entered += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.gates[number].wait()
        with self._lock:
            self.inside -= 1
        return number


hall = Hall()


@pytest.fixture(autouse=True)
def new_hall() -> Any:
    hall.__init__()  # type: ignore[misc]
    yield
    for gate in hall.gates:
        gate.set()


@outlive.step(timeout="1s", retry=Retry(attempts=2, delay=0))
def slow() -> int:
    number = hall.enter()
    if number == 0:
        raise OSError("too late")
    return number


def absent(key: str) -> Any:
    return outlive.NOT_HAPPENED


@outlive.effect(timeout="1s", settle_after=0, check=absent, retry=Retry(attempts=2, delay=0))
def slow_effect() -> int:
    number = hall.enter()
    if number == 0:
        raise OSError("too late")
    return number


@outlive.effect(timeout="1s", doubt="retry")
def late_effect() -> int:
    return hall.enter()


@outlive.flow
def stepping() -> int:
    return slow()


@outlive.flow
def effecting() -> int:
    return slow_effect()


@outlive.flow
def late() -> int:
    return late_effect()


async def overstay(stage: Theatre, flow: Any) -> Any:
    """Start it and let its first attempt take ten times as long as it may."""
    handle = await stage.open().start(flow, id="r")
    await stage.until(lambda: hall.inside == 1)
    for _ in range(200):
        stage.pass_time(0.05)
    await stage.until(lambda: True)
    return handle


async def test_a_step_past_its_limit_is_not_repeated_beside_itself(stage: Theatre) -> None:
    """The next attempt begins when the thread has returned."""
    handle = await overstay(stage, stepping)
    assert (1, 1) == (hall.entered, hall.inside)
    assert not await stage.events("r", AttemptFailed, StepDone)
    hall.gates[1].set()
    hall.gates[0].set()

    assert 1 == await stage.outcome(handle)
    assert (2, 1) == (hall.entered, hall.most)
    failed = (await stage.events("r", AttemptFailed))[0]
    assert "TimedOut" == failed.error.type_name


async def test_an_effect_past_its_limit_is_in_doubt_only_when_its_thread_returned(
    stage: Theatre,
) -> None:
    """Nobody asks the receiver, and nobody tries again, while it may still happen."""
    handle = await overstay(stage, effecting)
    assert (1, 1) == (hall.entered, hall.inside)
    assert not await stage.events("r", EffectDoubted)
    hall.gates[1].set()
    hall.gates[0].set()

    assert 1 == await stage.outcome(handle)
    assert (2, 1) == (hall.entered, hall.most)
    assert 1 == len(await stage.events("r", EffectDoubted))
    assert 2 == len(await stage.events("r", EffectIntended))


async def test_an_effect_that_returns_late_has_happened(stage: Theatre) -> None:
    """Better late than twice."""
    handle = await overstay(stage, late)
    hall.gates[0].set()

    assert 0 == await stage.outcome(handle)
    assert 1 == hall.entered
    assert 1 == len(await stage.events("r", EffectDone))


@outlive.flow(deadline="2s")
def overdue() -> int:
    return late_effect()


async def test_a_deadline_waits_for_the_thread_of_an_effect(stage: Theatre) -> None:
    """The run fails, but not before it is known what became of it."""
    world.begin()
    handle = await overstay(stage, overdue)
    assert (await stage.fold("r")).ended_at is None
    hall.gates[0].set()

    with pytest.raises(RunFailed, match="deadline"):
        await stage.outcome(handle)
    assert 1 == len(await stage.events("r", EffectDone))
