"""Rows of a SQLite file that lie."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import outlive
from outlive.app.app import App
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
from tests.workers.hint_rules import QUICK, Damage, HintRules, buy

#: What a column of SQLite may hold, whatever its type.
GARBAGE = ("x'ff00fe'", "'gar' || char(0) || 'bage'", "1.5e300", "''")
COLUMNS = (
    *("seq", "epoch", "link", "worker", "posted", "consumed", "flow", "version", "format"),
    *("status", "family", "started_at", "wake_at", "queue", "parent", "tags", "reason"),
    *("chapter", "chapter_link", "queue_key", "priority", "units"),
)


class TestSQLite(HintRules):
    """In one file."""

    LAST_RECORD = "SELECT max(x.seq) FROM records x WHERE x.run = runs.id"

    @pytest.fixture
    def opened(self, tmp_path: Path) -> Callable[[], Store]:
        return lambda: SQLiteStore(tmp_path / "o.db", lease_seconds=30.0)

    @pytest.fixture
    def damage(self, tmp_path: Path) -> Damage:
        def execute(sql: str) -> None:
            with sqlite3.connect(tmp_path / "o.db") as db:
                db.execute(sql)
            db.close()

        return execute

    @pytest.mark.parametrize("column", COLUMNS)
    async def test_garbage_in_a_row_ends_no_worker(
        self, store: Store, damage: Damage, column: str
    ) -> None:
        """Whatever bytes stand in whatever column."""
        async with App(store, settings=QUICK) as app:
            for number, garbage in enumerate(GARBAGE):
                await app.submit(buy, "bad", id=f"bad-{number}")
                damage(f"UPDATE runs SET {column} = {garbage} WHERE run_id = 'bad-{number}'")
            async with app.worker([buy]):
                await asyncio.sleep(0.1)
                assert "b" == await (await app.submit(buy, "b", id="good")).outcome(timeout=10)

    @pytest.mark.parametrize("garbage", GARBAGE)
    async def test_garbage_in_limits_ends_no_worker(
        self, store: Store, damage: Damage, garbage: str
    ) -> None:
        """Nothing of that queue begins; others go on."""
        async with App(store, settings=QUICK) as app:
            await app.set_queue(outlive.Queue("q", rate=outlive.Rate(5), concurrency=2))
            for column in ("concurrency", "per_key", "per_worker", "rate", "rate_ms", "turn"):
                damage(f"UPDATE queues SET {column} = {garbage}")
                await app.submit(buy.options(queue="q"), "bad", id=f"bad-{column}")
            damage(f"INSERT INTO spent VALUES ('q', {garbage}, {garbage})")
            async with app.worker([buy]):
                await asyncio.sleep(0.1)
                assert "b" == await (await app.submit(buy, "b", id="good")).outcome(timeout=5)
                await app.queues()
