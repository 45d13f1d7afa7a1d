"""Children: started once, told of once, ended with their parent, whoever dies in between."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive.engine import verbs as fanout
from outlive.errors import (
    DefinitionRefused,
    RunCancelled,
    RunFailed,
    RunIdRefused,
    RunIdTaken,
)
from outlive.model.events import (
    ChildEnded,
    ChildIntended,
    ChildSpawned,
    ParentTold,
    Parked,
    RunStarted,
)
from outlive.testing.suite.entries import delete_one
from tests.engine.kids import calling, child, child_of, failing_child, naming, patient, sleepy
from tests.harness.theatre import Theatre
from tests.harness.world import world


async def test_a_child_is_a_run_of_its_own(theatre: Theatre) -> None:
    """Its id is a function of its place; it belongs to its parent's family and knows its parent."""
    handle = await theatre.open().start(calling, "x", id="r")

    assert "parent of child X" == await theatre.outcome(handle)
    (intended,) = await theatre.events("r", ChildIntended)
    (started,) = await theatre.events(intended.child_id, RunStarted)
    assert ("r", "r", True) == (started.parent, started.family, started.is_awaited)
    (ended,) = await theatre.events("r", ChildEnded)
    assert ("completed", intended.child_id) == (ended.status, ended.child_id)
    assert isinstance((await theatre.events(intended.child_id))[-1], ParentTold)
    assert ({}, set()) == ((run := await theatre.fold("r")).children, run.children_started)


async def test_a_parent_waits_outside_memory(theatre: Theatre) -> None:
    """However long its child takes; the child's end wakes it."""
    app = theatre.open()
    handle = await app.start(patient, id="r")
    child_id = await child_of(theatre)
    await theatre.has("r", Parked)
    await theatre.has(child_id, Parked)
    (worker,) = app._workers.own[asyncio.get_running_loop()]
    await theatre.until(lambda: not worker.driving, step=0)
    theatre.pass_time(3600)

    assert "slept 3600" == await theatre.outcome(handle)
    assert 1 == len(await theatre.events("r", ChildSpawned))


async def test_whoever_goes_on_with_a_parent_goes_on_with_its_children(theatre: Theatre) -> None:
    """Also with the children's children: all were asleep when their process died."""

    @outlive.flow
    async def grandparent() -> str:
        return f"grand {await fanout.call(patient)}"

    app = theatre.open()
    await app.start(grandparent, id="r")
    parent_id = await child_of(theatre)
    child_id = await child_of(theatre, parent_id)
    for run_id in ("r", parent_id, child_id):
        await theatre.has(run_id, Parked)
    await theatre.crash(app)
    theatre.pass_time(3600)
    handle = await theatre.open().start(grandparent, id="r")

    assert "grand slept 3600" == await theatre.outcome(handle)
    assert ["slept 3600"] == world.ran


async def test_a_child_that_fails_is_told_to_its_parent(theatre: Theatre) -> None:
    """As a failed run, with the error behind it."""

    @outlive.flow
    async def worried() -> str:
        try:
            await fanout.call(failing_child, "x")
        except RunFailed as error:
            return f"{error.type_name} {error.__cause__!r}"
        return "all is well"

    handle = await theatre.open().start(worried, id="r")
    assert "KeyError KeyError('x')" == await theatre.outcome(handle)


async def test_a_child_that_was_cancelled_is_told_as_such(theatre: Theatre) -> None:
    """Somebody else cancelled it; the parent goes on as it likes."""

    @outlive.flow
    async def worried() -> str:
        try:
            return str(await fanout.call(sleepy, 3600))
        except RunCancelled as error:
            return f"cancelled {error.run_id}"

    handle = await theatre.open().start(worried, id="r")
    child_id = await child_of(theatre)
    await theatre.has(child_id, Parked)
    await theatre.cancel(child_id)

    assert f"cancelled {child_id}" == await theatre.outcome(handle)


# ---------------------------------------------------------------- on their own


async def test_a_spawned_run_is_on_its_own(theatre: Theatre) -> None:
    """The parent has its id when it is durable, and ends without it."""

    @outlive.flow
    async def spawning() -> str:
        return await fanout.spawn(sleepy, 3600)

    app = theatre.open()
    child_id = await theatre.outcome(await app.start(spawning, id="r"))
    (started,) = await theatre.events(child_id, RunStarted)
    assert ("r", False) == (started.parent, started.is_awaited)
    assert {} == (await theatre.fold("r")).children
    theatre.pass_time(3600)

    assert "slept 3600" == await theatre.outcome(await app.get(child_id))
    assert [] == await theatre.events(child_id, ParentTold)


async def test_a_spawned_run_outlives_the_cancellation_of_its_parent(theatre: Theatre) -> None:
    """Only those that are waited for end with it."""

    @outlive.flow
    async def spawning() -> str:
        await fanout.spawn(sleepy, 60, id="own")
        await outlive.sleep("1h")
        return "done"

    app = theatre.open()
    handle = await app.start(spawning, id="r")
    await theatre.has("r", Parked)
    await theatre.cancel("r")
    with pytest.raises(RunCancelled):
        await theatre.outcome(handle)
    theatre.pass_time(60)

    assert "slept 60" == await theatre.outcome(await app.get("own"))


# ---------------------------------------------------------------- ids


async def test_an_id_of_ones_own(theatre: Theatre) -> None:
    """It is the child's id; one that another run has is refused, and that run is left alone."""
    app = theatre.open()
    assert "child A" == await theatre.outcome(await app.start(naming, "a", "mine", id="one"))
    taken = await theatre.outcome(await app.start(naming, "a", "mine", id="two"))
    assert (
        "run id 'mine' is taken: it has the same flow and arguments, but this run did not" in taken
    )
    await theatre.outcome(await app.start(child, "b", id="alone"))
    taken = await theatre.outcome(await app.start(naming, "b", "alone", id="three"))
    assert "(in a step, outlive.get waits for it); choose another id" in taken
    taken = await theatre.outcome(await app.start(naming, "c", "alone", id="four"))
    assert "run id 'alone' is taken: that run of flow 'child' has other arguments" in taken
    taken = await theatre.outcome(await app.start(naming, "c", "four", id="five"))
    assert "run id 'four' is taken: it is a run of flow 'naming', not 'child'" in taken

    assert ["a", "b"] == world.ran
    assert 1 == len(await theatre.events("alone", RunStarted))


async def test_an_id_that_can_not_be_one_is_refused_at_once(stage: Theatre) -> None:
    """Before anything is written."""

    @outlive.flow
    async def wrong() -> str:
        try:
            await fanout.call(child, "x", id="key/x")
        except RunIdRefused:
            return "refused"
        return "called"

    assert "refused" == await stage.outcome(await stage.open().start(wrong, id="r"))
    assert [] == await stage.events("r", ChildIntended)


@pytest.mark.parametrize("at_once", [True, False])
async def test_the_same_child_called_twice_is_one_run(theatre: Theatre, at_once: bool) -> None:
    """Both get its outcome, whether or not it was over when the second asked."""

    @outlive.flow
    async def twice() -> list[str]:
        if at_once:
            both = (fanout.call(child, "x", id="shared") for _ in range(2))
            return list(await asyncio.gather(*both))
        return [await fanout.call(child, "x", id="shared") for _ in range(2)]

    handle = await theatre.open().start(twice, id="r")
    assert ["child X", "child X"] == await theatre.outcome(handle)
    assert ["x"] == world.ran


async def test_a_run_spawned_on_its_own_can_not_be_waited_for(theatre: Theatre) -> None:
    """Nobody would ever tell; so the call is refused instead of waiting for ever."""

    @outlive.flow
    async def confused() -> str:
        await fanout.spawn(child, "x", id="own")
        try:
            return str(await fanout.call(child, "x", id="own"))
        except RunIdTaken:
            return "refused"

    assert "refused" == await theatre.outcome(await theatre.open().start(confused, id="r"))


async def test_the_id_of_a_deleted_run_is_taken(stage: Theatre) -> None:
    """Its tombstone says so."""
    app = stage.open()
    await stage.outcome(await app.start(child, "x", id="gone"))
    reading = await stage.read("gone")
    assert reading is not None
    seq, until = reading.head.seq, stage.clock.now_ms() + 10**9
    assert await delete_one(stage.store, "gone", seq=seq, digest=b"", keep_until=until)

    told = await stage.outcome(await app.start(naming, "x", "gone", id="r"))
    assert "run id 'gone' is taken" in told


async def test_only_flows_can_be_called(stage: Theatre) -> None:
    """A plain function is refused with the remedy."""

    async def plain() -> None: ...

    @outlive.flow
    async def wrong() -> str:
        seen = []
        for verb in (fanout.call, fanout.spawn):
            try:
                await verb(plain)  # type: ignore[operator]
            except DefinitionRefused as error:
                seen.append("@outlive.flow" in str(error))
        return str(seen)

    assert "[True, True]" == await stage.outcome(await stage.open().start(wrong, id="r"))
