"""A SQLite file that is written at once, or not at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from outlive.stores.sqlite import SQLiteStore
from outlive.testing.store_entries import entry


async def test_at_once_or_not_at_all(tmp_path: Path) -> None:
    """Whoever must not wait is told that somebody writes; nothing is written, and later it is."""
    store = SQLiteStore(tmp_path / "o.db")
    await store.commit([entry("r", 0)])
    writer = sqlite3.connect(tmp_path / "o.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")

    assert await store.commit_at_once([entry("r", 1)]) is None

    with store._connections.reading() as db:
        assert db.execute("PRAGMA busy_timeout").fetchone()[0] > 0, "the others still wait"
    writer.execute("ROLLBACK")
    writer.close()
    reading = await store.read("r")
    assert reading is not None
    assert 1 == reading.head.seq
    assert [None] == await store.commit_at_once([entry("r", 1)])
    (conflict,) = await store.commit_at_once([entry("r", 1, record=b"another")]) or ()
    assert conflict is not None
    await store.close()
