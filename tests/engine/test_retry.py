"""A failed run is given another try: what failed is run again, what was done stays done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.engine import people
from outlive.engine import verbs as fanout
from outlive.errors import RetryRefused, RunCancelled, RunFailed, TimedOut
from outlive.model.events import Claimed, EffectDone, RunRetried, TimerFired
from outlive.testing.audit.auditor import JOURNAL_RULES
from tests.harness.theatre import Theatre
from tests.harness.world import note, pay, ring, world


async def failed(theatre: Theatre, flow: Any, *args: Any) -> App:
    """A run that has failed, and the app that drove it."""
    app = theatre.open()
    handle = await app.start(flow, *args, id="r")
    with pytest.raises(RunFailed):
        await theatre.outcome(handle)
    return app


async def again(theatre: Theatre, app: App, flow: Any, *args: Any) -> Any:
    """Its outcome, once it was tried again."""
    await app.retry("r", by="ann")
    outcome = await theatre.outcome(await app.start(flow, *args, id="r"))
    events = await theatre.events("r")
    assert not [words for rule in JOURNAL_RULES for words in rule(events)]
    return outcome


@outlive.effect(settle_after=0, timeout="1h")
async def send(name: str) -> str:
    """An effect with no undo."""
    world.ran.append(name)
    world.done[outlive.key()] = name
    return name


@outlive.flow
async def three_steps() -> list[str]:
    """The second one fails."""
    return [await note("a"), await send("letter"), await note("b"), await note("c")]


async def test_what_failed_is_run_again_and_nothing_else(theatre: Theatre) -> None:
    """In a new epoch; what was done before is taken from the journal."""
    world.breaks_before["b"] = [ValueError("b is down")]
    app = await failed(theatre, three_steps)
    world.breaks_before.clear()
    assert ["A", "letter", "B", "C"] == await again(theatre, app, three_steps)
    assert ["a", "letter", "b", "b", "c"] == world.ran
    (retried,) = await theatre.events("r", RunRetried)
    assert "ann" == retried.by
    epochs = [event.epoch for event in await theatre.events("r", Claimed)]
    assert epochs == sorted(set(epochs))
    assert len(epochs) > 1


async def test_it_may_fail_again_and_be_tried_again(theatre: Theatre) -> None:
    """As often as somebody wants."""
    world.breaks_before["b"] = [ValueError("b is down")]
    app = await failed(theatre, three_steps)
    for _ in range(2):
        with pytest.raises(RunFailed, match="b is down"):
            await again(theatre, app, three_steps)
    world.breaks_before.clear()
    assert ["A", "letter", "B", "C"] == await again(theatre, app, three_steps)
    assert 1 == world.ran.count("letter")


async def test_a_retried_run_survives_its_process_as_any_other(theatre: Theatre) -> None:
    """Replay goes through what counts, and no more."""
    world.breaks_before["b"] = [ValueError("b is down")]
    app = await failed(theatre, three_steps)
    await theatre.crash(app)
    world.breaks_before.clear()
    gate = world.hold("c")
    app = theatre.open()
    await app.retry("r")
    await app.start(three_steps, id="r")
    await theatre.until(lambda: "c" in world.ran)
    await theatre.crash(app)
    gate.set()
    world.bury()
    assert ["A", "letter", "B", "C"] == await theatre.outcome(
        await theatre.open().start(three_steps, id="r")
    )
    assert 1 == world.ran.count("letter")


@outlive.flow
async def side_by_side() -> list[str]:
    """One branch fails while the others go on."""
    done = await asyncio.gather(
        note("x"), send("y"), note("bad"), note("z"), return_exceptions=True
    )
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return [str(each) for each in done]


async def test_what_ended_after_the_failure_is_not_done_again(theatre: Theatre) -> None:
    """Outcomes of the other branches stay at hand."""
    gates = [world.hold(name) for name in ("x", "z")]
    world.breaks_before["bad"] = [ValueError("bad is down")]
    app = theatre.open()
    handle = await app.start(side_by_side, id="r")
    await theatre.until(lambda: "bad" in world.ran and len(world.ran) == 4)
    for gate in gates:
        gate.set()
    with pytest.raises(RunFailed):
        await theatre.outcome(handle)
    world.breaks_before.clear()
    assert ["X", "y", "BAD", "Z"] == await again(theatre, app, side_by_side)
    assert sorted(["x", "y", "bad", "z", "bad"]) == sorted(world.ran)


@outlive.flow
async def asks_first() -> str:
    """Fails after a human's answer and a signal."""
    try:
        await note("early")
    except ValueError:
        await people.ask("How many?", type=int)
        await people.wait_signal("s", str)
        await send("apology")
        raise
    return f"{await people.ask('How many?', type=int)} {await people.wait_signal('s', str)}"


async def test_answers_and_signals_from_before_still_count(theatre: Theatre) -> None:
    """A human is not asked twice; a signal is not lost."""
    world.breaks_before["early"] = [ValueError("early is down")]
    app = theatre.open()
    handle = await app.start(asks_first, id="r")
    question = await theatre.asked("r")
    await theatre.answer("r", question.question, b"3")
    await theatre.signal("r", "s", "hello")
    with pytest.raises(RunFailed):
        await theatre.outcome(handle)
    world.breaks_before.clear()
    assert "3 hello" == await again(theatre, app, asks_first)


async def test_a_flow_that_failed_by_itself_goes_on_with_mended_code(theatre: Theatre) -> None:
    """Everything that was recorded counts."""

    def made(is_mended: bool) -> Any:
        @outlive.flow(name="clumsy")
        async def clumsy() -> str:
            said = await note("a")
            if not is_mended:
                raise KeyError("typo")
            return said + await note("b")

        return clumsy

    app = await failed(theatre, made(False))
    await theatre.crash(app)
    assert "AB" == await again(theatre, theatre.open(), made(True))
    assert ["a", "b"] == world.ran


@outlive.flow(deadline="1h")
async def slow() -> str:
    """Misses its deadline."""
    await outlive.sleep("2h")
    return await note("late")


async def test_a_deadline_that_passed_has_had_its_say(theatre: Theatre) -> None:
    """The run goes on as if it had none."""
    app = theatre.open()
    handle = await app.start(slow, id="r")
    with pytest.raises(RunFailed, match="deadline"):
        await theatre.outcome(handle, 600)
    await app.retry("r")
    assert "LATE" == await theatre.outcome(await app.start(slow, id="r"), 600)


@outlive.flow
async def child_flow() -> str:
    """Fails of its step."""
    return await note("bad")


@outlive.flow
async def parent() -> str:
    """Fails because of its child."""
    return str(await fanout.call(child_flow))


async def test_a_child_is_tried_again_before_its_parent(theatre: Theatre) -> None:
    """The parent finds the new outcome when it asks again."""
    world.breaks_before["bad"] = [ValueError("bad is down")]
    app = await failed(theatre, parent)
    (child,) = [found.head.run_id for found in (await app.find()).items if found.head.run_id != "r"]
    world.breaks_before.clear()
    await app.retry(child)
    assert "BAD" == await theatre.outcome(await app.resume(child, [child_flow]))
    assert "BAD" == await again(theatre, app, parent)


@outlive.flow
async def regretting() -> None:
    """Undoes what it did."""
    await pay("rent")
    raise ValueError("no")


@outlive.flow
async def unknown() -> None:
    """Nobody knows whether the bell rang."""
    await ring("bell")


async def test_what_must_not_be_tried_again_is_refused_with_the_reason(theatre: Theatre) -> None:
    """Undone, done, cancelled, running, or perhaps done."""
    app = await failed(theatre, regretting)
    with pytest.raises(RetryRefused, match="its effects were undone; start another run"):
        await app.retry("r")

    await theatre.outcome(await app.start(three_steps, id="done"))
    with pytest.raises(RetryRefused, match="it is completed, and only failed runs"):
        await app.retry("done")

    handle = await app.start(slow, id="gone")
    with pytest.raises(RetryRefused, match=r"it is (waiting|running)"):
        await app.retry("gone")
    await theatre.cancel("gone")
    with pytest.raises(RunCancelled):
        await theatre.outcome(handle)
    with pytest.raises(RetryRefused, match="it is cancelled"):
        await app.retry("gone")


async def test_an_effect_that_may_have_happened_is_not_repeated(theatre: Theatre) -> None:
    """Not even when somebody asks for it: a key is for once."""
    world.breaks_after["bell"] = [ValueError("line cut")]
    app = theatre.open()
    handle = await app.start(unknown, id="r")
    await theatre.status("r", "in_doubt")
    await app.resolve("r", "0/ring#1", "fail")
    with pytest.raises(RunFailed):
        await theatre.outcome(handle)
    with pytest.raises(RetryRefused, match=r"0/ring#1, which happened or may have"):
        await app.retry("r")
    assert not await theatre.events("r", EffectDone)


async def test_two_who_try_at_once_try_once(theatre: Theatre) -> None:
    """The second is told."""
    world.breaks_before["b"] = [ValueError("b is down")]
    app = await failed(theatre, three_steps)
    tries = await asyncio.gather(
        theatre.open().retry("r"), theatre.open().retry("r"), return_exceptions=True
    )
    assert 1 <= sum(not isinstance(each, Exception) for each in tries) <= 2
    assert 1 == len(await theatre.events("r", RunRetried))
    await theatre.crash(app)


@outlive.flow
async def impatient() -> str:
    """Gives an effect ten minutes, then goes on without it."""
    try:
        async with people.timeout("10m"):
            return await pay("rent")
    except TimedOut:
        said = await note("late")
    await outlive.sleep("10h")
    return said


async def test_an_effect_tried_again_is_shielded_as_the_first_time(theatre: Theatre) -> None:
    """A limit that passes meanwhile waits for it, live as on replay."""
    world.breaks_before["rent"] = [ValueError("line cut")]
    app = await failed(theatre, impatient)
    gate = world.hold("rent")
    await app.retry("r")
    await app.start(impatient, id="r")
    await theatre.until(lambda: world.ran.count("rent") == 2)
    await theatre.has("r", TimerFired, step=60)
    assert "late" not in world.ran
    gate.set()
    await theatre.until(lambda: "late" in world.ran)
    await theatre.status("r", "waiting", "running", step=0)
    await theatre.crash(app)
    handle = await theatre.open().start(impatient, id="r")
    assert "LATE" == await theatre.outcome(handle, 600)
