"""Plain flows that compute while something happens to their runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import outlive
from outlive import sync
from outlive.app.app import App
from outlive.app.handle import Handle
from outlive.errors import RunFailed
from outlive.model.events import (
    DeadlinePassed,
    Parked,
    RunUndoing,
    SignalReceived,
    TimerFired,
)
from tests.harness.theatre import Theatre, breathe
from tests.harness.world import world


class Halt:
    """A point at which plain code stops until the test lets it go on."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Event(), threading.Event()

    def stop(self) -> None:
        """Called by plain code."""
        self.reached.set()
        self._open.wait()

    def release(self) -> None:
        """Let everybody pass."""
        self._open.set()

    def close(self) -> None:
        """Let nobody pass any more."""
        self.reached.clear()
        self._open.clear()


@pytest.fixture
def new_halt() -> Iterator[Callable[[], Halt]]:
    """Makes halts; in the end nobody is left standing at one."""
    made: list[Halt] = []

    def make() -> Halt:
        made.append(Halt())
        return made[-1]

    yield make
    for halt in made:
        halt.release()


@outlive.step
def think(text: str) -> str:
    return text


async def replayed(theatre: Theatre, flow: Any, begin: Halt) -> Handle:
    """The same run in another process; its thread goes on only when everything else stands."""
    begin.close()
    handle = await theatre.open().start(flow, id="r")
    await theatre.until(begin.reached.is_set, step=0)
    await breathe()
    begin.release()
    return handle


def worker_of(app: App) -> Any:
    """The one worker of an app."""
    (worker,) = [each for workers in app._workers.own.values() for each in workers]
    return worker


async def test_a_run_that_was_undoing_for_its_deadline_goes_on_with_that(
    theatre: Theatre, new_halt: Callable[[], Halt]
) -> None:
    """The replay of a flow that computed past its deadline ends where the deadline cut it off."""
    begin, work, undoing = new_halt(), new_halt(), new_halt()
    begin.release()

    def take_back(name: str) -> None:
        undoing.stop()
        world.done.pop(name, None)

    @outlive.effect(name="buy", undo=take_back, settle_after=0, timeout="10h")
    def buy(name: str) -> str:
        world.done[name] = name
        return name

    @outlive.flow(name="buying", deadline="10s")
    def buying() -> str:
        begin.stop()
        buy("rent")
        work.stop()
        return "completed"

    app = theatre.open()
    await app.start(buying, id="r")
    await theatre.until(work.reached.is_set, step=0)
    theatre.pass_time(60)
    await theatre.has("r", RunUndoing, step=0)
    await theatre.until(undoing.reached.is_set, step=0)
    work.release()
    await theatre.crash(app)
    undoing.release()

    handle = await replayed(theatre, buying, begin)

    with pytest.raises(RunFailed, match="deadline"):
        await theatre.outcome(handle)
    assert {} == world.done


async def test_a_recorded_deadline_ends_the_run_after_a_crash(
    theatre: Theatre, new_halt: Callable[[], Halt]
) -> None:
    """A run that died between its deadline and its end does not complete when it is replayed."""
    begin, work = new_halt(), new_halt()
    begin.release()

    @outlive.flow(name="thinking", deadline="10s")
    def thinking() -> str:
        begin.stop()
        think("a")
        work.stop()
        return "completed"

    app = theatre.open()
    await app.start(thinking, id="r")
    await theatre.until(work.reached.is_set, step=0)
    worker_of(app)._drives["r"]._end = lambda: None
    theatre.pass_time(60)
    await theatre.has("r", DeadlinePassed, step=0)
    work.release()
    await theatre.crash(app)

    handle = await replayed(theatre, thinking, begin)

    with pytest.raises(RunFailed, match="deadline"):
        await theatre.outcome(handle)


@pytest.mark.parametrize("signals", [0, 1], ids=["alone", "behind-a-signal"])
async def test_a_deadline_does_not_wait_for_plain_code(
    theatre: Theatre, new_halt: Callable[[], Halt], signals: int
) -> None:
    """The run fails at its deadline while its thread computes, whatever mail came before."""
    work = new_halt()

    @outlive.flow(name="busy", deadline="10s")
    def busy() -> str:
        think("one")
        work.stop()
        return "completed long after its deadline"

    app = theatre.open()
    handle = await app.start(busy, id="r")
    await theatre.until(work.reached.is_set, step=0)
    for _ in range(signals):
        await theatre.signal("r", "any", "thing")
        await theatre.has("r", SignalReceived, step=0.01)
    theatre.pass_time(60)
    await theatre.has("r", DeadlinePassed, step=0)

    await theatre.status("r", "failed")

    work.release()
    with pytest.raises(RunFailed, match="deadline"):
        await theatre.outcome(handle)


async def test_a_timer_that_a_new_chapter_overtook_fits_its_replay(
    theatre: Theatre, new_halt: Callable[[], Halt]
) -> None:
    """A timer that fired and was never delivered, as the chapter ended, parks no run."""
    work, bell = new_halt(), new_halt()

    @outlive.effect(name="ring_bell", settle_after=0, timeout="10h")
    def ring_bell() -> None:
        bell.stop()

    def turn() -> None:
        think("go")
        work.stop()
        sync.carry(1)

    @outlive.flow(name="carrying")
    def carrying(chapter: int) -> str:
        if not chapter:
            sync.gather(lambda: sync.sleep("10s"), turn, ring_bell)
        return "done"

    app = theatre.open()
    await app.start(carrying, 0, id="r")
    await theatre.until(work.reached.is_set, step=0)
    await theatre.until(bell.reached.is_set, step=0)
    theatre.pass_time(11)
    await theatre.has("r", TimerFired, step=0)
    work.release()
    for _ in range(50):
        await breathe()
    await theatre.crash(app)
    bell.release()
    theatre.pass_time(5)

    await theatre.open().start(carrying, 0, id="r")
    await theatre.status("r", "in_doubt", "waiting", step=0)

    assert [] == [each for each in await theatre.events("r", Parked) if each.reason]
