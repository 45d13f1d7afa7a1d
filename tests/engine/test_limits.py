"""Time limits that survive restarts, and mail that beats them if it was posted in time."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive.engine import people
from outlive.engine import verbs as fanout
from outlive.errors import StoreUnavailable, TimedOut
from outlive.model.events import (
    Answered,
    ChildEnded,
    MailRead,
    ParentTold,
    Parked,
    SignalReceived,
    StepDone,
    TimerFired,
)
from tests.harness.theatre import Theatre
from tests.harness.world import note, pay, world


@outlive.flow
async def waiting() -> str:
    try:
        return str(await people.wait_signal("s", str, within="1h"))
    except TimedOut:
        return "timed out"


@outlive.flow
async def approving() -> str:
    try:
        granted = (await people.approve(pay, "rent", within="1h")).granted
    except TimedOut:
        return "timed out"
    return str(granted)


@outlive.flow
async def nested() -> list[str]:
    seen = []
    try:
        async with people.timeout("2h"):
            try:
                async with people.timeout("1h"):
                    await people.wait_signal("never", str)
            except TimedOut:
                seen.append("inner")
            await people.wait_signal("never", str)
    except TimedOut:
        seen.append("outer")
    return seen


@outlive.flow
async def limited_step() -> str:
    try:
        async with people.timeout("1m"):
            return await note("slow")
    except TimedOut as error:
        return str(error)


@outlive.flow
async def limited_sleep() -> str:
    async with people.timeout("1h"):
        await outlive.sleep("30m")
    return "in time"


async def test_a_limit_survives_a_restart(theatre: Theatre) -> None:
    """It counts from when it was set, not from when the run was loaded again."""
    app = theatre.open()
    await app.start(waiting, id="r")
    await theatre.has("r", Parked)
    theatre.pass_time(3000)
    await theatre.crash(app)
    theatre.pass_time(500)
    handle = await theatre.open().start(waiting, id="r")
    await asyncio.sleep(0)
    assert [] == await theatre.events("r", TimerFired)
    theatre.pass_time(101)

    assert "timed out" == await theatre.outcome(handle, step=0.05)
    (fired,) = await theatre.events("r", TimerFired)
    assert 3600_000 <= fired.at < 3610_000


@pytest.mark.parametrize("flow", [waiting, approving], ids=["signal", "approval"])
@pytest.mark.parametrize("posted_at", [3599, 3600])
async def test_mail_posted_before_the_limit_beats_it(
    theatre: Theatre, flow: outlive.Flow[[], str], posted_at: int
) -> None:
    """Though nobody drove the run when the limit passed, and for long after."""
    app = theatre.open()
    await app.start(flow, id="r")
    await theatre.has("r", Parked)
    await theatre.crash(app)
    began = (await theatre.fold("r")).start.started_at
    theatre.pass_time(posted_at - (theatre.clock.now_ms() - began) / 1000)
    if flow is waiting:
        await theatre.signal("r", "s", "True")
    else:
        await theatre.answer("r", "0/approve#1", b"true")
    theatre.pass_time(7200)
    handle = await theatre.open().start(flow, id="r")

    assert "True" == await theatre.outcome(handle)
    assert [] == await theatre.events("r", TimerFired)


@pytest.mark.parametrize("flow", [waiting, approving], ids=["signal", "approval"])
async def test_mail_posted_after_the_limit_does_not(
    theatre: Theatre, flow: outlive.Flow[[], str]
) -> None:
    """An approval that has expired stays expired, though nobody could say so in time."""
    app = theatre.open()
    await app.start(flow, id="r")
    await theatre.has("r", Parked)
    await theatre.crash(app)
    theatre.pass_time(3601)
    if flow is waiting:
        await theatre.signal("r", "s", "True")
    else:
        await theatre.answer("r", "0/approve#1", b"true")
    theatre.pass_time(7200)
    handle = await theatre.open().start(flow, id="r")

    assert "timed out" == await theatre.outcome(handle)
    assert [] == await theatre.events("r", Answered)


async def test_mail_in_time_beats_the_limit_of_a_driver_that_did_not_look(
    theatre: Theatre,
) -> None:
    """The run is in memory and its driver has not asked for mail since: it asks before it fires."""

    @outlive.flow
    async def soon() -> str:
        try:
            return str(await people.wait_signal("s", str, within="1s"))
        except TimedOut:
            return "timed out"

    app = theatre.open()
    handle = await app.start(soon, id="r")
    await theatre.until(lambda: app._workers.own, step=0)
    await theatre.signal("r", "s", "in time")
    theatre.pass_time(5)

    assert "in time" == await theatre.outcome(handle)


async def test_limits_pass_in_their_order(theatre: Theatre) -> None:
    """Both passed while nobody drove the run; the earlier one is told first."""
    app = theatre.open()
    await app.start(nested, id="r")
    await theatre.has("r", Parked)
    await theatre.crash(app)
    theatre.pass_time(10_000)
    handle = await theatre.open().start(nested, id="r")

    assert ["inner", "outer"] == await theatre.outcome(handle)
    fired = [event.timer for event in await theatre.events("r", TimerFired)]
    assert ["0/timer#2", "0/timer#1"] == fired


async def test_a_limit_around_a_step_calls_it_off(theatre: Theatre) -> None:
    """Its body is cancelled, and the flow is told how long it took."""
    world.hold("slow")
    handle = await theatre.open().start(limited_step, id="r")
    await theatre.until(lambda: world.ran)
    theatre.pass_time(61)

    assert "it took longer than 1m" == await theatre.outcome(handle)
    assert [] == await theatre.events("r", StepDone)


async def test_a_limit_that_does_not_pass_leaves_no_trace(theatre: Theatre) -> None:
    """Only what fired is in the journal."""
    handle = await theatre.open().start(limited_sleep, id="r")
    await theatre.status("r", "waiting")

    assert "in time" == await theatre.outcome(handle, step=60)
    assert ["0/sleep#1"] == [event.timer for event in await theatre.events("r", TimerFired)]


async def test_a_limit_of_nothing_takes_only_what_is_there(stage: Theatre) -> None:
    """A look, not a wait."""

    @outlive.flow
    async def looking() -> list[str]:
        await outlive.sleep("1m")
        seen = []
        for _ in range(2):
            try:
                seen.append(str(await people.wait_signal("s", str, within=0)))
            except TimedOut:
                seen.append("nothing")
        return seen

    handle = await stage.open().start(looking, id="r")
    await stage.signal("r", "s", "there")
    await stage.has("r", SignalReceived)
    stage.pass_time(60)

    assert ["there", "nothing"] == await stage.outcome(handle)


async def test_a_childs_end_beats_the_limit_if_it_was_told_in_time(theatre: Theatre) -> None:
    """The news is mail like any other."""

    @outlive.flow
    async def child() -> str:
        return await note("child")

    @outlive.flow
    async def parent() -> str:
        try:
            async with people.timeout("1h"):
                return str(await fanout.call(child))
        except TimedOut:
            return "timed out"

    app = theatre.open()
    gate = world.hold("child")
    handle = await app.start(parent, id="r")
    await theatre.has("r", Parked)
    await theatre.until(lambda: world.ran)
    gate.set()
    child_id = next(iter((await theatre.fold("r")).children.values())).child_id
    await theatre.has(child_id, ParentTold, step=0)
    theatre.pass_time(7200)

    assert "CHILD" == await theatre.outcome(handle)
    assert 1 == len(await theatre.events("r", ChildEnded))
    assert [] == await theatre.events("r", TimerFired)


async def test_a_store_that_is_out_of_reach_for_a_moment_loses_no_limit(stage: Theatre) -> None:
    """The look for mail before a timer fires is repeated until it is answered."""

    @outlive.flow
    async def soon() -> str:
        try:
            return str(await people.wait_signal("s", str, within="1s"))
        except TimedOut:
            return "timed out"

    stage.settings = stage.settings.__class__(
        lease_seconds=80_000, poll_seconds=3600, idle_seconds=2.0
    )
    app = stage.open()
    handle = await app.start(soon, id="r")
    await stage.until(
        lambda: "r" in app._workers.own[asyncio.get_running_loop()][0].driving, step=0
    )
    stage.doors[app].faults["mail_of"] = [StoreUnavailable("locked"), StoreUnavailable("locked")]

    waiting_for = asyncio.ensure_future(handle.outcome())
    assert "timed out" == await stage.until(
        lambda: waiting_for.done() and waiting_for.result(), step=0.3
    )
    assert [] == stage.doors[app].faults["mail_of"]
    assert [] == await stage.events("r", MailRead)
