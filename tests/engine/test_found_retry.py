"""Runs that are tried again, and who else is concerned by that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.engine import verbs as fanout
from outlive.errors import ReplayMismatch, RunCancelled, RunFailed
from outlive.model.events import (
    ChildIntended,
    ChildSpawned,
    DeadlinePassed,
    EffectDone,
    EffectIntended,
    EffectRaised,
    Fault,
    Parked,
    RunRetried,
    StepRaised,
)
from outlive.model.replay import past_of
from outlive.testing.audit.auditor import JOURNAL_RULES
from tests.harness.theatre import Theatre, breathe
from tests.harness.world import note, world


@outlive.flow
async def noting() -> str:
    return await note("bad")


@outlive.flow
async def calling() -> str:
    return str(await fanout.call(noting))


@outlive.flow(deadline="1h")
async def limited() -> str:
    await note("bad")
    await outlive.sleep("5h")
    return "late"


@outlive.effect(settle_after=0, timeout="10h")
async def long_effect(name: str) -> str:
    world.ran.append(name)
    await world.gate(name)
    if world.breaks_before.get(name):
        raise outlive.NotHappened("not today")
    return name


@outlive.flow(deadline="1h")
async def overdue() -> str:
    return await long_effect("bad")


@outlive.flow
async def beside() -> list[Any]:
    done = await asyncio.gather(note("bad"), note("worse"), return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return done


@outlive.effect(key="the only one", settle_after=0, timeout="1h")
async def keyed() -> str:
    world.ran.append("keyed")
    await world.gate("keyed")
    if world.breaks_before.get("keyed"):
        raise outlive.NotHappened("not today")
    return "done"


@outlive.flow
async def holding() -> str:
    return await keyed()


@outlive.flow
async def wanting() -> str:
    return await keyed()


async def failed(theatre: Theatre, flow: Any, *bad: str) -> App:
    """A run that has failed of these, which are cured, and the app that drove it."""
    for name in bad:
        world.breaks_before[name] = [ValueError(f"{name} is down")]
    app = theatre.open()
    with pytest.raises(RunFailed):
        await theatre.outcome(await app.start(flow, id="r"))
    world.breaks_before.clear()
    return app


async def child_in(app: App) -> str:
    """The id of the only other run."""
    (child,) = [each.head.run_id for each in (await app.find()).items if each.head.run_id != "r"]
    return child


async def test_a_parent_hears_of_a_child_that_ended_well_meanwhile(theatre: Theatre) -> None:
    """A parent that is tried again after its child was, and ended, gets the new outcome."""
    app = await failed(theatre, calling, "bad")
    child = await child_in(app)
    await app.retry(child)
    assert "BAD" == await theatre.outcome(await app.resume(child, [noting]))

    await app.retry("r")

    assert "BAD" == await theatre.outcome(await app.start(calling, id="r"))


async def test_a_parent_hears_of_a_child_that_was_tried_again_first(theatre: Theatre) -> None:
    """A parent that is tried again while its child is gets the child's new outcome."""
    app = await failed(theatre, calling, "bad")
    child = await child_in(app)
    gate = world.hold("bad")
    count = len(world.ran)
    await app.retry(child)
    child_handle = await app.resume(child, [noting])
    await theatre.until(lambda: len(world.ran) > count)
    await app.retry("r")
    handle = await app.start(calling, id="r")
    await theatre.has("r", ChildSpawned, 2)

    gate.set()

    assert "BAD" == await theatre.outcome(child_handle)
    assert "BAD" == await theatre.outcome(handle)


async def test_a_deadline_to_come_holds_for_the_next_try(theatre: Theatre) -> None:
    """A run that failed before its deadline is still bound by it when it is tried again."""
    app = await failed(theatre, limited, "bad")
    await app.retry("r")
    handle = await app.start(limited, id="r")

    with pytest.raises(RunFailed, match="deadline"):
        await theatre.outcome(handle, 300)


async def test_a_deadline_that_an_effect_outlasted_is_what_the_run_failed_of(
    theatre: Theatre,
) -> None:
    """After a deadline the effect that it cut off, and that did not happen, is tried again."""
    gate = world.hold("bad")
    world.breaks_before["bad"] = [ValueError("bad is down")]
    app = theatre.open()
    handle = await app.start(overdue, id="r")
    await theatre.until(lambda: "bad" in world.ran)
    await theatre.has("r", DeadlinePassed, step=60)
    gate.set()
    with pytest.raises(RunFailed, match="deadline"):
        await theatre.outcome(handle)
    world.breaks_before.clear()

    await app.retry("r")

    assert "bad" == await theatre.outcome(await app.start(overdue, id="r"))


async def test_two_failures_side_by_side_take_one_try(theatre: Theatre) -> None:
    """Calls that failed beside each other are all made again, though the run raised only one."""
    app = await failed(theatre, beside, "bad", "worse")

    await app.retry("r")

    assert ["BAD", "WORSE"] == await theatre.outcome(await app.start(beside, id="r"))


async def test_a_key_is_free_for_the_next_after_a_second_try(theatre: Theatre) -> None:
    """Who shares a key takes the outcome of the last try, not of the one that failed."""
    app = await failed(theatre, holding, "keyed")
    await app.retry("r")

    assert "done" == await theatre.outcome(await app.start(holding, id="r"))
    assert "done" == await theatre.outcome(await app.start(wanting, id="other"))
    assert 2 == world.ran.count("keyed")


async def test_a_key_that_is_tried_again_is_waited_for(theatre: Theatre) -> None:
    """Who wants a key while its holder tries again waits for the outcome of that."""
    app = await failed(theatre, holding, "keyed")
    gate = world.hold("keyed")
    await app.retry("r")
    holder = await app.start(holding, id="r")
    await theatre.until(lambda: 2 == world.ran.count("keyed"))
    other = await app.start(wanting, id="other")
    for _ in range(50):
        theatre.pass_time(0.05)
        await breathe()

    gate.set()

    assert "done" == await theatre.outcome(holder)
    assert "done" == await theatre.outcome(other)
    assert 2 == world.ran.count("keyed")


@outlive.flow(name="mended")
async def before() -> str:
    try:
        await note("bad")
    except ValueError:
        await note("known")
        raise
    return "ok"


@outlive.flow(name="mended")
async def after() -> str:
    await note("bad")
    task = asyncio.current_task()
    assert task is not None
    stopping = asyncio.ensure_future(_cancel(task))
    try:
        await note("known")
    except asyncio.CancelledError:
        task.uncancel()
    await stopping
    await note("rest")
    return "ok"


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()


async def test_a_known_outcome_does_not_come_to_a_call_that_was_given_up(theatre: Theatre) -> None:
    """What was done before the failure is not delivered to a call that mended code cancels."""
    app = await failed(theatre, before, "bad")
    await theatre.crash(app)
    app = theatre.open()

    await app.retry("r")

    assert "ok" == await theatre.outcome(await app.start(after, id="r"))


@outlive.flow
async def telling_what_is_known() -> None:
    """What one branch sends depends on what the other has heard by then."""
    heard: list[str] = []

    async def listen() -> None:
        heard.append(await note("slow"))

    async def call() -> None:
        try:
            await fanout.call(noting)
        except RunFailed:
            await long_effect(heard[-1] if heard else "nothing yet")
            raise

    for each in await asyncio.gather(listen(), call(), return_exceptions=True):
        if each is not None:
            raise each


async def test_an_effect_that_a_retry_asks_for_otherwise_is_shown_as_a_mismatch(
    theatre: Theatre,
) -> None:
    """It is not performed again; the run says both sides and the remedy, and can be cancelled."""
    slow = world.hold("slow")
    world.breaks_before["bad"] = [ValueError("bad is down")]
    app = theatre.open()
    handle = await app.start(telling_what_is_known, id="r")
    await theatre.has("r", EffectDone)
    slow.set()
    with pytest.raises(RunFailed):
        await theatre.outcome(handle)

    await app.retry("r")
    handle = await app.resume("r", [telling_what_is_known, noting])
    with pytest.raises(ReplayMismatch) as caught:
        await theatre.outcome(handle)
    await theatre.cancel("r")
    with pytest.raises(RunCancelled):
        await theatre.outcome(await app.resume("r", [telling_what_is_known, noting]), step=5)

    reasons = [event.reason for event in await theatre.events("r", Parked) if event.reason]
    assert reasons[0].startswith("mismatch: run r")
    assert "0.2/long_effect#1 with other arguments" in caught.value.code
    assert "- name='nothing yet'\n+ name='SLOW'" in str(caught.value)
    assert "cancel this run and start another" in caught.value.remedy
    (raised,) = await theatre.events("r", EffectRaised)
    assert raised.happened is None
    assert ["nothing yet"] == [each for each in world.ran if each not in ("slow", "bad")]


def test_a_retry_compares_an_effect_with_the_attempt_that_was_done() -> None:
    """Not with one that did not happen, which mended code may ask for with other arguments."""
    fault = Fault("NotHappened", "not today")
    events = [
        StepRaised(1, "0.1/note#1", 1, b"", b"", fault),
        EffectIntended(2, "0.2/send#1", 1, b"first", b"", "", 9),
        EffectRaised(3, "0.2/send#1", 1, fault, happened=False),
        RunRetried(4, 1, "ann"),
        EffectIntended(5, "0.2/send#1", 1, b"second", b"", "", 9),
        EffectIntended(6, "0.2/send#1", 2, b"", b"of the second", "", 9),
        EffectDone(7, "0.2/send#1", 2, b""),
        RunRetried(8, 5, "ann"),
    ]

    assert (5, events[4]) == past_of(events, 1).intents["0.2/send#1"]


@outlive.flow
async def resting() -> None:
    await outlive.sleep("5h")


@outlive.flow
async def calling_two() -> None:
    """Gives up on its second child when it fails of its first."""
    try:
        await fanout.call(noting)
    except RunFailed:
        second = asyncio.ensure_future(fanout.call(resting))
        await outlive.sleep("1s")
        second.cancel()
        raise


async def test_a_child_that_a_retry_calls_again_is_intended_again(theatre: Theatre) -> None:
    """What came after the failure is not replayed: a replay compares the call with a new intent."""
    app = await failed(theatre, calling_two, "bad")
    await app.retry("r")
    with pytest.raises(RunFailed, match="bad is down"):
        await theatre.outcome(await app.resume("r", [calling_two, noting, resting]))

    events = await theatre.events("r")
    since = next(n for n, event in enumerate(events) if isinstance(event, RunRetried))
    again = [event for event in events[since:] if isinstance(event, ChildIntended)]
    assert ["0.1/call:resting#1"] == [event.step for event in again]
    assert not [words for rule in JOURNAL_RULES for words in rule(events)]
