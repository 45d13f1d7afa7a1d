"""Checkpoints of a state that grows by a kilobyte per step: ours, the document's recipe, the floor.

The last word says which. ``ours`` is ``DurableRunner.checkpoint``. ``recipe`` is the SQLite table
that Durable Run documents: the whole state as JSON, one upsert per (run, step). ``bare`` writes
nothing but what is new, through sqlite3. Each is one commit (WAL, synchronous=FULL) per checkpoint.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.contest import Answer, Stopwatch, kind, main, settings_of
from outlive.checkpoints import DurableRunner, SnapshotStore, SQLiteStorageBackend

ADDED_BYTES = 1_000
RECIPE = """
CREATE TABLE snapshots (
    snapshot_id TEXT PRIMARY KEY, run_id TEXT NOT NULL, step_id TEXT NOT NULL,
    created_at TEXT NOT NULL, state TEXT NOT NULL, metadata TEXT, UNIQUE(run_id, step_id)
);
CREATE INDEX idx_snapshots_run ON snapshots(run_id);
CREATE INDEX idx_snapshots_created ON snapshots(created_at);
"""
UPSERT = """
INSERT INTO snapshots VALUES (?, 'run', ?, ?, ?, '{}') ON CONFLICT (run_id, step_id) DO UPDATE
SET state = excluded.state, created_at = excluded.created_at
"""


def texts(count: int) -> list[str]:
    """What is new at each step; hardly smaller when compressed."""
    dice = random.Random(7)
    return ["".join(dice.choices(string.printable, k=ADDED_BYTES)) for _ in range(count)]


def open_database(folder: Path, schema: str) -> sqlite3.Connection:
    """Each statement a transaction of its own, as durable as ours."""
    database = sqlite3.connect(folder / "checkpoints.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.executescript(schema)
    return database


class Saver:
    """Grows a state, and takes the time of each save."""

    def __init__(self, size: int) -> None:
        self._texts = texts(size)
        self.watch, self.gaps = Stopwatch(), list[float]()

    def grown(self) -> Any:
        """(number, what is new, the whole state) per step."""
        state: dict[str, Any] = {"results": [], "last_step": -1}
        for number, text in enumerate(self._texts):
            state["results"].append(text)
            state["last_step"] = number
            yield number, text, state

    def answer(self, settings: Answer) -> Answer:
        """The usual figures."""
        return {**self.watch.answer(len(self.gaps), self.gaps), "settings": settings}


def through(schema: str, save: Callable[[sqlite3.Connection, int, str, Any], None]) -> Any:
    """A way that writes to a table of its own."""

    def work(size: int, folder: Path) -> Answer:
        database, saver = open_database(folder, schema), Saver(size)
        settings = settings_of(lambda pragma: database.execute(pragma).fetchone()[0])
        with saver.watch.running():
            for number, text, state in saver.grown():
                began = time.perf_counter()
                save(database, number, text, state)
                saver.gaps.append(time.perf_counter() - began)
        database.close()
        return saver.answer(settings)

    return work


def save_new(database: sqlite3.Connection, number: int, text: str, state: Any) -> None:
    """What is new and nothing else."""
    database.execute("INSERT INTO added VALUES (?, ?)", (number, text))


def save_whole(database: sqlite3.Connection, number: int, text: str, state: Any) -> None:
    """As documented."""
    row = (str(uuid4()), f"step-{number}", str(time.time()), json.dumps(state))
    database.execute(UPSERT, row)


def ours(size: int, folder: Path) -> Answer:
    """As users call it."""
    saver = Saver(size)

    async def main() -> None:
        storage = SQLiteStorageBackend(db_path=str(folder / "checkpoints.db"))
        await storage.initialize()
        runner = DurableRunner(snapshot_store=SnapshotStore(storage_backend=storage))
        with saver.watch.running():
            for number, _, state in saver.grown():
                began = time.perf_counter()
                await runner.checkpoint("run", f"step-{number}", state)
                saver.gaps.append(time.perf_counter() - began)
        await storage.close()

    asyncio.run(main())
    # The store sets this on every connection, and reads it back.
    return saver.answer({"journal_mode": "wal", "synchronous": "FULL"})


WAYS: dict[str, Callable[[int, Path], Answer]] = {
    "ours": ours,
    "recipe": through(RECIPE, save_whole),
    "bare": through("CREATE TABLE added (step INTEGER PRIMARY KEY, body TEXT)", save_new),
}

if __name__ == "__main__":
    main({"checkpoint": WAYS[kind("ours")]}, f"SQLite {sqlite3.sqlite_version}")
