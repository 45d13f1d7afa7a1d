"""Comparing, forking and upgrading states."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from outlive.checkpoints import (
    ABSENT,
    Change,
    DurableRunner,
    SnapshotStore,
    SQLiteStorageBackend,
)
from outlive.errors import (
    DefinitionRefused,
    RunIdTaken,
    RunNotFound,
    UsageError,
    ValueRefused,
    WrongVersion,
)
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore


async def test_two_states_side_by_side(runner: DurableRunner) -> None:
    """What was added, changed and taken away, each with its path."""
    await runner.checkpoint("r", "a", {"n": 1, "items": [1, 2], "deep": {"x": 1}, "same": "s"})
    await runner.checkpoint("r", "b", {"n": 2, "items": [1], "deep": {"x": 1, "y": 0}, "same": "s"})
    await runner.checkpoint("q", "a", {"n": True})

    assert [
        Change("$.n", 1, 2),
        Change("$.items[1]", 2, ABSENT),
        Change("$.deep.y", ABSENT, 0),
    ] == await runner.diff("r", "a", "b")
    assert [] == await runner.diff("r", "b")
    assert Change("$.n", 1, True) in await runner.diff("r", "a", "a", other="q")
    with pytest.raises(UsageError, match="run r has no checkpoint of step 'z'"):
        await runner.diff("r", "z")
    with pytest.raises(RunNotFound):
        await runner.diff("nobody", "a")


async def test_a_fork_goes_its_own_way() -> None:
    """It has what came before, shares how it is stored, and changes nothing of the other."""
    store = MemoryStore()
    runner = DurableRunner(SnapshotStore(store))
    texts: list[str] = []
    for number in range(6):
        texts.append(f"{number}" * 700)
        await runner.checkpoint("r", f"s{number}", {"texts": texts})
    (family,) = store._nodes
    before = sum(map(len, store._nodes[family].values()))
    state = await runner.fork("r", "f", at="s3")
    assert {"texts": texts[:4]} == state
    after = sum(map(len, store._nodes[family].values()))
    await runner.checkpoint("f", "other", {"texts": [*texts[:4], "new"]})

    assert before == after
    assert {"texts": texts} == await runner.resume("r")
    assert {"texts": texts[:2]} == await runner.resume("f", "s1")
    steps = [each.step_id for each in await runner.list_checkpoints("f")]
    assert ["s0", "s1", "s2", "s3", "other"] == steps
    assert 6 == await runner.cleanup("r")
    assert {"texts": texts[:3]} == await runner.resume("f", "s2")
    assert 5 == await runner.cleanup("f")
    assert {} == store._nodes
    await runner.store.close()


async def test_a_fork_of_a_fork_and_after_going_back(runner: DurableRunner) -> None:
    """Only what counts is shared."""
    for number in range(3):
        await runner.checkpoint("r", f"s{number}", {"n": number})
    await runner.rollback("r", "s0")
    await runner.checkpoint("r", "t", {"n": 9})
    await runner.fork("r", "f")
    await runner.fork("f", "g", at="s0")

    assert ["s0", "t"] == [each.step_id for each in await runner.list_checkpoints("f")]
    assert ["s0"] == [each.step_id for each in await runner.list_checkpoints("g")]
    assert {"n": 0} == await runner.resume("g")
    with pytest.raises(RunIdTaken, match="it has checkpoints of its own"):
        await runner.fork("r", "f", at="s0")
    with pytest.raises(RunIdTaken, match="it has checkpoints of its own"):
        await runner.fork("f", "r")
    with pytest.raises(RunNotFound):
        await runner.fork("nobody", "h")


async def test_a_fork_that_is_made_again_is_the_same(runner: DurableRunner) -> None:
    """Whoever does not know whether it was made may ask once more."""
    await runner.checkpoint("r", "s", {"n": 1})
    for _ in range(2):
        assert {"n": 1} == await runner.fork("r", "f")
    assert 1 == len(await runner.history("f"))
    await runner.checkpoint("f", "own", {"n": 2})
    assert {"n": 2} == await runner.fork("r", "f")

    assert ["s", "own"] == [each.step_id for each in await runner.history("f")]


async def test_what_is_deleted_while_it_is_forked_is_not_half_there(path: Path) -> None:
    """The fork has all of it, or there is none; nothing that it shares goes away under it."""
    other = DurableRunner(f"sqlite:///{path}")
    await other.checkpoint("r", "s", {"text": "x" * 900})
    loop = asyncio.get_running_loop()
    moments: list[str] = []

    def failpoint(moment: str) -> None:
        if moment == "checkpoints.fork.begun":
            moments.append(moment)
            asyncio.run_coroutine_threadsafe(other.cleanup("r"), loop).result(20)

    storage = SQLiteStorageBackend(str(path), ports=Ports(failpoint=failpoint))
    with pytest.raises(RunNotFound):
        await DurableRunner(SnapshotStore(storage)).fork("r", "f")
    assert ["checkpoints.fork.begun"] == moments
    assert await other.resume("f") is None
    await other.checkpoint("r", "again", {"n": 1})
    assert {"n": 1} == await other.fork("r", "f")
    await storage.close()
    await other.close()


def to_two(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "items": state.pop("results")}


def to_three(state: dict[str, Any]) -> dict[str, Any]:
    return {"schema_version": state.get("schema_version"), "inner": state}


WAY = {"1": ("2", to_two), "2": ("3", to_three)}


async def test_old_states_are_brought_up_to_date(snapshots: SnapshotStore) -> None:
    """Step by step, from whatever version they have; what is stored stays as it is."""
    first = DurableRunner(snapshots, schema_version="1")
    await first.checkpoint("r", "a", {"results": [1]})
    await DurableRunner(snapshots).checkpoint("q", "a", {"schema_version": "2", "items": [2]})
    third = DurableRunner(snapshots, schema_version="3", upcasters=WAY)

    found = await third.resume("r")
    assert found is not None
    assert [1] == found["inner"]["items"]
    other = await third.resume("q")
    assert other is not None
    assert "3" == other["schema_version"]
    assert {"results": [1]} == await first.resume("r")
    async with third.auto("r") as run:
        assert [1] == run.state["inner"]["items"]
    assert ["1"] == [each.schema_version for each in await first.history("r")]


async def test_a_state_of_another_version_is_refused(snapshots: SnapshotStore) -> None:
    """Both versions are named, and what to do; never a guess."""
    await DurableRunner(snapshots, schema_version="1").checkpoint("r", "a", {"n": 1})
    await DurableRunner(snapshots).checkpoint("q", "a", {"n": 1})
    second = DurableRunner(snapshots, schema_version="2")

    with pytest.raises(WrongVersion, match="run r, step a: its state has schema version '1', this"):
        await second.resume("r")
    with pytest.raises(WrongVersion, match="run q, step a: its state has no schema version, this"):
        await second.resume("q")
    with pytest.raises(ValueRefused, match=r"\$.schema_version: it says '1', this code's is '2'"):
        await second.checkpoint("r", "b", {"schema_version": "1"})
    with pytest.raises(DefinitionRefused, match="upcasters lead to a schema_version"):
        DurableRunner(snapshots, upcasters=WAY)
    circle = {"1": ("2", to_two), "2": ("1", to_two)}
    with pytest.raises(DefinitionRefused, match="upcasters go round in a circle"):
        DurableRunner(snapshots, schema_version="3", upcasters=circle)


async def test_a_state_tells_its_version_to_whoever_saves_it(snapshots: SnapshotStore) -> None:
    """Also to a store by itself; what is no text, or no state, is refused."""
    first = DurableRunner(snapshots, schema_version="1")
    await snapshots.save_snapshot("r", "a", {"schema_version": "1", "n": 1})
    assert {"schema_version": "1", "n": 1} == await first.resume("r")
    numbered: Any = {"schema_version": 1}
    for refused in (
        snapshots.save_snapshot("r", "b", numbered),
        DurableRunner(snapshots).checkpoint("r", "b", numbered),
        first.checkpoint("r", "b", numbered),
    ):
        with pytest.raises(
            ValueRefused, match=r"\$.schema_version: a version is a text, not 1; wr"
        ):
            await refused

    forgetful: Any = {"1": ("2", lambda state: state.update(n=2))}
    second = DurableRunner(snapshots, schema_version="2", upcasters=forgetful)
    with pytest.raises(DefinitionRefused, match="run r, step a: upcaster <lambda> returned None"):
        await second.resume("r")
    assert ["1"] == [each.schema_version for each in await snapshots.list_snapshots("r")]


async def test_the_default_store_is_that_of_the_environment(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As everywhere: ``OUTLIVE_STORE``."""
    monkeypatch.setenv("OUTLIVE_STORE", f"sqlite:///{path}")
    runner = DurableRunner()
    await runner.checkpoint("r", "a", {"n": 1})
    await runner.close()

    assert path.exists()
