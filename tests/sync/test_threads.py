"""Threads of plain flows: what they see, how they unwind, and that none is in the way."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

import outlive as awaiting
from outlive import sync as outlive
from outlive.engine import threads as engine
from outlive.errors import ReplayMismatch, RunCancelled, RunFailed
from outlive.model.events import (
    DeadlinePassed,
    Parked,
    QuestionAsked,
    RunCompleted,
    StepDone,
    TimerFired,
)
from tests.harness.theatre import EVICTING, STAYING, Theatre
from tests.harness.world import note, pay, world
from tests.sync.twins import plain_note

seen: list[str] = []
gate = threading.Event()
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    seen.clear()
    gate.clear()
    yield
    gate.set()


def flow_threads(run_id: str) -> list[threading.Thread]:
    prefix = f"outlive-flow-{run_id}"
    return [each for each in threading.enumerate() if each.name.startswith(prefix)]


# ---------------------------------------------------------------- leaving memory


@outlive.flow
def tidy() -> str:
    plain_note("before")
    try:
        outlive.sleep(1)
        return plain_note("after")
    finally:
        seen.append("finally")
        try:
            plain_note("from the finally")
        except BaseException as error:
            seen.append(type(error).__name__)
            raise


async def test_eviction_unwinds_and_records_nothing(stage: Theatre) -> None:
    """The user's finally runs when the run is put to sleep; durable calls in it are refused."""
    handle = await stage.open().start(tidy, id="r")
    await stage.has("r", Parked)
    await stage.until(lambda: not flow_threads("r"), step=0)

    assert ["finally", "RunStopped"] == seen
    assert ["before"] == world.ran
    assert "AFTER" == await stage.outcome(handle)
    assert ["before", "after", "from the finally"] == world.ran
    assert 3 == len(await stage.events("r", StepDone))


@outlive.flow
def stubborn() -> None:
    while True:
        try:
            outlive.sleep("1d")
        except BaseException:
            seen.append("swallowed")


async def test_a_flow_that_swallows_its_end_is_left_behind(
    stage: Theatre, caplog: pytest.LogCaptureFixture
) -> None:
    """It gets nowhere, is reported, keeps neither lease nor worker, and stops burning time."""
    app = stage.open()
    await app.start(stubborn, id="left-behind")
    with caplog.at_level(logging.ERROR, "outlive"):
        await stage.until(lambda: len(seen) > engine.SWALLOWS_MAX, step=0)
        await stage.until(lambda: "left where it is" in caplog.text, step=0)

    assert engine.SWALLOWS_MAX + 1 == len(seen)
    assert not [each for each in await stage.events("left-behind") if isinstance(each, TimerFired)]
    await stage.has("left-behind", Parked)
    reading = await stage.read("left-behind")
    assert reading is not None
    assert reading.head.worker is None
    began = time.monotonic()
    await app.aclose()
    assert time.monotonic() - began < 5


@outlive.flow
def blocking() -> str:
    plain_note("before")
    seen.append("blocks")
    gate.wait()
    seen.append("goes on")
    return plain_note("never")


async def test_a_flow_that_blocks_does_not_hold_up_its_worker(
    stage: Theatre, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing waits for it for a while; what it does later changes nothing."""
    monkeypatch.setattr(engine, "UNWIND_SECONDS", 0.05)
    app = stage.open()
    await app.start(blocking, id="r")
    await stage.until(lambda: "blocks" in seen, step=0)
    closing = asyncio.ensure_future(app.aclose())
    with caplog.at_level(logging.ERROR, "outlive"):
        await stage.until(closing.done)

    assert "its thread outlive-flow-r-0 still runs" in caplog.text
    before = await stage.events("r")
    gate.set()
    await stage.until(lambda: not flow_threads("r"), step=0)
    assert ["blocks", "goes on"] == seen
    assert before == await stage.events("r")
    assert "NEVER" == await stage.outcome(await stage.open().start(blocking, id="r"))


async def test_the_host_goes_on_while_a_flow_computes(stage: Theatre) -> None:
    """The loop is not blocked; mail is taken, but nothing is delivered and the run stays."""
    app = stage.open()
    handle = await app.start(blocking, id="r")
    await stage.until(lambda: "blocks" in seen, step=0)
    await stage.signal("r", "s", 1)
    for _ in range(20):
        stage.pass_time(1)
        await asyncio.sleep(0)

    assert not await stage.events("r", Parked)
    gate.set()
    assert "NEVER" == await stage.outcome(handle)


# ---------------------------------------------------------------- ends from outside


@outlive.flow(deadline=1.0)
def late() -> None:
    pay("a")
    seen.append("blocks")
    gate.wait()
    pay("b")


async def test_a_deadline_does_not_wait_for_code_that_blocks(stage: Theatre) -> None:
    """The run ends and what it did is undone, whatever the thread does."""
    handle = await stage.open().start(late, id="r")
    await stage.until(lambda: "blocks" in seen, step=0)
    await stage.status("r", "failed")
    assert ["a", "undo a"] == world.ran
    gate.set()

    with pytest.raises(RunFailed, match="deadline"):
        await stage.outcome(handle)
    await stage.until(lambda: not flow_threads("r"), step=0)
    assert ["a", "undo a"] == world.ran


@outlive.flow
def cancellable() -> None:
    try:
        outlive.ask("Well?")
    except asyncio.CancelledError:
        seen.append(plain_note("cancelled"))
        raise


@pytest.mark.parametrize("settings", [EVICTING, STAYING], ids=["evicting", "staying"])
async def test_a_cancellation_comes_where_the_flow_waits(settings: Any) -> None:
    """As an exception from the call that waits; the flow may clean up, durably."""
    world.begin()
    stage = Theatre(settings)
    handle = await stage.open().start(cancellable, id="r")
    await stage.has("r", QuestionAsked)
    await stage.cancel("r")

    with pytest.raises(RunCancelled):
        await stage.outcome(handle)
    assert ["CANCELLED"] == seen
    await stage.close()


# ---------------------------------------------------------------- many


async def test_two_hundred_plain_flows_at_once() -> None:
    """All of them in memory, each in a thread of its own, whatever the pool of bodies."""
    world.begin()
    stage = Theatre(STAYING)
    stage.settings = type(STAYING)(lease_seconds=80_000, poll_seconds=0.05, idle_seconds=80_000)
    app = stage.open()
    held: set[str] = set()

    @outlive.flow(name="held")
    def hold(number: int) -> int:
        held.add(plain_note(f"{number}"))
        gate.wait()
        return number

    try:
        handles = [await app.start(hold, number, id=f"h{number}") for number in range(200)]
        await stage.until(lambda: len(held) == 200, step=0)
        threads = len(flow_threads("h"))
    finally:
        gate.set()
    assert 200 == threads
    assert list(range(200)) == [await stage.outcome(each, step=0) for each in handles]
    await stage.close()


# ---------------------------------------------------------------- what they see


@outlive.step
def whose() -> str:
    return f"{tenant.get()} {threading.current_thread().name.startswith('outlive-body')}"


@outlive.step
async def whose_else() -> str:
    return tenant.get()


@outlive.flow
def tenants() -> list[str]:
    def branch() -> str:
        inherited = tenant.get()
        tenant.set("branch")
        return f"{inherited} {whose_else()}"

    found = [whose()]
    tenant.set("ann")
    found += [whose(), whose_else(), *outlive.gather(branch, branch)]
    return [*found, whose_else()]


async def test_context_variables_reach_the_bodies(stage: Theatre) -> None:
    """What flow code sets, its steps and branches see; what a branch sets stays there."""
    tenant.set("caller")
    handle = await stage.open().start(tenants, id="r")
    found = await stage.outcome(handle)

    assert ["ann True", "ann", "ann branch", "ann branch", "ann"] == found[1:]


@outlive.flow
def changed(name: str) -> str:
    while True:
        try:
            return plain_note(name) + plain_note("second")
        except BaseException as error:
            seen.append(type(error).__name__)
            if len(seen) > 3:
                raise


async def test_other_code_than_the_journal_stops_the_thread(stage: Theatre) -> None:
    """A mismatch found by the flow's own thread stops the run, even if the flow swallows it."""
    handle = await stage.open().start(tidy, id="r")
    await stage.has("r", Parked)
    await stage.crash(next(iter(stage.doors)))
    other = awaiting.flow(name="tidy")(lambda: changed.fn("other"))
    handle = await stage.open().start(other, id="r")

    with pytest.raises(ReplayMismatch, match="0/plain_note#1 with other arguments"):
        await stage.outcome(handle)
    assert {"RunStopped"} == set(seen[2:])
    assert not await stage.events("r", RunCompleted)


@outlive.flow
def failing() -> None:
    plain_note("a")
    raise LookupError("not there")


async def test_an_error_of_plain_code_fails_its_run(stage: Theatre) -> None:
    """With its type and message, as anywhere."""
    handle = await stage.open().start(failing, id="r")

    with pytest.raises(RunFailed, match="LookupError: not there"):
        await stage.outcome(handle)


async def test_no_thread_for_a_flow_keeps_its_place(
    stage: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That this process can't start threads is no fault of the run's."""

    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name.startswith("outlive-flow"):
            raise RuntimeError("can't start new thread")
        start(self)

    app = stage.open()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    handle = await app.start(failing, id="r")
    with pytest.raises(awaiting.errors.RunError, match="no thread for its flow"):
        await stage.outcome(handle)
    monkeypatch.undo()
    assert "waiting" == (await stage.fold("r")).status


async def test_gather_tells_the_first_failure(stage: Theatre) -> None:
    """The others go on until the flow is over, then they are called off."""

    def fails() -> None:
        plain_note("fails")
        raise ValueError("first")

    def waits() -> None:
        try:
            outlive.sleep("1d")
        except asyncio.CancelledError:
            seen.append("called off")
            raise

    @outlive.flow(name="gathering")
    def gathering() -> str:
        try:
            outlive.gather(waits, fails, partial(plain_note, "third"))
        except ValueError as error:
            return str(error)
        return "none"

    handle = await stage.open().start(gathering, id="r")
    assert "first" == await stage.outcome(handle)
    assert "called off" in seen
    # The third may have been called off before its body began: all three began at once.
    assert "fails" in world.ran


async def test_steps_that_end_behind_a_deadline_do_no_harm(stage: Theatre) -> None:
    """Their ends are in the journal before the flow is stopped, or not at all."""

    def blocks() -> None:
        plain_note("a")
        seen.append("blocks")
        gate.wait()

    @outlive.flow(name="overtaken", deadline=1.0)
    def overtaken() -> None:
        b: Any = note
        outlive.gather(partial(b, "b"), partial(b, "c"), blocks)
        outlive.sleep("1d")

    held = {name: world.hold(name) for name in "bc"}
    handle = await stage.open().start(overtaken, id="r")
    await stage.until(lambda: "blocks" in seen and set(world.ran) == set("abc"), step=0)
    held["b"].set()
    await stage.has("r", StepDone, 2, step=0)
    await stage.has("r", DeadlinePassed)
    held["c"].set()
    await stage.has("r", StepDone, 3, step=0)
    gate.set()

    with pytest.raises(RunFailed, match="deadline"):
        await stage.outcome(handle)
    app = stage.open()
    with pytest.raises(RunFailed, match="deadline"):
        await stage.outcome(await app.start(overtaken, id="r"))
