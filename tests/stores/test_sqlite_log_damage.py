"""Damage in the middle of SQLite's log: what can be noticed of it is."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from outlive.stores.sqlite.store import SQLiteStore
from outlive.testing.suite.entries import entry

COMMITS = 12


async def crashed(folder: Path) -> Path:
    """A store as a kill leaves it: all of it is in the log."""
    store = SQLiteStore(folder / "o.db")
    for number in range(COMMITS):
        await store.commit([entry(f"r{number}", 0)])
    path = folder / "crashed" / "o.db"
    path.parent.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{folder / 'o.db'}{suffix}", f"{path}{suffix}")
    await store.close()
    return path


def flip(path: Path, place: float) -> None:
    log = Path(f"{path}-wal")
    body = bytearray(log.read_bytes())
    body[round(len(body) * place)] ^= 0x40
    log.write_bytes(body)


async def test_commits_behind_a_damaged_frame_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite does not see them; whoever opens the store hears of it, and so does the doctor."""
    path = await crashed(tmp_path)
    flip(path, 0.5)

    store = SQLiteStore(path)
    health = await store.health()
    await store.close()

    assert any("-wal is damaged behind frame" in each for each in health.problems)
    assert any("-wal is damaged behind frame" in each.message for each in caplog.records)


@pytest.mark.parametrize("is_cut", [True, False])
async def test_a_log_that_a_crash_cut_off_is_no_damage(tmp_path: Path, is_cut: bool) -> None:
    """Its last commit may have been under way."""
    path = await crashed(tmp_path)
    if is_cut:
        log = Path(f"{path}-wal")
        log.write_bytes(log.read_bytes()[:-3000])
    else:
        flip(path, 0.9999)

    store = SQLiteStore(path)
    problems = list((await store.health()).problems)
    await store.commit([entry("more", 0)])
    await store.close()

    assert [] == problems


async def test_a_log_that_begins_anew_is_no_damage(tmp_path: Path) -> None:
    """It was copied into the file, and whoever was the first to write after that rolled back."""
    path = tmp_path / "o.db"
    store = SQLiteStore(path)
    for number in range(COMMITS):
        await store.commit([entry(f"r{number}", 0)])
    db = sqlite3.connect(path, isolation_level=None)
    assert (0, 0) != db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    db.execute("BEGIN IMMEDIATE")
    db.execute("CREATE TABLE t (x)")
    db.execute("ROLLBACK")
    problems = list((await store.health()).problems)
    db.close()
    await store.close()

    assert [] == problems
