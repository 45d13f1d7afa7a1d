"""A store that was cut off is never taken for a new one; a file that is nobody's is left alone."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from outlive.app.open import open_app
from outlive.errors import StoreError, StoreUnavailable
from outlive.stores.sqlite.store import SQLiteStore
from outlive.testing.suite.entries import entry
from tests.stores.test_sqlite_file import mode

LOST = "o.db is empty and was a store.*backup"


async def made(folder: Path) -> Path:
    """A store with a run."""
    path = folder / "o.db"
    store = SQLiteStore(path)
    await store.commit([entry("r", 0)])
    await store.close()
    return path


def is_empty(path: Path) -> bool:
    return path.stat().st_size == 0


async def test_a_store_that_was_cut_to_nothing_is_refused(tmp_path: Path) -> None:
    """Whoever drives is told that something is lost, and makes nothing in its place."""
    path = await made(tmp_path)
    os.truncate(path, 0)

    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=LOST):
            SQLiteStore(path)
    assert is_empty(path)


async def test_a_store_whose_tables_are_gone_is_refused(tmp_path: Path) -> None:
    """Also where SQLite finds nothing wrong with the file."""
    path = await made(tmp_path)
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 1")
    db.close()

    with pytest.raises(StoreUnavailable, match=LOST):
        SQLiteStore(path)


async def test_a_log_beside_nothing_is_kept(tmp_path: Path) -> None:
    """SQLite would drop the log of an empty file; it may be all that is left."""
    path, log = tmp_path / "o.db", tmp_path / "o.db-wal"
    path.touch()
    log.write_bytes(b"what was acknowledged")

    with pytest.raises(StoreUnavailable, match=LOST):
        SQLiteStore(path)
    assert b"what was acknowledged" == log.read_bytes()


async def test_a_store_that_is_cut_off_while_it_is_open_is_not_made_anew(tmp_path: Path) -> None:
    """A connection that is opened later finds nothing, and says so."""
    path = await made(tmp_path)
    store = SQLiteStore(path)
    store._connections.before_fork()
    store._connections.after_fork_in_parent()
    os.truncate(path, 0)

    with pytest.raises(StoreError, match=LOST):
        await store.commit([entry("s", 0)])
    await store.close()
    assert is_empty(path)


async def test_a_store_that_was_removed_may_be_begun_anew(tmp_path: Path) -> None:
    """The folder of its workers may still be there."""
    path = await made(tmp_path)
    path.unlink()

    await made(tmp_path)
    assert not is_empty(path)


async def test_a_store_of_an_earlier_release_gets_its_mark(tmp_path: Path) -> None:
    """It was made before there were any."""
    path = await made(tmp_path)
    (tmp_path / "o.db-workers" / "made").unlink()
    (tmp_path / "o.db-workers").rmdir()
    await SQLiteStore(path).close()
    os.truncate(path, 0)

    with pytest.raises(StoreUnavailable, match=LOST):
        SQLiteStore(path)


async def test_an_empty_file_that_is_nobodys_is_taken(tmp_path: Path) -> None:
    """As a new one, and so it is private."""
    path = tmp_path / "o.db"
    path.touch()
    path.chmod(0o644)

    await made(tmp_path)
    assert 0o600 == mode(path)


def test_who_only_looks_makes_no_store_of_an_empty_file(tmp_path: Path) -> None:
    """Nothing in it, nothing beside it."""
    path = tmp_path / "o.db"
    path.touch()

    with pytest.raises(StoreUnavailable, match=r"o.db is empty, no store is in it.*OUTLIVE_STORE"):
        open_app(f"sqlite:///{path}", must_exist=True, only_looks=True)
    assert (["o.db"], True) == (os.listdir(tmp_path), is_empty(path))


@pytest.mark.parametrize("is_database", [False, True])
def test_nothing_is_left_beside_a_foreign_file(tmp_path: Path, is_database: bool) -> None:
    """Neither by those who look nor by those who would drive."""
    path = tmp_path / "notes"
    path.write_text("hello")
    if is_database:
        path.unlink()
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE notes (note)")
        db.close()

    for looks in (True, False):
        with pytest.raises(StoreUnavailable, match="choose another file"):
            open_app(f"sqlite:///{path}", must_exist=looks, only_looks=looks)
    assert ["notes"] == os.listdir(tmp_path)
