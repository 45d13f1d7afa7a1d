"""Finding in SQLite: few are found by what they are called, however many others there are."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from outlive.stores.sqlite.rows import find_journals
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import PAGE_MAX, Query
from outlive.testing.suite.entries import entry


class Planned:
    """A connection that says how its last query is carried out."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path)
        self.plan = ""

    def execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        self.plan = " ".join(
            row[3] for row in self._db.execute(f"EXPLAIN QUERY PLAN {sql}", values)
        )
        return self._db.execute(sql, values)


@pytest.mark.parametrize(("count", "is_by_name"), [(3, True), (PAGE_MAX + 1, False)])
async def test_few_are_found_by_their_prefix(count: int, is_by_name: bool, tmp_path: Path) -> None:
    """Many are gone through in their order, page by page."""
    store = SQLiteStore(tmp_path / "o.db")
    await store.commit([entry(f"other-{number}", 0) for number in range(50)])
    await store.commit([entry(f"mark/{number}", 0) for number in range(count)])
    db = Planned(tmp_path / "o.db")

    found = find_journals(db, Query(prefix="mark/"), 0, 2)  # type: ignore[arg-type]

    assert ["mark/0", "mark/1"] == [run.head.run_id for _, run in found]
    assert is_by_name == ("run_id>?" in db.plan)
    await store.close()
