"""Requests: a reply per message, once, however often the flow that gives it is replayed."""

from __future__ import annotations

import outlive
from outlive.engine import people
from outlive.engine.inputs import decode_as
from outlive.model.events import Parked, Replied, SignalReceived, TimerFired
from outlive.model.mail import Signal
from tests.harness.theatre import Theatre
from tests.harness.world import note, pay, world


@outlive.flow
async def desk(idle: str) -> int:
    served = 0
    async for request in people.requests("message", type=str, idle=idle):
        served += 1
        if request.value == "bye":
            await request.reply("bye")
            break
        await request.reply(f"{served}: {await note(request.value)}")
    return served


@outlive.flow
async def careful() -> str:
    async for request in people.requests("message", type=str):
        receipt = await pay(request.value)
        await request.reply(f"paid {receipt}")
        await request.reply("never mind")
        return request.id
    return "nobody came"


async def replies(theatre: Theatre) -> dict[str, str]:
    """Who got which reply; nobody may get two."""
    found = await theatre.events("r", Replied)
    by_id = {event.signal_id: decode_as(str, event.value, is_json=False) for event in found}
    assert len(by_id) == len(found)
    return by_id


async def test_every_message_gets_its_reply(theatre: Theatre) -> None:
    """One after the other, though the run leaves memory in between."""
    handle = await theatre.open().start(desk, "1d", id="r")
    for number in range(5):
        await theatre.signal("r", "message", f"m{number}", id=f"id{number}")
        await theatre.has("r", Replied, number + 1)
    await theatre.signal("r", "message", "bye", id="last")

    assert 6 == await theatre.outcome(handle)
    served = {f"id{number}": f"{number + 1}: M{number}" for number in range(5)}
    assert {**served, "last": "bye"} == await replies(theatre)
    assert [f"m{number}" for number in range(5)] == world.ran


async def test_many_messages_at_once_are_served_in_their_order(theatre: Theatre) -> None:
    """Those that come while one is served wait for their turn."""
    handle = await theatre.open().start(desk, "1d", id="r")
    for number in range(20):
        await theatre.signal("r", "message", f"m{number}", id=f"id{number}")
    await theatre.signal("r", "message", "bye", id="last")

    assert 21 == await theatre.outcome(handle)
    assert [f"m{number}" for number in range(20)] == world.ran
    assert 21 == len(await replies(theatre))


async def test_a_desk_closes_when_nobody_comes(theatre: Theatre) -> None:
    """The idle time counts from the last message, through any restart."""
    app = theatre.open()
    await app.start(desk, "1h", id="r")
    await theatre.has("r", Parked)
    theatre.pass_time(3000)
    await theatre.signal("r", "message", "hello", id="only")
    await theatre.has("r", Replied)
    await theatre.has("r", Parked, 2)
    await theatre.crash(app)
    theatre.pass_time(3000)
    handle = await theatre.open().start(desk, "1h", id="r")
    assert [] == await theatre.events("r", TimerFired)
    theatre.pass_time(601)

    assert 1 == await theatre.outcome(handle)
    assert ["hello"] == world.ran


async def test_a_reply_is_given_once_though_the_driver_died_before_it(theatre: Theatre) -> None:
    """Between request and reply the process is killed; who asked gets one reply, of the next."""
    app = theatre.open()
    world.hold("rent")
    await app.start(careful, id="r")
    await theatre.signal("r", "message", "rent", id="q")
    await theatre.until(lambda: world.ran)
    await theatre.crash(app)
    assert [] == await theatre.events("r", Replied)
    world.bury()

    handle = await theatre.open().start(careful, id="r")
    assert "q" == await theatre.outcome(handle)
    assert {"q": "paid rent"} == await replies(theatre)
    assert 1 == len(await theatre.events("r", SignalReceived))


async def test_a_reply_that_was_lost_with_its_driver_is_owed(theatre: Theatre) -> None:
    """The flow had replied, nobody wrote it down: the replay does, once."""

    @outlive.flow
    async def replying() -> str:
        async for request in people.requests("message", type=str):
            await note("before")
            await request.reply("yes")
            await outlive.sleep("1h")
            break
        return "closed"

    app = theatre.open()
    await app.start(replying, id="r")
    gate = world.hold("before")
    await theatre.signal("r", "message", "x", id="q")
    await theatre.until(lambda: world.ran)
    door = theatre.doors[app]

    def slam_at_commit(verb: str) -> None:
        if verb == "commit":
            door.slam()

    door.on_call = slam_at_commit
    gate.set()
    await theatre.until(lambda: door.error is not None, step=0)
    assert [] == await theatre.events("r", Replied)
    world.gates.clear()
    handle = await theatre.open().start(replying, id="r")
    await theatre.has("r", Replied)
    theatre.pass_time(3600)

    assert "closed" == await theatre.outcome(handle)
    assert {"q": "yes"} == await replies(theatre)


async def test_a_message_of_another_type_is_answered_with_the_reason(theatre: Theatre) -> None:
    """It does not reach the flow, and keeps nobody else from being served."""
    handle = await theatre.open().start(desk, "1d", id="r")
    await theatre.signal("r", "message", 7, id="wrong")
    await theatre.signal("r", "message", "right", id="right")
    await theatre.post("r", "signal/odd", Signal("message", b"{", is_json=True))
    await theatre.signal("r", "message", "bye", id="last")

    assert 2 == await theatre.outcome(handle)
    replied = {event.signal_id: event for event in await theatre.events("r", Replied)}
    assert {"wrong", "right", "odd", "last"} == set(replied)
    assert {"odd", "wrong"} == {key for key, event in replied.items() if event.error is not None}
    assert ["right"] == world.ran
