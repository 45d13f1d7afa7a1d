"""Room in the write-ahead log: made once, when it pays, and nobody's data is in it."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from outlive.errors import StoreFailed
from outlive.stores.sqlite import health as sqlite_log
from outlive.stores.sqlite.health import CHECKPOINT_PAGES, COMMITS_BEFORE
from outlive.stores.sqlite.schema import PAGE_BYTES
from outlive.stores.sqlite.store import SQLiteStore
from outlive.testing.suite.entries import entry
from tests.stores.faulty import Faults

ROOM_BYTES = CHECKPOINT_PAGES * PAGE_BYTES


async def commit(store: SQLiteStore, count: int, *, first: int = 0) -> None:
    """So many commits, and whatever they led to."""
    for number in range(first, first + count):
        assert [None] == await store.commit([entry("r", number)])
    for thread in threading.enumerate():
        if thread.name == "outlive-log":
            thread.join(30)


async def test_the_log_is_given_its_room_once(tmp_path: Path) -> None:
    """After a few commits it is as long as it will be, however many follow."""
    log = tmp_path / "o.db-wal"
    store = SQLiteStore(tmp_path / "o.db")
    await commit(store, COMMITS_BEFORE - 1)
    before = log.stat().st_size
    await commit(store, 1, first=COMMITS_BEFORE - 1)
    room = log.stat().st_size
    await commit(store, 300, first=COMMITS_BEFORE)

    assert before < ROOM_BYTES // 4
    assert ROOM_BYTES <= room == log.stat().st_size
    await store.close()


async def test_a_process_that_dies_leaves_only_what_was_committed(tmp_path: Path) -> None:
    """Whoever opens a copy of the files finds each commit, whole, and nothing of the room."""
    store = SQLiteStore(tmp_path / "o.db")
    await commit(store, COMMITS_BEFORE)
    for name in ("o.db", "o.db-wal"):
        (tmp_path / f"copy-{name}").write_bytes((tmp_path / name).read_bytes())
    await store.close()

    db = sqlite3.connect(tmp_path / "copy-o.db")
    assert [("ok",)] == db.execute("PRAGMA integrity_check").fetchall()
    assert (COMMITS_BEFORE,) == db.execute("SELECT count(*) FROM records").fetchone()
    assert (0,) == db.execute("SELECT count(*) FROM nodes").fetchone()
    db.close()


async def test_a_log_that_has_room_is_left_alone(tmp_path: Path) -> None:
    """The second process that opens the file writes nothing for it."""
    first, faults = SQLiteStore(tmp_path / "o.db"), Faults()
    await commit(first, COMMITS_BEFORE)
    second = SQLiteStore(tmp_path / "o.db", connect=faults.connect)
    await commit(second, COMMITS_BEFORE, first=COMMITS_BEFORE)

    assert not [sql for sql in faults.statements if "zeroblob" in sql]
    await second.close()
    await first.close()


async def test_a_disk_with_little_room_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's last megabytes are taken for speed."""
    store = SQLiteStore(tmp_path / "o.db")
    little = SimpleNamespace(f_bavail=10, f_frsize=1_000_000)
    monkeypatch.setattr(sqlite_log.os, "statvfs", lambda path: little)
    await commit(store, COMMITS_BEFORE + 1)

    assert (tmp_path / "o.db-wal").stat().st_size < ROOM_BYTES
    await store.close()


async def test_a_full_disk_stops_nobody(tmp_path: Path) -> None:
    """There is no room to be made: commits go on as before, with the same settings."""
    faults = Faults()
    faults.errors["INSERT INTO nodes"] = sqlite3.SQLITE_FULL
    store = SQLiteStore(tmp_path / "o.db", connect=faults.connect)
    await commit(store, COMMITS_BEFORE + 1)

    assert [sql for sql in faults.statements if "zeroblob" in sql]
    with store._connections.reading() as db:
        fresh = sqlite3.connect(tmp_path / "o.db")
        default = fresh.execute("PRAGMA cache_size").fetchone()
        assert default == db.execute("PRAGMA cache_size").fetchone()
        fresh.close()
    await store.close()


async def test_a_flush_that_fails_is_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what the disk holds then, so nothing is written after it."""
    store = SQLiteStore(tmp_path / "o.db")

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    await commit(store, COMMITS_BEFORE)

    with pytest.raises(StoreFailed, match="not written any more"):
        await store.commit([entry("r", COMMITS_BEFORE)])
    monkeypatch.undo()
    await store.close()
