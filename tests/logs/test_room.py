"""What is dropped, or over, frees its bytes."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

import outlive
from outlive import App, LogWrite, Retention
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.stores.postgres.url import parse_place
from outlive.testing.suite.entries import HandClock

KEYS = [f"k{number}" for number in range(40)]


async def fill(app: App) -> None:
    """About a megabyte of values that do not resemble one another."""
    chance = Random(7)
    log = app.log("sessions")
    for key in KEYS:
        texts = [chance.randbytes(6_000).hex() for _ in range(2)]
        write = LogWrite(values=texts, tags={"owner": "ann"})
        await log.append(key, lambda view, write=write: write)


def rows(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as db:
        names = ("runs", "records", "nodes", "tags")
        return {n: db.execute(f"SELECT count(*) FROM {n}").fetchone()[0] for n in names}


async def test_a_drop_frees_the_file(tmp_path: Path) -> None:
    """Rows of journals, records, nodes and tags go, and their pages are free for what comes."""
    path = tmp_path / "o.db"
    async with outlive.open(f"sqlite:///{path}", drive=False) as app:
        await fill(app)
        full, size = rows(path), os.path.getsize(path)
        assert len(KEYS) == await app.log("sessions").drop(KEYS)
        empty = rows(path)
        await fill(app)

    assert all(full[name] >= len(KEYS) for name in full)
    empty["records"] -= 1  # the place of the last one
    assert {"runs": 0, "records": 0, "nodes": 0, "tags": 0} == empty
    assert os.path.getsize(path) < 1.3 * max(size, 1_000_000)


async def test_a_drop_frees_the_tables(url: str) -> None:
    """The same on a server."""
    place = parse_place(url)

    def count() -> list[int]:
        with psycopg.connect(place.conninfo) as db:
            tables = [f'"{place.schema}".{name}' for name in ("runs", "records", "nodes", "tags")]
            found: list[Any] = [
                db.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() for table in tables
            ]
            return [row[0] for row in found]

    async with outlive.open(url, drive=False) as app:
        await fill(app)
        assert all(each >= len(KEYS) for each in count())
        await app.log("sessions").drop(KEYS)

    assert [0, 0, 0, 0] == count()


@pytest.mark.parametrize("hours", [0.5, 3.0])
async def test_a_sweep_deletes_keys_whose_window_is_over(hours: float) -> None:
    """And only those; keys that are due and keys without a window stay."""
    clock, store = HandClock(), MemoryStore()
    ports = Ports(clock=clock)
    async with App(store, ports=ports, drive=False) as app:
        tokens, kept = app.log("tokens", keep="1h"), app.log("kept")
        for number in range(30):
            await tokens.append(f"t{number}", lambda view: ["x" * 900])
        await kept.append("k", lambda view: [1])
        clock.advance(3600 * hours)
        await tokens.append("new", lambda view: [1])
        await tokens.append("due", lambda view: LogWrite(values=[1], wake_at=view.now))
        clock.advance(1)
        await app.retain(Retention())

    left = {name.rpartition("/")[2] for name in store._journals if name.startswith("outlive/log")}
    over = set() if hours < 1 else {f"t{number}" for number in range(30)}
    assert {f"t{n}" for n in range(30)} | {"new", "due", "k"} == left | over
    assert not over & left


async def test_what_a_kill_left_of_a_drop_is_swept() -> None:
    """Ended but not deleted: the next sweep has it."""

    class Deaf(MemoryStore):
        async def delete(self, batch: object) -> list[bool]:
            raise ConnectionError("killed here")

    store = Deaf()
    async with App(store, drive=False) as app:
        log = app.log("sessions")
        await log.append("a", lambda view: ["x" * 900])
        with pytest.raises(ConnectionError):
            await log.drop(["a"])
        assert [] == list(await log.read("a"))
        assert [] == list((await log.find()).items)
    store.__class__ = MemoryStore
    async with App(store, drive=False) as app:
        await app.retain(Retention())

    assert not store._journals
    assert not any(store._nodes.values())
