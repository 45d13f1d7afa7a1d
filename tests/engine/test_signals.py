"""Signals: kept until somebody waits, one each, in order, whoever drives the run meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

import outlive
from outlive.engine import people
from outlive.engine.definitions import registry
from outlive.engine.inputs import decode_as, encode_own
from outlive.engine.place import branch_for
from outlive.errors import TimedOut, ValueRefused
from outlive.journal.codec.codec import codec_for
from outlive.model.events import MailRead, SignalReceived, TimerFired
from outlive.model.mail import Signal
from tests.harness.theatre import Theatre
from tests.harness.world import note, world


@dataclass
class Order:
    number: int
    items: list[str]


@outlive.flow
async def collect(count: int) -> list[int]:
    return [await people.wait_signal("s", int) for _ in range(count)]


@outlive.flow
async def typed() -> str:
    order = await people.wait_signal("order", Order)
    return f"{order.number} {order.items}"


@outlive.flow
async def late_reader() -> list[str]:
    got = await note("first")
    await outlive.sleep("1h")
    return [got, await people.wait_signal("a", str), await people.wait_signal("b", str)]


@outlive.flow
async def rivals() -> list[str]:
    async def one(name: str) -> str:
        value: str = await people.wait_signal("s", str)
        return f"{name} {value}"

    return list(await asyncio.gather(*(one(name) for name in "abc")))


@outlive.flow
async def impatient() -> list[str]:
    async def other() -> str:
        value: str = await people.wait_signal("s", str)
        return f"other {value}"

    waiting = asyncio.create_task(other())
    try:
        first = await people.wait_signal("s", str, within="1m")
    except TimedOut:
        first = "none"
    return [first, await waiting, await people.wait_signal("s", str)]


@outlive.flow
async def given_up() -> list[str]:
    async def loser() -> str:
        value: str = await people.wait_signal("s", str)
        return value

    losing = asyncio.create_task(loser())
    await people.wait_signal("stop", str)
    losing.cancel()
    await asyncio.wait([losing])
    return [str(losing.cancelled()), await people.wait_signal("s", str)]


@outlive.flow
async def handed_on() -> list[str]:
    """A waiter is cancelled in the very turn in which its signal has come."""
    got: list[str] = []

    async def waiter(name: str) -> None:
        got.append(f"{name} {await people.wait_signal('s', str)}")

    cancelled = asyncio.create_task(waiter("cancelled"))
    await asyncio.sleep(0)
    waits: Any = branch_for("a test").drive._waits  # type: ignore[attr-defined]
    waits.deliver(SignalReceived(0, "s", "x", encode_own("put back"), False))
    cancelled.cancel()
    await asyncio.wait([cancelled])
    await waiter("next")
    return got


async def test_signals_come_in_their_order(theatre: Theatre) -> None:
    """However many come at once, and however often the run leaves memory between them."""
    handle = await theatre.open().start(collect, 40, id="r")
    for number in range(10):
        await theatre.signal("r", "s", number)
        await theatre.has("r", SignalReceived, number + 1)
    for number in range(10, 40):
        await theatre.signal("r", "s", number)

    assert list(range(40)) == await theatre.outcome(handle)


async def test_a_thousand_letters_at_once(stage: Theatre) -> None:
    """A run that slept finds them all, and reads them without end of breath."""
    handle = await stage.open().start(collect, 1000, id="r")
    await stage.status("r", "waiting")
    for number in range(1000):
        await stage.signal("r", "s", number)

    assert list(range(1000)) == await stage.outcome(handle)


async def test_signals_sent_before_anybody_waits_are_kept(theatre: Theatre) -> None:
    """Also those sent before the run was ever claimed, and those of another name."""
    app = theatre.open()
    await app.submit(late_reader, id="r")
    assert "posted" == await theatre.signal("r", "b", "beta")
    handle = await app.start(late_reader, id="r")
    await theatre.has("r", SignalReceived)
    assert "posted" == await theatre.signal("r", "a", "alpha")
    theatre.pass_time(3600)

    assert ["FIRST", "alpha", "beta"] == await theatre.outcome(handle)
    assert ["first"] == world.ran


async def test_a_signal_has_the_type_that_is_waited_for(theatre: Theatre) -> None:
    """Sent by a program as a value, or by a person as JSON."""
    app = theatre.open()
    sent = await app.start(typed, id="sent")
    await theatre.signal("sent", "order", Order(7, ["pen"]))
    written = await app.start(typed, id="written")
    json = Signal("order", b'{"number": 8, "items": []}', is_json=True)
    await theatre.post("written", "signal/1", json)

    assert "7 ['pen']" == await theatre.outcome(sent)
    assert "8 []" == await theatre.outcome(written)


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, 1, "1"),
        (float, 1, "1"),
        (int | None, None, "x"),
        (list[int], [1], {"a": 1}),
        (Literal["a", "b"], "a", "c"),
        (Annotated[str, "note"], "x", 1),
        (Order | None, Order(1, []), 1),
        (Any, {"a": 1}, None),
    ],
    ids=str,
)
def test_the_outside_of_a_value_is_looked_at(hint: Any, good: object, bad: object) -> None:
    """What a program sends under a name is of the type that is waited for, or refused."""
    sent = decode_as(hint, codec_for([hint, Order], registry).encode(good), is_json=False)
    assert good == sent
    if bad is not None:
        with pytest.raises(ValueRefused):
            decode_as(hint, encode_own(bad), is_json=False)


async def test_several_waiters_get_one_each_in_the_order_of_their_waiting(
    theatre: Theatre,
) -> None:
    """Whoever waits longest is served first."""
    handle = await theatre.open().start(rivals, id="r")
    await theatre.status("r", "waiting")
    for value in "123":
        await theatre.signal("r", "s", value)
        await theatre.has("r", SignalReceived, int(value))

    assert ["a 1", "b 2", "c 3"] == await theatre.outcome(handle)


async def test_whoever_gave_up_waiting_takes_nothing(theatre: Theatre) -> None:
    """A waiter that was cancelled, or whose limit passed, leaves the signal to the next."""
    app = theatre.open()
    handle = await app.start(given_up, id="cancelled")
    await theatre.signal("cancelled", "stop", "x")
    await theatre.has("cancelled", SignalReceived)
    await theatre.signal("cancelled", "s", "mine")
    assert ["True", "mine"] == await theatre.outcome(handle)

    handle = await app.start(impatient, id="late")
    await theatre.has("late", TimerFired, step=10)
    await theatre.signal("late", "s", "one")
    await theatre.signal("late", "s", "two")
    assert ["none", "other one", "two"] == await theatre.outcome(handle)


async def test_a_signal_that_just_came_to_a_cancelled_waiter_is_handed_on(stage: Theatre) -> None:
    """It is the next one's: no signal is lost between two turns of a flow."""
    handle = await stage.open().start(handed_on, id="r")

    assert ["next put back"] == await stage.outcome(handle)


async def test_a_second_signal_of_one_id_is_refused_at_the_door(theatre: Theatre) -> None:
    """Whether the first was read, or the run is over."""
    handle = await theatre.open().start(collect, 2, id="r")

    assert "posted" == await theatre.signal("r", "s", 1, id="once")
    assert "already" == await theatre.signal("r", "s", 1, id="once")
    await theatre.has("r", SignalReceived)
    assert "already" == await theatre.signal("r", "s", 1, id="once")
    await theatre.signal("r", "s", 2)
    assert [1, 2] == await theatre.outcome(handle)
    assert "already" == await theatre.signal("r", "s", 1, id="once")
    assert "ended" == await theatre.signal("r", "s", 3)
    assert "unknown" == await theatre.signal("nobody", "s", 3)


async def test_signals_survive_the_death_of_their_reader(theatre: Theatre) -> None:
    """What a dead driver read is in the journal; what it did not read is read by the next."""
    app = theatre.open()
    await app.start(collect, 6, id="r")
    for number in range(3):
        await theatre.signal("r", "s", number)
    await theatre.has("r", SignalReceived, 2)
    await theatre.crash(app)
    for number in range(3, 6):
        await theatre.signal("r", "s", number)
    handle = await theatre.open().start(collect, 6, id="r")

    assert list(range(6)) == await theatre.outcome(handle)
    assert 6 == len(await theatre.events("r", SignalReceived))
    assert [] == await theatre.events("r", MailRead)
