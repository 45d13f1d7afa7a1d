"""A run that is submitted in a user's own transaction begins if that commits, and only then."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

import outlive
from outlive import sync
from outlive.app.app import App
from outlive.app.open import open_app
from outlive.errors import RunIdTaken, RunNotFound, UnsafeSettings, UsageError
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.postgres.url import parse_place
from tests.harness.places import Place, PostgresPlace, SQLitePlace
from tests.harness.postgres_server import PostgresServer


@outlive.flow
async def welcome(name: str) -> str:
    return f"hello {name}"


@outlive.flow
async def other(name: str) -> str:
    return name


async def outcome_of(app: App, run_id: str) -> Any:
    async with app.worker([welcome]):
        return await (await app.get(run_id, welcome)).outcome()


async def test_it_begins_with_the_users_commit(place: Place) -> None:
    """Before, nobody sees the run; afterwards a worker drives it, and the user's row is there."""
    db = place.connect()
    async with open_app(place.url) as app:
        db.execute(place.insert(), ("Ann",))
        handle = await app.submit(welcome, "Ann", id="w1", connection=db)
        with pytest.raises(RunNotFound):
            await app.get("w1")
        db.commit()

        assert "w1" == handle.id
        assert "hello Ann" == await outcome_of(app, "w1")
        assert ["Ann"] == place.rows()
    db.close()


async def test_a_rollback_leaves_nothing(place: Place) -> None:
    """Neither a run nor a row; and the id is free."""
    db = place.connect()
    async with open_app(place.url) as app:
        db.execute(place.insert(), ("Ann",))
        await app.submit(welcome, "Ann", id="w1", connection=db)
        db.rollback()

        assert (0, 0) == (place.count("runs"), place.count("records"))
        assert [] == place.rows()
        await app.submit(welcome, "Bob", id="w1")
        assert "hello Bob" == await outcome_of(app, "w1")
    db.close()


async def test_the_same_id_is_the_same_run(place: Place) -> None:
    """Also if it was begun in the same transaction, or before; another's id is refused."""
    db = place.connect()
    async with open_app(place.url) as app:
        await app.submit(welcome, "Old", id="old")
        for _ in range(2):
            await app.submit(welcome, "Ann", id="w1", connection=db)
            await app.submit(welcome, "Old", id="old", connection=db)
        with pytest.raises(RunIdTaken, match="other arguments"):
            await app.submit(welcome, "Bob", id="w1", connection=db)
        with pytest.raises(RunIdTaken, match="flow 'welcome'"):
            await app.submit(other, "Old", id="old", connection=db)
        db.commit()  # being told so has not spoilt the transaction

        assert 2 == place.count("runs")
        assert "hello Ann" == await outcome_of(app, "w1")
    db.close()


async def test_by_name_and_with_options(place: Place) -> None:
    """What submit takes elsewhere it takes here."""
    db = place.connect()
    async with open_app(place.url) as app:
        await app.submit("welcome", "Ann", id="w1", tags={"plan": "pro"}, connection=db)
        db.commit()

        assert {"plan": "pro"} == (await app.find()).items[0].header.tags
        assert "hello Ann" == await outcome_of(app, "w1")
    db.close()


def test_plain_code_has_the_same(place: Place) -> None:
    """On the thread that the connection belongs to."""
    db = place.connect()
    with sync.open(place.url) as app:
        app.submit(welcome, "Ann", id="w1", connection=db)
        db.rollback()
        handle = app.submit(welcome, "Bob", id="w1", connection=db)
        db.commit()

        with app.worker([welcome]):
            assert "hello Bob" == handle.outcome()
    db.close()


async def test_a_connection_that_awaits(postgres_place: PostgresPlace) -> None:
    """Is awaited, whatever it makes of rows."""
    place = postgres_place
    async with (
        open_app(place.url) as app,
        await psycopg.AsyncConnection.connect(
            place.conninfo, row_factory=psycopg.rows.dict_row
        ) as db,
    ):
        async with db.transaction():
            await app.submit(welcome, "Ann", id="w1", connection=db)
            await app.submit(welcome, "Ann", id="w1", connection=db)
            assert 0 == place.count("runs")

        assert "hello Ann" == await outcome_of(app, "w1")


async def test_a_worker_is_woken_by_the_commit(postgres_place: PostgresPlace) -> None:
    """It need not find out by polling, which here it would never do in time."""
    place = postgres_place
    slow = replace(Settings.from_environment(), poll_seconds=30.0)
    async with open_app(place.url, settings=slow) as app, app.worker([welcome]):
        with place.connect() as db:
            await asyncio.sleep(0.5)  # long enough for it to have looked, and to listen
            begun = time.monotonic()
            handle = await app.submit(welcome, "Ann", connection=db)
            db.commit()
            assert "hello Ann" == await handle.outcome()

    assert time.monotonic() - begun < 10


async def test_autocommit_is_refused(place: Place) -> None:
    """It would commit the run by itself; with a transaction in it all is well."""
    async with open_app(place.url) as app:
        db: Any
        if isinstance(place, SQLitePlace):
            db = sqlite3.connect(place.path, isolation_level=None)
        else:
            db = psycopg.connect(place.conninfo, autocommit=True)
        with pytest.raises(UsageError, match="autocommit"):
            await app.submit(welcome, "Ann", connection=db)
        db.execute("BEGIN")
        await app.submit(welcome, "Ann", id="w1", connection=db)
        db.execute("COMMIT")
        db.close()

        assert "hello Ann" == await outcome_of(app, "w1")


async def test_another_file_is_refused(place: Place, tmp_path: Path) -> None:
    """A run that began elsewhere would never be driven."""
    wrong = SQLitePlace(f"sqlite:///{tmp_path}/wrong.db").connect()
    async with open_app(place.url) as app:
        with pytest.raises(UsageError, match="the store is"):
            await app.submit(welcome, "Ann", connection=wrong)
    wrong.close()


async def test_another_server_is_refused(
    postgres_place: PostgresPlace, own_postgres: PostgresServer
) -> None:
    """Even if a store of the same name is there."""
    there = PostgresPlace(own_postgres.url(schema=parse_place(postgres_place.url).schema))
    async with open_app(postgres_place.url) as app:
        with there.connect() as db, pytest.raises(UsageError, match="another database"):
            await app.submit(welcome, "Ann", connection=db)
        with there.connect() as db:
            db.execute(f"DROP SCHEMA {parse_place(there.url).schema} CASCADE")
            with pytest.raises(UsageError, match="another database"):
                await app.submit(welcome, "Ann", connection=db)


async def test_unsafe_settings_are_refused(sqlite_place: SQLitePlace) -> None:
    """A run that was committed must not be lost with the power."""
    db = sqlite_place.connect()
    db.execute("PRAGMA synchronous = NORMAL")
    async with open_app(sqlite_place.url) as app:
        with pytest.raises(UnsafeSettings, match="synchronous=1"):
            await app.submit(welcome, "Ann", connection=db)
    db.close()


async def test_a_commit_that_is_not_waited_for_is_refused(postgres_place: PostgresPlace) -> None:
    """The same on a server; whoever opened the store as unsafe may."""
    place, off = postgres_place, "SET LOCAL synchronous_commit = off"
    async with open_app(place.url) as app, open_app(f"{place.url}&unsafe=yes") as unsafe:
        with place.connect() as db:
            db.execute(off)
            with pytest.raises(UnsafeSettings, match="synchronous_commit=off"):
                await app.submit(welcome, "Ann", connection=db)
        async with await psycopg.AsyncConnection.connect(place.conninfo) as waiting:
            await waiting.execute(off)
            with pytest.raises(UnsafeSettings, match="synchronous_commit=off"):
                await app.submit(welcome, "Ann", connection=waiting)
            await unsafe.submit(welcome, "Ann", id="w1", connection=waiting)

        assert "hello Ann" == await outcome_of(app, "w1")


async def test_stores_that_share_nothing_say_so() -> None:
    """And name those that do."""
    async with App(MemoryStore()) as app:
        with pytest.raises(UsageError, match="sqlite:// or postgresql://"):
            await app.submit(welcome, "Ann", connection=object())
