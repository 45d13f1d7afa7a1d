"""Who has a run to itself: how it is taken, how it is let go of, and what others may do."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from outlive.checkpoints import AutoRun, DurableRunner, SnapshotStore
from outlive.checkpoints.decide import CheckpointOwner
from outlive.errors import LeaseLost, WrongVersion
from outlive.model.checkpoints import Checkpoints, SnapshotSaved
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.testing.clock import FakeClock


class Place:
    """A store whose time is moved by hand, and runners on it."""

    def __init__(self) -> None:
        self.clock, self.store = FakeClock(), MemoryStore()

    def runner(self, *, exclusive: bool = False) -> DurableRunner:
        ports = Ports(clock=self.clock)
        snapshots = SnapshotStore(self.store)
        snapshots._place.ports = ports
        return DurableRunner(snapshots, exclusive=exclusive, ports=ports)


@pytest.fixture
def place() -> Place:
    return Place()


async def dead(place: Place) -> AutoRun:
    """A run whose process died in the middle."""
    run = place.runner().auto("dead", {"n": 0})
    await run.begin()
    await run.checkpoint("one")
    await run.checkpoint("two")
    return run


async def test_what_a_dead_process_held_goes_by_its_age(place: Place) -> None:
    """A run that was not heard of for so long is cleared, whoever held it; no sooner."""
    zombie = await dead(place)
    place.clock.advance(89 * 86400)
    assert 0 == await place.runner().cleanup_old(unfinished="90d")
    place.clock.advance(2 * 86400)
    assert 0 == await place.runner().cleanup_old()

    assert 2 == await place.runner().cleanup_old(unfinished="90d")
    assert [] == await place.runner().store.runs()
    with pytest.raises(LeaseLost, match="run dead has no checkpoints any more"):
        await zombie.checkpoint("three")
    assert [] == await place.runner().store.runs()


async def test_a_dead_process_is_named_with_the_remedy(place: Place) -> None:
    """Who may not touch a run hears when its holder was last heard of; the remedy works."""
    zombie = await dead(place)
    plain = place.runner()
    for refused in (
        plain.cleanup("dead"),
        plain.finish("dead", "canceled"),
        plain.rollback("dead", "one"),
        plain.checkpoint("dead", "three", {}),
        plain.store.delete_snapshots("dead"),
    ):
        with pytest.raises(LeaseLost, match=r"last heard of at \d{4}-.*exclusive=True"):
            await refused

    taker = place.runner(exclusive=True)
    assert {"n": 0} == await taker.resume("dead")
    await taker.rollback("dead", "one")
    await taker.finish("dead", "canceled")
    with pytest.raises(LeaseLost, match="was ended or released since"):
        await zombie.checkpoint("three")
    assert 1 == await plain.cleanup("dead")


async def test_an_exclusive_runner_has_what_it_saves(place: Place) -> None:
    """It need not resume a run that nobody has; from its first save on nobody else may save."""
    one, other = place.runner(exclusive=True), place.runner(exclusive=True)
    for number in range(3):
        await one.checkpoint("r", f"s{number}", {"n": number})
    for refused in (place.runner(), other):
        with pytest.raises(LeaseLost):
            await refused.checkpoint("r", "s9", {})

    await one.finish("r")
    await one.checkpoint("r", "again", {"n": 9})
    await one.finish("r")
    await one.finish("r", "failed")
    assert {"n": 9} == await other.resume("r")
    await other.finish("r")
    with pytest.raises(LeaseLost, match="was ended or released since"):
        await one.checkpoint("r", "late", {})


async def test_an_exclusive_runner_goes_on_with_what_is_free(place: Place) -> None:
    """What plain runners saved is nobody's."""
    await place.runner().checkpoint("r", "s1", {"n": 1})
    await place.runner(exclusive=True).checkpoint("r", "s2", {"n": 2})

    with pytest.raises(LeaseLost):
        await place.runner().checkpoint("r", "s3", {})


async def test_resuming_plainly_takes_nothing(place: Place) -> None:
    """Whoever has a run keeps it, however often others look where it is."""

    async def step() -> int:
        return 1

    looker = place.runner()
    async with place.runner().auto("live", {"n": 0}) as run:
        await run.step("a", step)
        assert {"n": 0} == await looker.resume("live")
        assert {"n": 0} == await looker.resume("live", from_step="a")
        await run.step("b", step)
        with pytest.raises(LeaseLost):
            await looker.checkpoint("live", "c", {})

    assert "succeeded" == await looker.store.status("live")


async def test_a_run_that_is_cancelled_is_let_go_of(place: Place) -> None:
    """Anybody may save or delete it then; one that was taken meanwhile stays with its holder."""
    runner, entered = place.runner(), asyncio.Event()

    async def work(run_id: str) -> None:
        async with runner.auto(run_id, {"n": 1}) as run:
            await run.checkpoint("one")
            entered.set()
            await asyncio.Event().wait()

    for run_id in ("free", "taken"):
        entered.clear()
        task = asyncio.create_task(work(run_id))
        await entered.wait()
        if run_id == "taken":
            await place.runner(exclusive=True).resume(run_id)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    await runner.checkpoint("free", "two", {"n": 2})
    assert ("running", 2) == (await runner.store.status("free"), await runner.cleanup("free"))
    with pytest.raises(LeaseLost):
        await runner.cleanup("taken")


async def test_code_of_another_version_takes_nothing(place: Place) -> None:
    """It is refused before anything is written, so whoever has the run goes on."""
    store = place.runner().store
    old = DurableRunner(store, schema_version="1")
    wrong = DurableRunner(store, schema_version="2", exclusive=True)
    agent = await old.exchange("agent", peers=["peer"])
    await agent.checkpoint("one", {"n": 1})
    async with old.auto("live", {"n": 0}) as run:
        await run.checkpoint("one")
        await run.checkpoint("two")
        before = [event async for event in old.events("live")]
        for refused in (
            wrong.auto("live").begin(),
            wrong.resume("live"),
            wrong.resume("live", from_step="one"),
            wrong.rollback("live", "one"),
            wrong.exchange("agent", peers=["peer"]),
        ):
            with pytest.raises(WrongVersion, match="its state has schema version '1', this code"):
                await refused
        assert before == [event async for event in old.events("live")]
        await run.checkpoint("three")
    await agent.checkpoint("two", {"n": 2})

    assert "succeeded" == await store.status("live")


def test_a_save_of_an_earlier_release_is_held_until_the_next() -> None:
    """There the first save of a run took nothing, so that others could be behind it."""
    fold = Checkpoints()
    fold.apply(CheckpointOwner(run_id="r", now=1, seed=b"seed", metadata=b"\x80").begin())
    saved = SnapshotSaved(at=1, step="s", state=b"\x80", metadata=b"\x80", size=1)
    for holder in ("one", "", ""):
        fold.apply(replace(saved, holder=holder))

    assert "" == fold.holder
    assert fold.is_free_for("other")
