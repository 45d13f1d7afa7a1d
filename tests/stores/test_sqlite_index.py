"""An index is a hint: what it does not find is confirmed another way before a run begins."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import CorruptRecord
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.transactions import Attempt
from outlive.testing.suite.entries import START_MS, delete_one, entry, header

paid: list[int] = []


@outlive.effect(name="index_pay")
async def pay(cents: int) -> int:
    paid.append(cents)
    return cents


@outlive.flow(name="index_buy")
async def buy(cents: int) -> int:
    return await pay(cents)


def lose_from_index(path: Path, table: str, column: str, name: str) -> None:
    """Take one entry out of the unique index of a table, as a damaged page would."""
    index = f"sqlite_autoindex_{table}_1"
    for statement in (
        f"UPDATE {table} SET {column} = 'elsewhere' WHERE {column} = '{name}'",
        f"UPDATE {table} SET {column} = '{name}' WHERE {column} || '' = 'elsewhere'",
    ):
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA writable_schema = ON")
        kept = db.execute("SELECT * FROM sqlite_master WHERE name = ?", (index,)).fetchone()
        (sql,) = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        is_second = statement.startswith(f"UPDATE {table} SET {column} = '{name}'")
        if is_second:
            bare = sql.replace(f"{column} TEXT NOT NULL UNIQUE", f"{column} TEXT NOT NULL")
            bare = bare.replace(f"{column} TEXT PRIMARY KEY", f"{column} TEXT")
            db.execute("DELETE FROM sqlite_master WHERE name = ?", (index,))
            db.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (bare, table))
            db = _anew(db, path)
        db.execute(statement)
        if is_second:
            db.execute("PRAGMA writable_schema = ON")
            db.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, table))
            db.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", kept)
            db = _anew(db, path)
        db.close()


def _anew(db: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    (version,) = db.execute("PRAGMA schema_version").fetchone()
    db.execute(f"PRAGMA schema_version = {version + 1}")
    db.close()
    return sqlite3.connect(path, isolation_level=None)


async def test_a_run_that_its_index_lost_does_not_begin_again(tmp_path: Path) -> None:
    """Whoever starts it is told that the index is damaged; nothing is paid twice."""
    path = tmp_path / "o.db"
    paid.clear()
    async with App(SQLiteStore(path)) as app:
        assert 5 == await (await app.start(buy, 5, id="order"))
    lose_from_index(path, "runs", "run_id", "order")

    async with App(SQLiteStore(path)) as app:
        with pytest.raises(CorruptRecord, match=r"run order.*REINDEX"):
            await (await app.start(buy, 5, id="order"))
        with pytest.raises(CorruptRecord, match=r"run order.*REINDEX"):
            await app.submit(buy, 5, id="order")
        assert 6 == await (await app.start(buy, 6, id="other"))
        problems = (await app.store.health()).problems

    assert [5, 6] == paid
    assert any("sqlite_autoindex_runs_1" in each for each in problems)


async def test_an_index_made_anew_is_enough(tmp_path: Path) -> None:
    """The remedy that the error names."""
    path = tmp_path / "o.db"
    paid.clear()
    async with App(SQLiteStore(path)) as app:
        await (await app.start(buy, 5, id="order"))
    lose_from_index(path, "runs", "run_id", "order")
    with sqlite3.connect(path) as db:
        db.execute("REINDEX")
    db.close()

    async with App(SQLiteStore(path)) as app:
        assert 5 == await (await app.start(buy, 5, id="order"))

    assert [5] == paid


async def deleted(path: Path) -> Store:
    store = SQLiteStore(path)
    await store.commit([entry("r", 0)])
    await store.commit([entry("r", 1, header=header(status="done", ended_at=START_MS))])
    assert await delete_one(store, "r", seq=2, digest=b"", keep_until=1 << 60)
    return store


async def test_a_tombstone_that_its_index_lost_still_keeps_its_id(tmp_path: Path) -> None:
    """The id of a deleted run stays taken."""
    path = tmp_path / "o.db"
    await (await deleted(path)).close()
    lose_from_index(path, "tombstones", "run_id", "r")

    store = SQLiteStore(path)
    (refused,) = await store.commit([entry("r", 0)])
    await store.close()

    assert refused is not None
    assert refused.gone


async def test_an_outcome_that_its_index_lost_is_found(tmp_path: Path) -> None:
    """A transactional step that happened is not done again."""
    path = tmp_path / "o.db"
    store = SQLiteStore(path)
    await store.commit([entry("r", 0)])
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO outcomes VALUES (1, 'r', 's', 1, 1, x'01')")
    db.close()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA writable_schema = ON")
    # An index that has nothing: that of an empty table.
    db.execute("CREATE TABLE bare (run_id TEXT, step TEXT, UNIQUE (run_id, step))")
    db.execute(
        "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master"
        " WHERE name = 'sqlite_autoindex_bare_1') WHERE name = 'sqlite_autoindex_outcomes_1'"
    )
    _anew(db, path).close()
    await store.close()

    store = SQLiteStore(path)
    outcome = await store.transactions.outcome_of(Attempt(run_id="r", step="s", seq=1, epoch=1))
    await store.close()

    assert b"\x01" == outcome
