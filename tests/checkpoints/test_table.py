"""The table of the document: what counts, as JSON, in the transaction of each checkpoint."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path

import psycopg
import pytest

from outlive.checkpoints import (
    DurableRunner,
    PostgresStorageBackend,
    SnapshotStore,
    SQLiteStorageBackend,
)
from outlive.errors import UsageError, ValueRefused
from outlive.journal.seal.keys import new_key
from outlive.ports import Ports
from outlive.stores.postgres.url import parse_place


def rows(path: Path) -> dict[tuple[str, str], object]:
    """What SQL of a user's own finds."""
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT run_id, step_id, state FROM snapshots ORDER BY created_at")
        return {(run, step): json.loads(state) for run, step, state in found}


async def test_it_has_what_counts(path: Path) -> None:
    """Saved again it is replaced; taken back, the older state is there; cleaned up, nothing is."""
    long = "lighthouse " * 3000
    async with SQLiteStorageBackend(path, table=True) as storage:
        runner = DurableRunner(SnapshotStore(storage))
        await runner.checkpoint("r", "a", {"n": 1, "long": long}, {"who": "me"})
        saved = await runner.checkpoint("r", "b", {"n": 2, "long": long})
        await runner.checkpoint("r", "a", {"n": 3, "long": long})
        assert [("r", "a"), ("r", "b")] == sorted(rows(path))
        assert {"n": 3, "long": long} == rows(path)["r", "a"]
        with closing(sqlite3.connect(path)) as db:
            (row,) = db.execute("SELECT * FROM snapshots WHERE step_id = 'b'").fetchall()
        told = saved.to_dict()
        texts = [told[name] for name in ("snapshot_id", "run_id", "step_id", "created_at")]
        assert (*texts, json.dumps(told["state"], separators=(",", ":")), "{}") == row

        await runner.rollback("r", "b")
        assert {"n": 1, "long": long} == rows(path)["r", "a"]
        await runner.fork("r", "f", at="a")
        assert {"n": 1, "long": long} == rows(path)["f", "a"]
        await runner.cleanup("r")
    assert [("f", "a")] == list(rows(path))


async def test_what_json_can_not_have_is_refused_and_not_half_saved(path: Path) -> None:
    """Neither in the table nor in the journal."""
    async with SQLiteStorageBackend(path, table=True) as storage:
        runner = DurableRunner(SnapshotStore(storage))
        with pytest.raises(ValueRefused, match="the table `snapshots` has states as JSON"):
            await runner.checkpoint("r", "a", {"pair": {(1, 2): 3}})
        assert None is await runner.resume("r")
    assert {} == rows(path)


@pytest.mark.parametrize("name", ["o.db", ":memory:"])
async def test_it_is_refused_where_states_are_sealed(tmp_path: Path, name: str) -> None:
    """Nobody asks for a key and for plain text; memory has no tables."""
    where = name if name == ":memory:" else str(tmp_path / name)
    key = "" if name == ":memory:" else new_key(Ports().entropy)
    storage = SQLiteStorageBackend(where, table=True, key=key)
    with pytest.raises(UsageError, match="table=True needs a SQLite file or a Postgre"):
        await storage.initialize()
    await storage.close()


def server_rows(url: str) -> dict[tuple[str, str], object]:
    """The same on a server: the table is in the schema of the store."""
    place = parse_place(url)
    with psycopg.connect(place.conninfo) as db:
        found = db.execute(f"SELECT run_id, step_id, state FROM {place.schema}.snapshots")
        return {(run, step): json.loads(state) for run, step, state in found}


async def test_a_server_has_it_too(url: str) -> None:
    """Replaced, taken back and cleaned up as in a file."""
    async with PostgresStorageBackend(url, table=True) as storage:
        runner = DurableRunner(SnapshotStore(storage))
        await runner.checkpoint("r", "a", {"n": 1}, {"who": "me"})
        await runner.checkpoint("r", "b", {"n": 2})
        await runner.checkpoint("r", "a", {"n": 3})
        assert {("r", "a"): {"n": 3}, ("r", "b"): {"n": 2}} == server_rows(url)
        await runner.rollback("r", "b")
        assert {("r", "a"): {"n": 1}, ("r", "b"): {"n": 2}} == server_rows(url)
        await runner.cleanup("r")
        assert {} == server_rows(url)
        with pytest.raises(ValueRefused, match="the table `snapshots` has states as JSON"):
            await runner.checkpoint("q", "a", {"pair": {(1, 2): 3}})
    assert {} == server_rows(url)


async def test_two_who_save_to_a_server_at_once_leave_what_counts(url: str) -> None:
    """Whoever is refused tries again: the table has no row of an entry that was not written."""
    async with AsyncExitStack() as stack:
        storages = [PostgresStorageBackend(url, table=True) for _ in range(3)]
        for storage in storages:
            await stack.enter_async_context(storage)
        runners = [DurableRunner(SnapshotStore(storage)) for storage in storages]
        numbers = range(30)
        await asyncio.gather(*(runners[n % 3].checkpoint("r", "a", {"n": n}) for n in numbers))
        assert {("r", "a"): await runners[0].resume("r")} == server_rows(url)


async def test_a_sealed_server_refuses_it(url: str) -> None:
    storage = PostgresStorageBackend(url, table=True, key=new_key(Ports().entropy))
    with pytest.raises(UsageError, match="that is not sealed"):
        await storage.initialize()
    await storage.close()
