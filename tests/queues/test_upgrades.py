"""A file that was made before runs had places in queues."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from outlive.stores.sqlite.schema import _UPGRADES as STEPS
from outlive.stores.sqlite.store import SQLiteStore
from outlive.testing.suite.entries import WANTED, parked
from tests.harness.schemas import taken_back


async def test_a_file_of_before_is_brought_up_to_date(tmp_path: Path) -> None:
    """What was there stays; runs that name a queue are found through it."""
    path = tmp_path / "o.db"
    store = SQLiteStore(path)
    await store.commit([parked("r", wake_at=1, queue="q"), parked("d", wake_at=2)])
    await store.close()
    db = sqlite3.connect(path)
    for statement in ("DROP TABLE queues", "DROP TABLE spent", "DROP TABLE outcomes"):
        db.execute(statement)
    for statement in taken_back(STEPS[5]):
        db.execute(statement.replace("{s}", ""))
    for index in (
        "due",
        "with_mail",
        "queued",
        "oldest",
        "woken",
        "held_of_queue",
        "by_end",
        "again",
    ):
        db.execute(f"DROP INDEX runs_{index}")
    db.execute("DROP INDEX tombstones_again")
    for column in ("queue_key", "priority", "units"):
        db.execute(f"ALTER TABLE runs DROP COLUMN {column}")
    for statement in (
        "CREATE INDEX runs_due ON runs (flow, version, wake_at)",
        "CREATE INDEX runs_with_mail ON runs (flow, version)",
        "UPDATE meta SET value = '2' WHERE name = 'outlive.schema'",
    ):
        db.execute(statement)
    db.commit()
    db.close()

    store = SQLiteStore(path)

    offers = (await store.claim("w", WANTED, 10)).offers
    assert {("r", "q", 1), ("d", "default", 1)} == {
        (offer.head.run_id, offer.header.queue, offer.header.units) for offer in offers
    }
    await store.close()
