"""Signals, requests, cancels and events through a handle."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import outlive
from outlive.errors import (
    NoReply,
    RequestRefused,
    RunCancelled,
    RunEnded,
    TimedOut,
    UsageError,
    ValueRefused,
)
from outlive.model.events import (
    CancelRequested,
    Claimed,
    Parked,
    RunCompleted,
    RunStarted,
    SignalReceived,
)
from tests.harness.theatre import Theatre
from tests.harness.world import note, pay, world


@dataclass
class Parcel:
    """Something that is sent."""

    grams: int


@outlive.flow
async def collect(count: int) -> list[int]:
    return [await outlive.wait_signal("number", type=int) for _ in range(count)]


@outlive.flow
async def weigh() -> int:
    parcel: Parcel = await outlive.wait_signal("parcel", type=Parcel)
    return parcel.grams


@outlive.flow
async def desk() -> int:
    served = 0
    async for request in outlive.requests("message", type=str, idle="30d"):
        served += 1
        if request.value == "bye":
            break
        await request.reply(f"{served}: {await note(request.value)}")
    return served


@outlive.flow
async def paid_and_waits() -> None:
    await pay("rent")
    await outlive.wait_signal("never")


async def during(theatre: Theatre, work: Any) -> Any:
    """What it returns, time passing meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        await theatre.until(task.done)
    finally:
        task.cancel()
    return task.result()


async def test_a_signal_is_sent_once_per_id(theatre: Theatre) -> None:
    """A repeat says so and changes nothing, before and after it was read."""
    handle = await theatre.open().start(collect, 3, id="r")
    assert await handle.signal("number", 1, id="a")
    assert not await handle.signal("number", 1, id="a")
    await theatre.has("r", SignalReceived)
    assert not await handle.signal("number", 99, id="a")
    assert await handle.signal("number", 2)
    assert await handle.signal("number", 3)

    assert [1, 2, 3] == await theatre.outcome(handle)
    assert not await handle.signal("number", 1, id="a")
    with pytest.raises(RunEnded, match=r"run r has ended \(completed\)"):
        await handle.signal("number", 4)


async def test_a_signal_may_be_an_object_or_json(theatre: Theatre) -> None:
    """Both come as the type that the flow waits for."""
    app = theatre.open()
    own, plain = [await app.start(weigh, id=name) for name in "ab"]
    await own.signal("parcel", Parcel(5))
    await plain.signal_json("parcel", b'{"grams": 7}')

    assert [5, 7] == [await theatre.outcome(own), await theatre.outcome(plain)]


async def test_what_is_no_signal_is_refused(stage: Theatre) -> None:
    """Names are short texts, values can be recorded, and mail has a size."""
    handle = await stage.open().start(collect, 1, id="r")

    with pytest.raises(UsageError, match="a signal's name is a text of 1 to 200 characters, not"):
        await handle.signal("", 1)
    with pytest.raises(UsageError, match="a signal's id is a text of 1 to 200 characters"):
        await handle.signal("number", 1, id="x" * 201)
    with pytest.raises(ValueRefused):
        await handle.signal("number", object())
    with pytest.raises(ValueRefused, match="are more than the 16777216 of a mail"):
        await handle.signal("number", b"x" * (17 << 20))
    assert [] == await stage.events("r", SignalReceived)


async def test_cancel_from_another_process(theatre: Theatre) -> None:
    """The run stops at its next durable point and what happened is undone."""
    driver = theatre.open()
    handle = await driver.start(paid_and_waits, id="r")
    await theatre.has("r", Parked)
    other = await theatre.open().get("r")
    await other.cancel(by="ann")

    with pytest.raises(RunCancelled, match="run r was cancelled"):
        await theatre.outcome(handle)
    assert "cancelled" == await other.status()
    assert ([], ["rent"]) == (world.names(), list(world.undone.values()))
    (asked,) = await theatre.events("r", CancelRequested)
    assert "ann" == asked.by
    with pytest.raises(RunEnded, match=r"run r has ended \(cancelled\)"):
        await other.cancel()


async def test_a_request_gets_its_reply(theatre: Theatre) -> None:
    """From a process that does not drive the run; the same id again gets the same reply."""
    await theatre.open().start(desk, id="r")
    client = await theatre.open().get("r")
    first = await during(theatre, client.request("message", "a", id="m1"))
    second = await during(theatre, client.request("message", "b"))
    again = await during(theatre, client.request("message", "a", id="m1"))

    assert ["1: A", "2: B", "1: A"] == [first, second, again]
    assert ["a", "b"] == world.ran
    assert 2 == len(await theatre.events("r", SignalReceived))


async def test_a_requester_that_gave_up_asks_again(theatre: Theatre) -> None:
    """Nobody drives the run at first; the message is sent once, the reply found later."""
    app = theatre.open()
    await app.start(desk, id="r")
    await theatre.has("r", Parked)
    await theatre.crash(app)
    client = await theatre.open().get("r")
    with pytest.raises(
        TimedOut,
        match="run r did not reply to request m1 within 1s; ask again with the same id: "
        "the message is not sent twice",
    ):
        await during(theatre, client.request("message", "a", id="m1", timeout="1s"))
    await theatre.open().start(desk, id="r")

    assert "1: A" == await during(theatre, client.request("message", "a", id="m1"))
    assert ["a"] == world.ran


async def test_a_request_that_can_not_be_read_is_refused(theatre: Theatre) -> None:
    """Whoever sent it is told; the flow goes on."""
    handle = await theatre.open().start(desk, id="r")
    with pytest.raises(
        RequestRefused,
        match=r"run r could not read request m1: ValueRefused: .*; "
        "send what the flow waits for, with another id",
    ):
        await during(theatre, handle.request("message", 5, id="m1"))

    assert "1: A" == await during(theatre, handle.request("message", "a"))


async def test_a_request_is_not_waited_for_beyond_the_end(theatre: Theatre) -> None:
    """The run ended without a reply; a reply given before is still there."""
    handle = await theatre.open().start(desk, id="r")
    assert "1: A" == await during(theatre, handle.request("message", "a", id="m1"))
    with pytest.raises(
        NoReply,
        match=r"run r ended \(completed\) without a reply to request m2; `outlive show r` tells",
    ):
        await during(theatre, handle.request("message", "bye", id="m2"))

    assert "1: A" == await during(theatre, handle.request("message", "a", id="m1"))
    with pytest.raises(RunEnded):
        await handle.request("message", "c")


async def test_events_are_followed_to_the_end(theatre: Theatre) -> None:
    """Every one, in order, in the driver's process and in another."""
    handle = await theatre.open().start(collect, 2, id="r")
    other = await theatre.open().get("r")

    async def listen(each: Any, after: int = 0) -> list[Any]:
        return [event.raw async for event in each.events(after)]

    here, there, late = (
        asyncio.ensure_future(listen(each, after))
        for each, after in ((handle, 0), (other, 0), (other, 2))
    )
    await theatre.has("r", Parked)
    await handle.signal("number", 1)
    await theatre.has("r", SignalReceived)
    await handle.signal("number", 2)
    await theatre.until(lambda: here.done() and there.done() and late.done())

    events = await theatre.events("r")
    assert [RunStarted, Claimed] == [type(event) for event in events[:2]]
    assert RunCompleted is type(events[-1])
    assert [events, events, events[2:]] == [here.result(), there.result(), late.result()]


async def test_events_of_a_run_in_memory_need_no_polling(stage: Theatre) -> None:
    """While nothing happens the store is not asked; when something does, it is told at once."""
    gate = world.hold("slow")

    @outlive.flow
    async def slow() -> str:
        return await note("slow")

    app = stage.open()
    handle = await app.start(slow, id="r")
    seen: list[Any] = []

    async def listen() -> None:
        async for event in handle.events():
            seen.append(event.raw)

    listening = asyncio.ensure_future(listen())
    await stage.until(lambda: len(seen) == 2, step=0)
    asked: list[str] = []
    stage.doors[app].on_call = asked.append
    for _ in range(30):
        stage.pass_time(0.5)
        await asyncio.sleep(0)
    await stage.until(lambda: asked.count("claim") > 3)
    assert 0 == asked.count("read")
    gate.set()
    await stage.until(listening.done, step=0)

    assert RunCompleted is type(seen[-1])


async def test_following_may_be_left_at_any_time(stage: Theatre) -> None:
    """Nothing of it is left behind."""
    handle = await stage.open().start(collect, 1, id="r")
    async for event in handle.events():
        assert isinstance(event.raw, RunStarted)
        break
    await handle.signal("number", 1)

    assert [1] == await stage.outcome(handle)
