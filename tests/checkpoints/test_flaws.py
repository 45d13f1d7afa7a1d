"""Flaws that the original of these calls had, each with a test that it would not pass."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import json
import math
import pickle
import sqlite3
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from outlive.checkpoints import DurableRunner, SnapshotStore, SQLiteStorageBackend
from outlive.errors import LeaseLost, RunIdRefused, StoreUnavailable, UsageError, ValueRefused
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.testing.clock import FakeClock
from outlive.testing.crash.failing_store import CallFault, FailingStore


def on(path: Path, ports: Ports | None = None) -> DurableRunner:
    """A runner of another process, as far as memory goes."""
    return DurableRunner(SnapshotStore(SQLiteStorageBackend(str(path), ports=ports)))


async def let_go(*runners: DurableRunner) -> None:
    for each in runners:
        await each.store._place.close()


async def test_what_was_saved_is_a_copy(runner: DurableRunner) -> None:
    """A dict that is changed after it was saved changes no snapshot, in this process or another."""
    state: dict[str, Any] = {"results": [], "deep": {"n": 0}}
    for number in range(4):
        state["results"].append(number)
        state["deep"]["n"] = number
        saved = await runner.checkpoint("r", f"s{number}", state)
        saved.state["results"].append("mine")

    for number in range(4):
        found = await runner.resume("r", from_step=f"s{number}")
        assert {"results": list(range(number + 1)), "deep": {"n": number}} == found


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda saved: pickle.loads(pickle.dumps(saved))]
)
async def test_a_copy_of_a_snapshot_is_as_whole_as_it(runner: DurableRunner, copied: Any) -> None:
    """Also if nobody has looked at it yet; whoever looks first takes nothing from the other."""
    state = {"n": 1, "text": "long " * 1000}
    saved = await runner.checkpoint("r", "a", state)
    other = copied(saved)

    assert state == saved.state
    assert state == other.state
    assert saved.snapshot_id == other.snapshot_id
    assert saved == other


async def test_what_is_found_is_a_copy(runner: DurableRunner) -> None:
    """Whoever resumes may do with the state what it likes."""
    await runner.checkpoint("r", "s", {"items": [1]})
    for _ in range(2):
        found = await runner.resume("r")
        assert found == {"items": [1]}
        found["items"].append(2)
        found["more"] = True


async def test_storage_is_the_truth(path: Path) -> None:
    """Neither an earlier look nor another process's snapshot is missed."""
    one, other = on(path), on(path)
    await one.checkpoint("r", "s1", {"n": 1})
    await one.checkpoint("r", "s2", {"n": 2})

    assert {"n": 1} == await other.resume("r", "s1")
    assert {"n": 2} == await other.resume("r")
    await other.checkpoint("r", "s3", {"n": 3})
    assert {"n": 3} == await one.resume("r")
    assert ["s1", "s2", "s3"] == [each.step_id for each in await one.list_checkpoints("r")]
    await let_go(one, other)


async def test_a_write_that_failed_is_not_there() -> None:
    """It raises, and nobody finds what was not stored."""
    fault = CallFault(number=2, verb="commit", when="before", how="reply_lost")
    runner = DurableRunner(SnapshotStore(FailingStore(MemoryStore(), fault)))
    await runner.checkpoint("r", "s1", {"n": 1})
    with pytest.raises(StoreUnavailable):
        await runner.checkpoint("r", "s2", {"n": 2})

    assert {"n": 1} == await runner.resume("r")
    await runner.store.close()


async def test_the_latest_is_the_one_that_was_saved_last(path: Path) -> None:
    """A step that is saved again is the latest, here and after a restart."""
    runner = on(path)
    for step, number in (("s1", 1), ("s2", 2), ("s1", 3)):
        await runner.checkpoint("r", step, {"n": number})
    again = on(path)

    assert {"n": 3} == await runner.resume("r") == await again.resume("r")
    assert ["s2", "s1"] == [each.step_id for each in await again.list_checkpoints("r")]
    await let_go(runner, again)


async def test_a_clock_that_goes_back_changes_no_order(path: Path) -> None:
    """Neither within a second, nor an hour back: places count, and times never fall."""
    clock = FakeClock()
    runner = on(path, Ports(clock=clock))
    for number in range(5):
        await runner.checkpoint("r", f"s{number}", {"n": number})
        clock.set_wall(clock.now_ms() - 3_600_000)
    again = on(path)
    listed = await again.list_checkpoints("r")

    assert {"n": 4} == await again.resume("r")
    assert [0, 1, 2, 3, 4] == [each.state["n"] for each in listed]
    assert sorted(each.created_at for each in listed) == [each.created_at for each in listed]
    await let_go(runner, again)


async def test_what_was_replaced_is_not_lost(path: Path) -> None:
    """Each save has an id of its own that stays, and can be looked at and gone back to."""
    runner = on(path)
    first = await runner.checkpoint("r", "s", {"n": 1})
    await let_go(runner)
    again = on(path)
    second = await again.checkpoint("r", "s", {"n": 2})
    told = await again.history("r")

    assert [first.snapshot_id, second.snapshot_id] == [each.snapshot_id for each in told]
    found = await again.store.get_snapshot("r", first.seq)
    assert first == found
    await let_go(again)


async def test_whoever_was_given_up_for_dead_saves_no_more(path: Path) -> None:
    """The one that went on has the run; the other is refused at its next step."""
    old, new = on(path), on(path)
    slow = await old.auto("r").__aenter__()
    await slow.checkpoint("s1", {})
    async with new.auto("r") as quick:
        quick.state["by"] = "the new one"
        await quick.checkpoint("s2")
        slow.state["by"] = "the old one"
        with pytest.raises(LeaseLost, match="run r is driven by another worker now"):
            await slow.checkpoint("s2")
        with pytest.raises(LeaseLost):
            await new.cleanup("r")
    with pytest.raises(LeaseLost):
        await slow.checkpoint("s3")
    with pytest.raises(LeaseLost):
        await slow.__aexit__(None, None, None)

    assert {"by": "the new one"} == await new.resume("r")
    await let_go(old, new)


async def test_who_resumes_exclusively_has_the_run(path: Path) -> None:
    """With the plain calls, too, where that is asked for."""
    one = DurableRunner(SnapshotStore(SQLiteStorageBackend(str(path))), exclusive=True)
    other = DurableRunner(SnapshotStore(SQLiteStorageBackend(str(path))), exclusive=True)
    assert await one.resume("r") is None
    await one.checkpoint("r", "s1", {"n": 1})
    assert {"n": 1} == await other.resume("r")
    await other.checkpoint("r", "s2", {"n": 2})

    with pytest.raises(LeaseLost):
        await one.checkpoint("r", "s2", {"n": -2})
    assert {"n": 2} == await one.resume("r")
    await one.checkpoint("r", "s3", {"n": 3})
    await let_go(one, other)


async def test_a_run_has_a_status(runner: DurableRunner) -> None:
    """Running until it ends, and again when somebody goes on with it."""
    await runner.checkpoint("r", "s", {})
    assert "running" == await runner.store.status("r")
    await runner.finish("r", "failed", "no money")
    assert "failed" == await runner.store.status("r")
    await runner.resume("r")
    assert "running" == await runner.store.status("r")
    await runner.finish("r")

    (run,) = await runner.store.runs()
    assert ("r", "succeeded") == (run.run_id, run.status)
    assert run.ended_at is not None
    assert [] == await runner.store.runs(status="running")


async def test_only_what_is_over_is_cleared_away(path: Path) -> None:
    """However long ago a run began: as long as it goes on, it keeps its checkpoints."""
    clock = FakeClock()
    runner = on(path, Ports(clock=clock))
    for name in ("long", "over", "bad", "left", "young"):
        await runner.checkpoint(name, "s", {"of": name})
    await runner.finish("over")
    await runner.finish("bad", "failed")
    clock.advance(20 * 86400)
    await runner.checkpoint("long", "t", {"of": "long"})
    await runner.checkpoint("young", "t", {"of": "young"})
    await runner.finish("young")

    assert 1 == await runner.cleanup_old("7d")
    there = {run.run_id for run in await runner.store.runs()}
    assert {"long", "bad", "left", "young"} == there
    assert 2 == await runner.cleanup_old("7d", failed="10d", unfinished="15d")
    assert {"of": "long"} == await runner.resume("long")
    assert {"long", "young"} == {run.run_id for run in await runner.store.runs()}
    await let_go(runner)


EXACT: dict[str, Any] = {
    "tuple": (1, (2, 3)),
    "set": {1, 2},
    "bytes": b"\x00\xff",
    "big": 1 << 90,
    "float": 0.1,
    "none": None,
    "decimal": Decimal("1.10"),
    "time": dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC),
    "keys": {1: "int", "1": "text", None: "none"},
    "text": "ä€😀" * 300,
}


async def test_a_state_comes_back_as_it_was(path: Path) -> None:
    """Types, keys and all; not a list for a tuple, nor text for bytes."""
    runner = on(path)
    await runner.checkpoint("r", "s", EXACT, {"keys": {1: 2}})
    keyed: Any = {1: "an int for a key"}
    await runner.checkpoint("r", "ints", keyed)
    again = on(path)
    found = await again.resume("r", "s")

    assert found is not None
    assert EXACT == found
    assert {name: type(value) for name, value in EXACT.items()} == {
        name: type(value) for name, value in found.items()
    }
    ints: Any = await again.resume("r")
    assert {1: "an int for a key"} == ints
    await let_go(runner, again)


async def test_what_would_not_come_back_is_refused(runner: DurableRunner) -> None:
    """With the path to it, and nothing is saved."""
    with pytest.raises(ValueRefused, match=r"^\$\.agents\[1\]\.client: "):
        await runner.checkpoint("r", "s", {"agents": [{}, {"client": object()}]})
    with pytest.raises(ValueRefused, match=r"^\$\.rate: nan is not a finite number"):
        await runner.checkpoint("r", "s", {"rate": math.nan})
    with pytest.raises(ValueRefused, match="a state is a dict, not list"):
        await runner.checkpoint("r", "s", [1])  # type: ignore[arg-type]  # refused

    assert await runner.resume("r") is None


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/b", ".", "..", "a\\b", "ä b%2F", "x" * 500]
)
async def test_ids_are_never_paths(path: Path, name: str) -> None:
    """Any text will do for a run or a step, and nothing but the file is written."""
    runner = on(path)
    await runner.checkpoint(name, name, {"n": 1})
    again = on(path)

    assert {"n": 1} == await again.resume(name, from_step=name)
    assert [name] == [run.run_id for run in await again.store.runs()]
    assert {"o.db", "o.db-workers"} >= {
        each.name.partition("-wal")[0].partition("-shm")[0] for each in path.parent.iterdir()
    }
    await let_go(runner, again)


@pytest.mark.parametrize("run_id", ["", "a\0b", "\ud800", "outlive/x"])
async def test_what_is_no_id_is_refused(runner: DurableRunner, run_id: str) -> None:
    """At the door, in words."""
    with pytest.raises(RunIdRefused):
        await runner.checkpoint(run_id, "s", {})
    for step in ("", "\ud800", "x" * 2000):
        with pytest.raises(UsageError, match="a step id"):
            await runner.checkpoint("r", step, {})


async def test_the_loop_is_not_blocked(path: Path) -> None:
    """While a save waits for the file, everything else on the loop goes on."""
    runner = on(path)
    await runner.checkpoint("r", "s0", {})
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    saving = asyncio.create_task(runner.checkpoint("r", "s1", {"n": 1}))
    ticks = 0
    for _ in range(20):
        await asyncio.sleep(0.001)
        ticks += not saving.done()
    db.execute("COMMIT")
    db.close()
    await saving

    assert 20 == ticks
    await let_go(runner)


async def test_many_tasks_save_side_by_side(path: Path) -> None:
    """Of one run and of many, from one process: nothing is lost, nothing is mixed up."""
    runner = on(path)
    await asyncio.gather(
        *(runner.checkpoint(f"r{number % 4}", f"s{number}", {"n": number}) for number in range(80))
    )

    for run in range(4):
        found = await runner.list_checkpoints(f"r{run}")
        assert set(range(run, 80, 4)) == {each.state["n"] for each in found}
        assert all(f"s{each.state['n']}" == each.step_id for each in found)
    await let_go(runner)


async def test_events_are_the_journal(runner: DurableRunner) -> None:
    """Saved and restored, under both names, with size, ids and times, in one commit with states."""
    await runner.store.ensure_run_initialized("r", {"agent": "planner"})
    saved = await runner.checkpoint("r", "s", {"n": 1}, {"step_index": 0})
    await runner.resume("r")
    told = [event async for event in runner.events("r")]

    assert [
        "run.started", "run.snapshot.saved", "checkpoint.saved", "run.resume",
        "checkpoint.restored",
    ] == [event["event_type"] for event in told]  # fmt: skip
    assert "planner" == told[0]["agent_slug"]
    assert {"step_index": 0} == told[1]["metadata"]
    assert len('{"n":1}') == told[2]["state_size_bytes"]
    assert all(saved.snapshot_id == event["snapshot_id"] for event in told[1:])
    assert saved.to_dict()["created_at"] == told[2]["created_at"]
    assert "Resumed run r from step s" == told[3]["message"]
    assert "restored_at" in told[4]
    assert json.dumps(told)
    later = [event["seq"] async for event in runner.events("r", after=2)]
    assert [3, 3] == later
    assert [] == [event async for event in runner.events("nobody")]


async def test_an_agent_is_named_by_the_first_snapshot(runner: DurableRunner) -> None:
    """Where nobody said anything of the run before."""
    await runner.checkpoint("r", "s", {}, {"agent": "planner"})
    await runner.checkpoint("r", "t", {}, {"agent_slug": "another"})
    await runner.checkpoint("q", "s", {})
    told = [await anext(runner.events(run_id)) for run_id in ("r", "q")]

    assert ["planner", "unknown"] == [event["agent_slug"] for event in told]
    assert {} == told[0]["metadata"]


async def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a flag of the environment, or of the runner: nothing is opened, saved or found."""
    monkeypatch.setenv("OUTLIVE_DURABLE_ENABLED", "false")
    runner = DurableRunner("sqlite:////nowhere/at/all.db")
    saved = await runner.checkpoint("r", "s", {"n": 1})
    assert await runner.resume("r") is None
    async with runner.auto("r", {"n": 0}) as run:
        assert 7 == await run.step("seven", asyncio.sleep, 0, 7)

    assert ("", {"n": 1}) == (saved.snapshot_id, saved.state)
    assert DurableRunner(enabled=True).enabled
    monkeypatch.setenv("OUTLIVE_DURABLE_ENABLED", "maybe")
    with pytest.raises(UsageError, match="OUTLIVE_DURABLE_ENABLED='maybe' is neither true nor"):
        DurableRunner()


def test_one_store_serves_many_loops(path: Path) -> None:
    """A runner that is made once is used by whatever loop runs."""
    runner = on(path)
    for number in range(3):
        asyncio.run(runner.checkpoint("r", f"s{number}", {"n": number}))
    seen: list[Any] = []
    other = threading.Thread(target=lambda: seen.append(asyncio.run(runner.resume("r"))))
    other.start()
    other.join()

    assert [{"n": 2}] == seen
    asyncio.run(let_go(runner))
