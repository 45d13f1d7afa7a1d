"""Children and their parents: ended together, told of once, whoever dies in between."""

from __future__ import annotations

import asyncio
import sys
import threading
from dataclasses import dataclass
from typing import Any

import pytest

import outlive
from outlive.engine import people
from outlive.engine import verbs as fanout
from outlive.errors import (
    ReplayMismatch,
    RunCancelled,
    StoreUnavailable,
    TimedOut,
    ValueRefused,
)
from outlive.journal import lane as immediate
from outlive.journal.lane import run_immediate
from outlive.model.events import (
    CancelRequested,
    ChildEnded,
    ChildIntended,
    ChildSpawned,
    MailRead,
    ParentTold,
    Parked,
    RunCompleted,
    RunStarted,
)
from tests.engine.kids import calling, child, child_of, patient, sleepy
from tests.harness.theatre import Theatre, breathe
from tests.harness.world import note, pay, world

# ---------------------------------------------------------------- ending with their parent


@pytest.mark.parametrize("how", ["cancel", "limit", "deadline", "error", "return"])
async def test_children_end_with_their_parent(theatre: Theatre, how: str) -> None:
    """However it ends: those that it waited for are cancelled, and undo what they did."""

    @outlive.flow
    async def helper(name: str) -> None:
        await pay(name)
        await people.wait_signal("never")

    async def bodies() -> str:
        tasks = [asyncio.create_task(fanout.call(helper, name)) for name in "ab"]
        await people.wait_signal("go")
        if how == "error":
            raise ValueError("no good")
        if how == "limit":
            try:
                async with people.timeout("1m"):
                    await asyncio.gather(*tasks)
            except TimedOut:
                return "timed out"
        if how == "return":
            return "returned"
        await asyncio.gather(*tasks)
        return "never"

    flow = outlive.flow(name="parent", deadline="2h" if how == "deadline" else None)(bodies)
    handle = await theatre.open().start(flow, id="r")
    await theatre.has("r", ChildSpawned, 2)
    await theatre.until(lambda: len(world.done) == 2)
    await theatre.signal("r", "go", 1)
    if how == "cancel":
        await theatre.cancel("r")
    waiting = asyncio.ensure_future(handle.outcome())
    await theatre.until(waiting.done, step=100 if how == "deadline" else 1)
    children = [event.child_id for event in await theatre.events("r", ChildIntended)]
    for child_id in children:
        await theatre.status(child_id, "cancelled")
        (cancel,) = await theatre.events(child_id, CancelRequested)
        assert "run r" == cancel.by

    assert {} == world.done
    assert how in ("limit", "return") or waiting.exception() is not None


async def test_a_child_that_was_about_to_begin_never_begins(theatre: Theatre) -> None:
    """Its parent was cancelled between intent and start."""
    app = theatre.open()

    @outlive.flow
    async def parent() -> str:
        await people.wait_signal("go")
        return str(await fanout.call(child, "x"))

    await app.submit(parent, id="r")
    await theatre.signal("r", "go", 1)
    await theatre.cancel("r")
    handle = await app.start(parent, id="r")
    with pytest.raises(RunCancelled):
        await theatre.outcome(handle)

    (ended,) = await theatre.events("r", ChildEnded)
    assert "cancelled" == ended.status
    assert await theatre.read(ended.child_id) is None
    assert [] == world.ran


async def test_a_cancellation_is_passed_on_though_the_parent_dies(theatre: Theatre) -> None:
    """The parent does not end before its children have been told, whoever drives it."""
    app = theatre.open()
    await app.start(patient, id="r")
    child_id = await child_of(theatre)
    await theatre.has(child_id, Parked)
    await theatre.has("r", Parked)
    door = theatre.doors[app]
    door.on_call = lambda verb: door.slam() if verb == "post" else None
    await theatre.cancel("r")
    await theatre.until(lambda: door.error is not None)
    assert [] == await theatre.events(child_id, CancelRequested)
    assert "cancelled" != (await theatre.fold("r")).status
    handle = await theatre.open().start(patient, id="r")

    with pytest.raises(RunCancelled):
        await theatre.outcome(handle)
    await theatre.status(child_id, "cancelled")


async def test_a_child_is_stopped_only_for_what_is_durable(
    stage: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the parent's reason is not on the disk, the child is not told: it can't be untold."""
    monkeypatch.setattr(immediate, "QUICK_TIMES", sys.maxsize)  # commits are held on a thread
    app = stage.open()
    handle = await app.start(patient, id="r")
    child_id = await child_of(stage)
    await stage.has("r", Parked)
    door = stage.doors[app]
    is_free, posted = threading.Event(), list[str]()

    def hold_commits(verb: str) -> None:
        if verb == "post":
            posted.append(verb)
        reading: Any = run_immediate(stage.read("r")) if verb == "commit" else None
        if reading is not None and reading.head.worker:
            is_free.wait(20)

    door.on_call = hold_commits
    await stage.cancel("r")
    for _ in range(50):
        stage.pass_time(0.05)
        await breathe()
    assert [] == posted
    assert [] == await stage.events("r", CancelRequested)
    is_free.set()

    with pytest.raises(RunCancelled):
        await stage.outcome(handle)
    await stage.status(child_id, "cancelled")


async def test_a_store_out_of_reach_for_a_moment_keeps_no_cancellation(stage: Theatre) -> None:
    """Posting it is repeated until it is posted."""
    app = stage.open()
    handle = await app.start(patient, id="r")
    child_id = await child_of(stage)
    await stage.has("r", Parked)
    stage.doors[app].faults["post"] = [StoreUnavailable("locked")] * 3
    await stage.cancel("r")
    with pytest.raises(RunCancelled):
        await stage.outcome(handle)

    await stage.status(child_id, "cancelled")
    assert [] == stage.doors[app].faults["post"]


# ---------------------------------------------------------------- who tells the parent


async def test_a_parent_is_told_though_the_childs_driver_died_first(theatre: Theatre) -> None:
    """Between the outcome and the telling: whoever claims the child next tells."""
    app = theatre.open()
    door = theatre.doors[app]
    door.on_call = lambda verb: door.slam() if verb == "post" else None
    await app.start(calling, "x", id="r")
    child_id = await child_of(theatre)
    await theatre.until(lambda: door.error is not None)
    assert 1 == len(await theatre.events(child_id, RunCompleted))
    run = await theatre.fold(child_id)
    assert ("completed", True, None) == (run.status, run.tells_parent, run.ended_at)
    handle = await theatre.open().start(calling, "x", id="r")

    assert "parent of child X" == await theatre.outcome(handle)
    assert ["x"] == world.ran
    assert "completed" == (await theatre.fold(child_id)).status
    assert 1 == len(await theatre.events(child_id, ParentTold))


async def test_a_child_that_ended_is_shown_as_such_though_it_is_claimed_again(
    theatre: Theatre,
) -> None:
    """That its parent has to be told is no news to those who look at it."""
    app = theatre.open()
    door = theatre.doors[app]
    door.on_call = lambda verb: door.slam() if verb == "post" else None
    await app.start(calling, "x", id="r")
    child_id = await child_of(theatre)
    await theatre.until(lambda: door.error is not None)
    again = theatre.open()
    statuses: list[str] = []
    watched = theatre.doors[again]

    def look(verb: str) -> None:
        reading = theatre.store._journals[child_id] if theatre._file is None else None
        if reading is not None:
            statuses.append(reading.header.status)

    watched.on_call = look
    await theatre.outcome(await again.start(calling, "x", id="r"))
    assert {"completed"} >= set(statuses)


async def test_news_that_nobody_waits_for_changes_nothing(theatre: Theatre) -> None:
    """The parent gave the child up, and reads of its end later."""

    @outlive.flow
    async def hasty() -> str:
        try:
            async with people.timeout("1m"):
                await fanout.call(sleepy, 3600)
        except TimedOut:
            pass
        return str(await people.wait_signal("end", str))

    handle = await theatre.open().start(hasty, id="r")
    child_id = await child_of(theatre)
    await theatre.has("r", Parked)
    theatre.pass_time(61)
    await theatre.status(child_id, "cancelled")
    await theatre.has("r", ChildEnded)
    await theatre.signal("r", "end", "the end")

    assert "the end" == await theatre.outcome(handle)
    assert [] == await theatre.events("r", MailRead)


async def test_a_child_may_be_started_twice_and_is_one(theatre: Theatre) -> None:
    """The driver died between the child's start and its own next word."""
    app = theatre.open()
    door = theatre.doors[app]
    world.hold("x")

    def slam_when_started(verb: str) -> None:
        intended = run_immediate(theatre.events("r", ChildIntended))
        if verb == "commit" and intended and run_immediate(theatre.read(intended[0].child_id)):
            door.slam()

    door.on_call = slam_when_started
    await app.start(calling, "x", id="r")
    await theatre.until(lambda: door.error is not None)
    assert [] == await theatre.events("r", ChildSpawned)
    child_id = await child_of(theatre)
    world.bury()
    handle = await theatre.open().start(calling, "x", id="r")

    assert "parent of child X" == await theatre.outcome(handle)
    assert 1 == len(await theatre.events(child_id, RunStarted))


# ---------------------------------------------------------------- code and journal


@pytest.mark.parametrize("change", ["flow", "arguments", "id", "nothing", "gone"])
async def test_a_child_is_compared_with_the_journal(stage: Theatre, change: str) -> None:
    """Another flow, other arguments, another id or none at all: the run stops and says both."""
    changed = False

    @outlive.flow
    async def other(name: str) -> str:
        return "other"

    @outlive.flow
    async def parent() -> str:
        match change if changed else "":
            case "flow":
                return str(await fanout.call(other, "x"))
            case "arguments":
                return str(await fanout.call(sleepy, 99))
            case "id":
                return str(await fanout.call(sleepy, 60, id="named"))
            case "gone":
                return await note("no child")
        return str(await fanout.call(sleepy, 60))

    app = stage.open()
    await app.start(parent, id="r")
    await stage.has("r", Parked)
    await stage.crash(app)
    changed = True
    handle = await stage.open().start(parent, id="r")
    waiting = asyncio.ensure_future(handle.outcome())
    await stage.until(waiting.done, step=1)

    if change == "nothing":
        assert "slept 60" == waiting.result()
    else:
        assert isinstance(waiting.exception(), ReplayMismatch)
        assert "of flow sleepy" in str(waiting.exception())


@dataclass
class Receipt:
    number: int


async def test_an_outcome_that_todays_type_can_not_hold_stops_the_parent(stage: Theatre) -> None:
    """It keeps its place until the right code is back."""

    @outlive.flow(name="issuer")
    async def issuer() -> Receipt:
        return Receipt(7)

    @outlive.flow(name="issuer")
    async def changed() -> int:
        return 7

    current: Any = issuer

    @outlive.flow
    async def reader() -> str:
        receipt = await fanout.call(current)
        await outlive.sleep("1h")
        return repr(receipt)

    app = stage.open()
    await app.start(reader, id="r")
    await stage.has("r", ChildEnded)
    await stage.crash(app)
    current = changed
    handle = await stage.open().start(reader, id="r")
    with pytest.raises(ValueRefused):
        await stage.outcome(handle, step=60)

    current = issuer
    handle = await stage.open().start(reader, id="r")
    assert "Receipt(number=7)" == await stage.outcome(handle, step=60)


async def test_many_children_of_one_parent(theatre: Theatre, figure: Any) -> None:
    """Three hundred, leaving memory at every wait; each told once, in any order."""

    @outlive.flow
    async def tiny(number: int) -> int:
        await outlive.sleep(0.05)
        return number

    @outlive.flow
    async def crowd() -> int:
        return sum(await asyncio.gather(*(fanout.call(tiny, n) for n in range(300))))

    handle = await theatre.open().start(crowd, id="r")
    assert sum(range(300)) == await theatre.outcome(handle)
    assert 300 == len(await theatre.events("r", ChildEnded))
    assert [] == await theatre.events("r", MailRead)
    figure("engine: events of a parent of 300 children", len(await theatre.events("r")))
