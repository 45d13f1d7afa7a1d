"""Cancelling: mail that takes hold where the flow waits; what it does then is its own."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive.engine import people
from outlive.engine import verbs as fanout
from outlive.errors import RunCancelled, RunFailed, TimedOut
from outlive.model.events import (
    CancelRequested,
    Claimed,
    EffectDone,
    EffectIntended,
    EffectRaised,
    Parked,
    QuestionClosed,
    SignalReceived,
    StepDone,
)
from outlive.model.events import RunCancelled as RunWasCancelled
from tests.harness.theatre import Theatre
from tests.harness.world import note, pay, ring, world


@outlive.flow
async def child(number: int = 0) -> str:
    await outlive.sleep("1d")
    return f"child {number}"


async def _limited() -> None:
    async with people.timeout("2d"):
        await outlive.sleep("1d")


async def _many() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(outlive.sleep("1d"))
        group.create_task(people.wait_signal("s"))
        group.create_task(people.ask("?"))


async def _requests() -> None:
    async for _ in people.requests("message", idle="30d"):
        pass


WAITS = {
    "sleep": lambda: outlive.sleep("1d"),
    "signal": lambda: people.wait_signal("s"),
    "ask": lambda: people.ask("Well?"),
    "approve": lambda: people.approve(pay, "x"),
    "requests": _requests,
    "timeout": _limited,
    "call": lambda: fanout.call(child),
    "map": lambda: fanout.map(child, [1, 2, 3], limit=2),
    "group": _many,
}


@outlive.flow
async def waiting(kind: str) -> str:
    try:
        await WAITS[kind]()
        await outlive.sleep("1d")
    except asyncio.CancelledError:
        await note("cleaning up")
        raise
    return "done"


@outlive.flow
async def stubborn() -> str:
    for _ in range(2):
        try:
            await people.wait_signal("s", str)
        except asyncio.CancelledError:
            await note("not yet")
    return str(await people.wait_signal("s", str))


@outlive.flow
async def failing() -> None:
    try:
        await outlive.sleep("1d")
    finally:
        raise KeyError("in the clean-up")


@outlive.flow
async def paying() -> str:
    return await pay("rent")


@pytest.mark.parametrize("kind", list(WAITS))
async def test_every_wait_can_be_cancelled(theatre: Theatre, kind: str) -> None:
    """The flow gets a CancelledError there, may clean up durably, and the run ends cancelled."""
    handle = await theatre.open().start(waiting, kind, id="r")
    await theatre.has("r", Parked)
    await theatre.cancel("r", by="ann")

    with pytest.raises(RunCancelled):
        await theatre.outcome(handle)
    assert ["cleaning up"] == world.ran
    assert "cancelled" == await handle.status()
    (cancelled,) = await theatre.events("r", CancelRequested)
    assert "ann" == cancelled.by
    run = await theatre.fold("r")
    assert ({}, {}) == (run.questions, run.effects)
    if kind in ("ask", "approve", "group"):
        assert await theatre.events("r", QuestionClosed)


async def test_a_flow_may_go_on_though_it_was_cancelled(theatre: Theatre) -> None:
    """It was told, twice; what it makes of it is its own."""
    handle = await theatre.open().start(stubborn, id="r")
    await theatre.status("r", "waiting")
    await theatre.cancel("r", by="ann")
    await theatre.has("r", StepDone)
    await theatre.cancel("r", by="bob")
    await theatre.has("r", StepDone, 2)
    await theatre.signal("r", "s", "after all")

    assert "after all" == await theatre.outcome(handle)
    assert ["not yet", "not yet"] == world.ran


async def test_a_flow_that_fails_while_it_is_cancelled_has_failed(theatre: Theatre) -> None:
    """What it raised is what people should see."""
    handle = await theatre.open().start(failing, id="r")
    await theatre.status("r", "waiting")
    await theatre.cancel("r")

    with pytest.raises(RunFailed, match="in the clean-up"):
        await theatre.outcome(handle)


async def test_a_step_under_way_is_called_off(theatre: Theatre) -> None:
    """Its body is cancelled; nothing of it is recorded."""

    @outlive.flow
    async def stepping() -> str:
        return await note("slow")

    world.hold("slow")
    handle = await theatre.open().start(stepping, id="r")
    await theatre.until(lambda: world.ran)
    await theatre.cancel("r")

    with pytest.raises(RunCancelled):
        await theatre.outcome(handle)
    assert [] == await theatre.events("r", StepDone)


async def test_an_effect_under_way_is_waited_for(theatre: Theatre) -> None:
    """The cancellation comes when the attempt has ended: what happened is known, and undone."""
    gate = world.hold("rent")
    handle = await theatre.open().start(paying, id="r")
    await theatre.until(lambda: world.ran)
    await theatre.cancel("r")
    await theatre.has("r", CancelRequested)
    assert [] == await theatre.events("r", EffectDone)
    gate.set()

    with pytest.raises(RunCancelled):
        await theatre.outcome(handle)
    done, undone = await theatre.events("r", EffectDone)
    assert ("0/pay#1", "undo:0/pay#1") == (done.step, undone.step)
    assert ["rent", "undo rent"] == world.ran
    assert {} == world.done


async def test_an_effect_in_doubt_is_settled_before_a_cancelled_run_ends(theatre: Theatre) -> None:
    """Nobody but a human can tell; the run waits for that word, then ends."""

    @outlive.flow
    async def ringing() -> str:
        return await ring("bell")

    world.breaks_before["bell"] = [OSError("the line broke")]
    app = theatre.open()
    handle = await app.start(ringing, id="r")
    await theatre.status("r", "in_doubt")
    await theatre.cancel("r")
    await theatre.has("r", CancelRequested)
    await theatre.has("r", Parked, 2)
    assert "in_doubt" == await handle.status()
    await app.resolve("r", "0/ring#1", "happened", b'"rang"')

    with pytest.raises(RunCancelled):
        await theatre.outcome(handle)
    (done,) = await theatre.events("r", EffectDone)
    assert "human" == done.by


async def test_a_run_cancelled_before_anybody_drove_it_does_nothing(theatre: Theatre) -> None:
    """No step and no effect of it begins."""
    app = theatre.open()

    @outlive.flow
    async def eager(kind: str) -> str:
        return await (note("step") if kind == "step" else pay("effect"))

    for kind in ("step", "effect"):
        await app.submit(eager, kind, id=kind)
        await theatre.cancel(kind)
        handle = await app.start(eager, kind, id=kind)
        with pytest.raises(RunCancelled):
            await theatre.outcome(handle)

    assert [] == world.ran
    assert [] == await theatre.events("step", StepDone)
    ends = await theatre.events("effect", EffectDone, EffectRaised)
    assert [False] == [end.happened for end in ends]
    assert 1 == len(await theatre.events("effect", Claimed))


async def test_a_second_cancel_of_the_same_sender_is_refused_at_the_door(stage: Theatre) -> None:
    """And so is one of a run that is over."""
    handle = await stage.open().start(waiting, "sleep", id="r")
    await stage.status("r", "waiting")

    assert "posted" == await stage.cancel("r")
    assert "already" == await stage.cancel("r")
    with pytest.raises(RunCancelled):
        await stage.outcome(handle)
    assert "ended" == await stage.cancel("r", by="bob")


async def test_a_cancel_survives_the_death_of_the_driver_that_read_it(theatre: Theatre) -> None:
    """It is an event; the next driver cancels at the same place."""
    app = theatre.open()
    world.hold("cleaning up")
    await app.start(waiting, "signal", id="r")
    await theatre.status("r", "waiting")
    await theatre.cancel("r")
    await theatre.until(lambda: world.ran)
    await theatre.crash(app)
    world.bury()
    handle = await theatre.open().start(waiting, "signal", id="r")

    with pytest.raises(RunCancelled):
        await theatre.outcome(handle)
    assert 1 == len(await theatre.events("r", CancelRequested))
    assert ["cleaning up", "cleaning up"] == world.ran


async def test_a_cancel_that_comes_too_late_changes_nothing(stage: Theatre) -> None:
    """The flow has returned; only an undo, or a doubt of another branch, is still under way."""

    @outlive.flow
    async def over() -> str:
        bell = asyncio.create_task(ring("bell"))
        await people.wait_signal("go")
        bell.cancel()
        return "returned"

    world.breaks_after["bell"] = [OSError("the line broke")]
    app = stage.open()
    handle = await app.start(over, id="r")
    await stage.status("r", "in_doubt")
    await stage.signal("r", "go", 1)
    await stage.has("r", SignalReceived)
    await stage.cancel("r")
    await stage.has("r", CancelRequested)
    await app.resolve("r", "0.1/ring#1", "happened", b'"rang"')

    assert "returned" == await stage.outcome(handle)
    assert [] == await stage.events("r", RunWasCancelled)


async def test_a_limit_and_a_cancel_do_not_take_each_others_place(stage: Theatre) -> None:
    """A cancellation inside a time limit is no time-out."""

    @outlive.flow
    async def both() -> str:
        try:
            async with people.timeout("1d"):
                await people.wait_signal("s")
        except TimedOut:
            return "timed out"
        return "got it"

    handle = await stage.open().start(both, id="r")
    await stage.status("r", "waiting")
    await stage.cancel("r")

    with pytest.raises(RunCancelled):
        await stage.outcome(handle)
    assert [] == await stage.events("r", EffectIntended)
