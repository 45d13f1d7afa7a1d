"""Many keys: one of them is found by its tag as if there were few."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import outlive
from outlive import LogView, LogWrite
from outlive.stores.postgres.rows import find_journals as find_on_server
from outlive.stores.sqlite.rows import find_journals
from outlive.stores.types import Query
from tests.conftest import Figure, Stretch
from tests.harness.stores import url_of
from tests.stores.test_sqlite_find import Planned

AT_ONCE, LOOKS = 500, 200
MANY, MANY_FULL = 5_000, 100_000
LIMIT_MS = 1.0
#: Of a page of a tag that all keys have: it is sorted, and only its rows are read.
PAGE_LIMIT_MS = 200.0


def write(number: int) -> Any:
    def decide(view: LogView) -> LogWrite:
        return LogWrite(values=[number], tags={"token": f"t{number}", "kind": "all"})

    return decide


@pytest.mark.alone("time")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_one_of_many_tokens_is_found_at_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, figure: Figure, stretch: Stretch
) -> None:
    """By an index on every store, in less than a millisecond; appended in few commits."""
    url = url_of(kind, tmp_path, request)
    many = MANY_FULL if request.getfixturevalue("full") else MANY
    async with outlive.open(url, drive=False) as app:
        log = app.log("inbox")
        for first in range(0, many, AT_ONCE):
            some = range(first, first + AT_ONCE)
            await asyncio.gather(*(log.append(f"m{n}", write(n)) for n in some))
        commits = app._logs.group.counts.commits
        took = []
        for number in range(0, many, many // LOOKS):
            began = time.perf_counter()
            page = log.sync.find(tag=("token", f"t{number}"))
            took.append(time.perf_counter() - began)
            assert [f"m{number}"] == [found.key for found in page.items]
        began = time.perf_counter()
        common = log.sync.find(tag=("kind", "all"), limit=10)
        page_took = time.perf_counter() - began
        plan = _plan(app, kind, tmp_path, f"t{many // 2}")

    figure(f"logs: ms to find one of {many} tokens on {kind}", round(1000 * median(took), 3))
    assert [f"m{number}" for number in range(10)] == [found.key for found in common.items]
    assert "tags" in plan
    assert "SCAN" not in plan
    assert "Seq Scan" not in plan
    assert commits <= 5 * many / AT_ONCE
    slower = stretch()
    assert 1000 * median(took) < LIMIT_MS * slower
    assert 1000 * page_took < PAGE_LIMIT_MS * slower


def _plan(app: Any, kind: str, folder: Path, token: str) -> str:
    """How the store goes about it."""
    query = Query(prefix="outlive/log/inbox/", tag=("token", token))
    if kind == "sqlite":
        planned = Planned(folder / "o.db")
        find_journals(planned, query, 0, 11)  # type: ignore[arg-type]  # all that is used of one
        return planned.plan
    told: list[str] = []

    def ask(sql: str, *parameters: Any) -> Any:
        told.extend(row[0] for row in app.store._other(f"EXPLAIN {sql}", *parameters))
        return app.store._other(sql, *parameters)

    app.store._other("ANALYZE {s}.tags")
    find_on_server(ask, query, 0, 11)
    return "\n".join(told)
