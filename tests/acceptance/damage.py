"""Journals to damage: written by the real store, copied per test, spoilt through sqlite3."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from outlive.app.app import App
from outlive.app.open import open_app
from outlive.cli.verify import check_store
from outlive.views.damage import Damage
from tests.acceptance import shop

#: run -> what it is like.
RUNS = ("bought", "counted", "napping", "greeted")

Row = tuple[int, int, int, bytes]


async def write_journals(path: Path) -> None:
    """A store with runs that ended, one that sleeps, and a key."""
    with chdir(path.parent):
        await _write(path)


async def _write(path: Path) -> None:
    async with open_app(f"sqlite:///{path}") as app:
        await (await app.start(shop.buy, shop.Order("7", 5), id="bought"))
        await (await app.start(shop.count, 12, id="counted"))
        await app.start(shop.nap, 3600, id="napping")
        await (await app.start(shop.greet, "Ada", id="greeted"))
        await app.submit(shop.greet, "Bob", id="pending")
        napping = await app.get("napping")
        while await napping.status() != "waiting":
            await asyncio.sleep(0.01)


class Spoiler:
    """A store's file, opened behind its back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA synchronous = OFF")

    def records(self, run_id: str) -> list[Row]:
        """(id, run, seq, body) of each record."""
        return self.db.execute(
            "SELECT r.id, r.run, r.seq, r.body FROM records r JOIN runs ON runs.id = r.run"
            " WHERE run_id = ? ORDER BY r.seq",
            (run_id,),
        ).fetchall()

    def head(self, run_id: str) -> int:
        """The seq of the run's last event, as its head has it."""
        row = self.db.execute("SELECT seq FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return int(row[0])

    def set_body(self, record: int, body: bytes) -> None:
        """Replace one record's bytes."""
        self.db.execute("UPDATE records SET body = ? WHERE id = ?", (body, record))

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Whatever is done to these tables inside is taken back afterwards."""
        for table in ("records", "runs", "mail"):
            self.db.execute(f"CREATE TEMP TABLE kept_{table} AS SELECT * FROM main.{table}")
        try:
            yield
        finally:
            self.db.execute("BEGIN IMMEDIATE")
            for table in ("records", "runs", "mail"):
                self.db.execute(f"DELETE FROM main.{table}")
                self.db.execute(f"INSERT INTO main.{table} SELECT * FROM kept_{table}")
                self.db.execute(f"DROP TABLE kept_{table}")
            self.db.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        self.db.close()


class Bench:
    """An app and a spoiler on one copy of the journals."""

    def __init__(self, app: App, spoiler: Spoiler) -> None:
        self.app, self.spoiler = app, spoiler
        self.tried = self.found = 0

    async def look(self, only: str | None = None) -> list[Damage]:
        """What verify says now."""
        return (await check_store(self.app, only)).damage

    async def expect(self, run_id: str, seq: int | None, only: str | None = None) -> None:
        """Verify names this place, and no other run."""
        self.tried += 1
        damage = await self.look(only)
        places = {(each.run, each.seq) for each in damage}
        assert (run_id, seq) in places, f"{run_id}, seq {seq} not in {damage}"
        assert {run_id} == {each.run for each in damage}, damage
        assert all(each.why for each in damage)
        self.found += 1


def copy(written: Path, folder: Path) -> Path:
    """The journals once more, in a folder where they may be spoilt."""
    path = folder / "spoilt.db"
    shutil.copy(written, path)
    return path
