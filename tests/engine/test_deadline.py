"""Deadlines: past one the flow stops; what it began is settled and undone, nothing new begins."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive.engine import people
from outlive.engine import verbs as fanout
from outlive.errors import RunFailed
from outlive.model.events import (
    ChildIntended,
    DeadlinePassed,
    EffectDone,
    EffectIntended,
    EffectRaised,
    Parked,
    QuestionAsked,
    QuestionClosed,
    RunCompleted,
    RunUndoing,
    SignalReceived,
    StepDone,
    TimerFired,
    recorded_key,
)
from outlive.stores.memory import MemoryStore
from tests.harness.theatre import Theatre
from tests.harness.world import note, pay, ring, world
from tests.order.journals import write


@outlive.flow(deadline="1h")
async def sleeping() -> str:
    await outlive.sleep("2h")
    return await note("after")


@outlive.flow(deadline="1h")
async def asking() -> str:
    return str(await people.ask("Well?"))


@outlive.flow(deadline="1h")
async def stepping() -> str:
    return await note("slow")


@outlive.flow(deadline="10s")
async def paying() -> str:
    await pay("first")
    return await pay("second")


@outlive.flow(deadline="1h")
async def ringing() -> str:
    await pay("first")
    return await ring("bell")


@outlive.flow(deadline="1h")
async def eager() -> str:
    """Everything that could begin waits behind a sleep that ends after the deadline."""
    await outlive.sleep("59m")
    await asyncio.gather(
        note("step"), pay("effect"), people.ask("?"), fanout.call(stepping), outlive.sleep("1s")
    )
    return "done"


async def fails(theatre: Theatre, handle: outlive.Handle, step: float = 0.05) -> None:
    with pytest.raises(RunFailed, match="TimedOut: the run's deadline passed"):
        await theatre.outcome(handle, step)


@pytest.mark.parametrize("flow", [sleeping, asking], ids=["sleep", "ask"])
async def test_a_parked_run_is_woken_by_its_deadline(
    theatre: Theatre, flow: outlive.Flow[[], str]
) -> None:
    """Whatever it waits for."""
    handle = await theatre.open().start(flow, id="r")
    await theatre.has("r", Parked)
    theatre.pass_time(3600)

    await fails(theatre, handle)
    assert [] == world.ran
    assert [] == await theatre.events("r", TimerFired)
    assert {} == (await theatre.fold("r")).questions
    assert len(await theatre.events("r", QuestionAsked, QuestionClosed)) in (0, 2)


async def test_past_its_deadline_a_run_is_not_driven_further(theatre: Theatre) -> None:
    """It was dead then; timers that came due and mail that came meanwhile do not move it."""
    app = theatre.open()
    await app.start(sleeping, id="r")
    await theatre.has("r", Parked)
    await theatre.crash(app)
    theatre.pass_time(3 * 3600)
    await theatre.signal("r", "s", 1)
    await theatre.cancel("r")
    handle = await theatre.open().start(sleeping, id="r")

    await fails(theatre, handle)
    assert [] == world.ran
    assert [] == await theatre.events("r", TimerFired, StepDone)
    kinds = [type(event) for event in await theatre.events("r", DeadlinePassed, SignalReceived)]
    assert DeadlinePassed is kinds[0]


async def test_nothing_begins_behind_the_deadline(stage: Theatre) -> None:
    """Neither step nor effect, question or child, though the flow comes to them on replay."""
    app = stage.open()
    handle = await app.start(eager, id="r")
    await stage.has("r", Parked)
    stage.pass_time(59 * 60)
    await stage.has("r", TimerFired)
    events = await stage.events("r")
    fired = next(at for at, event in enumerate(events, 1) if isinstance(event, TimerFired))
    await stage.crash(app)
    world.begin()
    cut = Theatre(store=write(MemoryStore(), "r", events[:fired]), now_ms=stage.clock.now_ms())
    cut.pass_time(3600)
    handle = await cut.open().start(eager, id="r")

    await fails(cut, handle)
    begun = (StepDone, EffectIntended, QuestionAsked, ChildIntended, TimerFired)
    assert 1 == len(await cut.events("r", *begun))
    assert [] == world.ran
    await cut.close()


async def test_a_step_under_way_is_called_off(theatre: Theatre) -> None:
    """The flow stops where it is; the step's body is cancelled."""
    world.hold("slow")
    handle = await theatre.open().start(stepping, id="r")
    await theatre.until(lambda: world.ran)
    theatre.pass_time(3600)

    await fails(theatre, handle)
    assert [] == await theatre.events("r", StepDone)


async def test_an_effect_under_way_runs_to_its_end_and_is_undone(theatre: Theatre) -> None:
    """The deadline stops the flow, not the settling and undoing."""
    gate = world.hold("second")
    handle = await theatre.open().start(paying, id="r")
    await theatre.until(lambda: "second" in world.ran)
    theatre.pass_time(10)
    await theatre.has("r", DeadlinePassed)
    assert [] == await theatre.events("r", RunUndoing)
    gate.set()

    await fails(theatre, handle)
    ends = [event.step for event in await theatre.events("r", EffectDone)]
    assert ["0/pay#1", "0/pay#2", "undo:0/pay#2", "undo:0/pay#1"] == ends
    assert {} == world.done
    assert ["first", "second", "undo second", "undo first"] == world.ran


async def test_an_effect_in_doubt_is_settled_first(theatre: Theatre) -> None:
    """A human is waited for, however long it takes; then comes the undoing, then the end."""
    world.breaks_after["bell"] = [OSError("the line broke")]
    app = theatre.open()
    handle = await app.start(ringing, id="r")
    await theatre.status("r", "in_doubt")
    theatre.pass_time(3600)
    await theatre.has("r", DeadlinePassed)
    await theatre.has("r", Parked, 2)
    assert ["first", "bell"] == world.ran
    assert "in_doubt" == await handle.status()
    theatre.pass_time(86400)
    await app.resolve("r", "0/ring#1", "happened", b'"rang"')

    await fails(theatre, handle)
    assert ["first", "bell", "undo first"] == world.ran


@pytest.mark.parametrize("happened", [True, False])
async def test_an_effect_left_by_a_dead_driver_is_settled_by_its_check(
    theatre: Theatre, happened: bool
) -> None:
    """The deadline passed meanwhile: it is undone if it happened, and not tried again if not."""
    world.hold("second")
    app = theatre.open()
    await app.start(paying, id="r")
    await theatre.until(lambda: "second" in world.ran)
    await theatre.crash(app)
    world.bury()
    intent = (await theatre.events("r", EffectIntended))[-1]
    if happened:
        world.done[recorded_key("r", intent)] = "second"
    theatre.pass_time(7200)
    handle = await theatre.open().start(paying, id="r")

    await fails(theatre, handle)
    undone = ["undo second", "undo first"] if happened else ["undo first"]
    assert ["first", "second", *undone] == world.ran
    assert {} == world.done
    ends = await theatre.events("r", EffectRaised)
    assert ([] if happened else [False]) == [end.happened for end in ends]


async def test_a_run_that_ended_in_time_knows_no_deadline(theatre: Theatre) -> None:
    """Also when it ends in the last moment, and its last words are written after it."""

    @outlive.flow(deadline="1h")
    async def punctual() -> str:
        await outlive.sleep("59m")
        return "in time"

    handle = await theatre.open().start(punctual, id="r")
    await theatre.has("r", Parked)
    theatre.pass_time(59 * 60 + 59)

    assert "in time" == await theatre.outcome(handle)
    assert [] == await theatre.events("r", DeadlinePassed)


async def test_a_completed_flow_with_an_open_doubt_is_not_cut(stage: Theatre) -> None:
    """It returned before the deadline; that a doubt is settled after it makes it no failure."""

    @outlive.flow(deadline="1h")
    async def over() -> str:
        bell = asyncio.create_task(ring("bell"))
        await people.wait_signal("go")
        bell.cancel()
        return "returned"

    world.breaks_after["bell"] = [OSError("the line broke")]
    gate = world.hold("bell")
    app = stage.open()
    handle = await app.start(over, id="r")
    await stage.until(lambda: world.ran)
    await stage.signal("r", "go", 1)
    await stage.has("r", SignalReceived)
    gate.set()
    await stage.has("r", Parked)
    stage.pass_time(7200)
    await app.resolve("r", "0.1/ring#1", "happened", b'"rang"')

    assert "returned" == await stage.outcome(handle)
    assert 1 == len(await stage.events("r", RunCompleted))


async def test_a_clock_that_was_set_back_does_not_bring_the_deadline_forward(
    stage: Theatre,
) -> None:
    """Deadlines go by the wall clock."""
    handle = await stage.open().start(asking, id="r")
    await stage.has("r", Parked)
    stage.pass_time(3000)
    stage.clock._wall_ms -= 3000_000
    stage.pass_time(700)
    await stage.answer("r", "0/ask#1", b'"in time"')

    assert "in time" == await stage.outcome(handle)
