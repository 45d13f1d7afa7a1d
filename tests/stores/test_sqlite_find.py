"""Finding in SQLite: few are found by what they are called, however many others there are."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from outlive.stores.sqlite.commit import VIEWS, create_view
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


def written_by(db: sqlite3.Connection, view: str) -> set[str]:
    """The tables and indexes that a row inserted into a view may change."""
    create_view(db, view)  # type: ignore[arg-type]
    columns = len(VIEWS[view][0].split(", "))
    marks = ",".join("?" * columns)
    steps = db.execute(f"EXPLAIN INSERT INTO {view} VALUES ({marks})", [None] * columns).fetchall()
    roots = dict(db.execute("SELECT rootpage, name FROM sqlite_master WHERE rootpage > 0"))
    opened = {roots[step[3]] for step in steps if step[1] == "OpenWrite" and step[3] in roots}
    return opened - {"sqlite_autoindex_runs_1"}  # by which the run is found


async def test_a_plain_append_writes_no_index_of_runs(tmp_path: Path) -> None:
    """Nor does a published value; what a run is listed by is written when that changes."""
    store = SQLiteStore(tmp_path / "o.db")
    await store.commit([entry("r", 0)])
    await store.close()
    db = sqlite3.connect(tmp_path / "o.db")

    appended = written_by(db, "appending")
    shown = written_by(db, "showing")
    db.close()

    assert {"runs", "records", "records_of_run"} == appended
    # What a run is from its beginning is not written again.
    fixed = {"runs_by_start", "runs_of_flow", "runs_of_version", "runs_of_family"}
    assert fixed.isdisjoint(shown)
    assert "runs_of_status" in shown
