"""Signals of another type than the flow waits for: refused, told, and no end of the run."""

from __future__ import annotations

import pytest

import outlive
from outlive.engine import people
from outlive.engine.waits import Waits
from outlive.errors import RunFailed, TimedOut, ValueRefused
from outlive.model.events import (
    EffectDone,
    Parked,
    QuestionAsked,
    Replied,
    SignalReceived,
    StepDone,
    TimerFired,
)
from outlive.model.mail import Signal
from outlive.views.timeline import timeline
from tests.harness.theatre import Theatre
from tests.harness.world import note, pay, world


@outlive.flow
async def booking() -> int:
    await pay("hotel")
    number: int = await people.wait_signal("paid", int)
    return number


@outlive.flow
async def reading() -> list[int]:
    await outlive.sleep("1h")
    return [await people.wait_signal("paid", int) for _ in range(2)]


@outlive.flow
async def impatient() -> str:
    try:
        return str(await people.wait_signal("paid", int, within="1h"))
    except TimedOut:
        return "never"


@outlive.flow
async def consoled(by: str) -> str:
    """As flows were written when they were told."""
    try:
        return str(await people.wait_signal("paid", int))
    except ValueRefused:
        if by == "step":
            await note("a word of comfort")
        elif by == "question":
            await people.ask("What now?", type=str)
        await outlive.sleep("1h")
        return "consoled"


async def refused(theatre: Theatre) -> list[str]:
    """The signals that were, by id."""
    return [event.signal_id for event in await theatre.events("r", Replied) if event.error]


async def test_a_signal_of_another_type_is_refused_and_the_flow_waits_on(
    theatre: Theatre, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is undone; whoever looks is told, and the right one is taken."""
    app = theatre.open()
    await app.start(booking, id="r")
    await theatre.has("r", EffectDone)
    await theatre.signal("r", "paid", "19.99", id="text")
    await theatre.post("r", "signal/json", Signal("paid", b'"five"', is_json=True))
    await theatre.has("r", Replied, 2)
    assert ["text", "json"] == await refused(theatre)
    assert "run r refuses signal text: $: str was sent, the flow waits for int" in caplog.text
    await theatre.crash(app)
    handle = await theatre.open().start(booking, id="r")
    await theatre.signal("r", "paid", 5)

    assert 5 == await theatre.outcome(handle)
    assert ["hotel"] == world.names() == world.ran
    rows = timeline("r", await theatre.events("r"))
    notes = [(row.note, row.error and row.error.type_name) for row in rows if row.what == "replied"]
    assert ("signal text is refused", "ValueRefused") == notes[0]


async def test_a_signal_that_was_kept_is_judged_when_it_is_taken(theatre: Theatre) -> None:
    """Nobody knew its type before; what is right among them keeps its order."""
    app = theatre.open()
    handle = await app.start(reading, id="r")
    for number, value in enumerate(["a", 1, None, 2, "z"]):
        await theatre.signal("r", "paid", value, id=f"s{number}")
    await theatre.has("r", SignalReceived, 5)
    assert [] == await refused(theatre)
    theatre.pass_time(3600)

    assert [1, 2] == await theatre.outcome(handle)
    assert ["s0", "s2"] == await refused(theatre)


async def test_a_limit_is_not_put_off_by_what_is_refused(theatre: Theatre) -> None:
    """It counts from the wait's beginning."""
    handle = await theatre.open().start(impatient, id="r")
    await theatre.has("r", Parked)
    for number in range(3):
        theatre.pass_time(1000)
        await theatre.signal("r", "paid", "soon", id=f"s{number}")
        await theatre.has("r", Replied, number + 1)
    assert [] == await theatre.events("r", TimerFired)
    theatre.pass_time(700)

    assert "never" == await theatre.outcome(handle)


async def test_what_was_refused_stays_refused_when_the_type_is_another_later(
    stage: Theatre,
) -> None:
    """The journal counts: the flow goes on as it did, and takes the next one."""

    def taking(hint: type) -> outlive.Flow[[], str]:
        @outlive.flow(name="taking")
        async def take() -> str:
            first = await people.wait_signal("paid", hint)
            await note("taken")
            await people.wait_signal("go")
            return str(first)

        return take

    app = stage.open()
    await app.start(taking(int), id="r")
    await stage.signal("r", "paid", "much")
    await stage.has("r", Replied)
    await stage.crash(app)
    handle = await stage.open().start(taking(object), id="r")
    await stage.signal("r", "paid", 5)
    await stage.signal("r", "go", None)

    assert "5" == await stage.outcome(handle)


@pytest.mark.parametrize(("by", "sign"), [("step", StepDone), ("question", QuestionAsked)])
async def test_a_flow_that_was_told_by_an_earlier_release_is_told_again(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch, by: str, sign: type
) -> None:
    """It went on from there, so a replay must."""
    await _with_an_earlier_release(theatre, monkeypatch, by, sign)
    handle = await theatre.open().start(consoled, by, id="r")
    if by == "question":
        await theatre.answer("r", "0/ask#1", b'"wait"')

    assert "consoled" == await theatre.outcome(handle, step=60)
    assert [] == await refused(theatre)


async def test_a_flow_that_was_told_and_sleeps_since_wakes_up(
    stage: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it left memory shows that it had gone on."""
    await _with_an_earlier_release(stage, monkeypatch, "sleep", Parked)
    handle = await stage.open().start(consoled, "sleep", id="r")
    await stage.signal("r", "paid", 7)
    await stage.has("r", SignalReceived, 2)
    stage.pass_time(3601)

    assert "consoled" == await stage.outcome(handle)


async def _with_an_earlier_release(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch, by: str, sign: type
) -> None:
    """A flow is told of a signal of another type, goes on, and its process dies."""
    with monkeypatch.context() as patched:
        patched.setattr(Waits, "may_refuse", False)
        app = theatre.open()
        await app.submit(consoled, by, id="r")
        await theatre.signal("r", "paid", "much")
        await app.start(consoled, by, id="r")
        await theatre.has("r", sign)
        await theatre.crash(app)


async def test_a_run_that_such_a_signal_has_ended_is_rescued_by_another_try(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier releases failed again and again: it stayed the first."""

    @outlive.flow
    async def plain() -> int:
        number: int = await people.wait_signal("paid", int)
        return number

    app = theatre.open()
    with monkeypatch.context() as patched:
        patched.setattr(Waits, "may_refuse", False)
        handle = await app.start(plain, id="r")
        await theatre.signal("r", "paid", "much")
        for _ in range(2):
            with pytest.raises(RunFailed, match="ValueRefused"):
                await theatre.outcome(handle)
            await app.retry("r")
            await theatre.signal("r", "paid", 5)
            handle = await app.start(plain, id="r")
        with pytest.raises(RunFailed, match="ValueRefused"):
            await theatre.outcome(handle)
    await app.retry("r")

    assert 5 == await theatre.outcome(await app.start(plain, id="r"))
    assert 1 == len(await refused(theatre))
