"""What a body may not do to its transaction, and what becomes of one that tries."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import pytest

import outlive
from outlive.errors import TimedOut, UsageError
from tests.harness.places import Place, PostgresPlace, SQLitePlace
from tests.transactions.test_steps import drive, write

ENDINGS: dict[str, Callable[[Any], Any]] = {
    "commit": lambda connection: connection.commit(),
    "rollback": lambda connection: connection.rollback(),
    "with": lambda connection: connection.__enter__(),
    "statement": lambda connection: connection.execute("COMMIT"),
    "undoing": lambda connection: connection.execute("ROLLBACK"),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_the_transaction_is_the_engines_to_end(place: Place, ending: str) -> None:
    """A body that tries is told so; what it wrote is not committed by half."""

    @outlive.step(transaction=True, raises=(UsageError,))
    def book(connection: Any) -> None:
        write(connection, place, "before")
        ENDINGS[ending](connection)

    @outlive.flow
    async def trip() -> str:
        try:
            await book()
        except (UsageError, outlive.errors.StepFailed) as error:
            return str(error)
        return "committed"

    told = await drive(place, trip)
    assert "committed" != told
    # In PostgreSQL a statement can't be kept from it, only noticed.
    expected = ["before"] if ending == "statement" and isinstance(place, PostgresPlace) else []
    assert expected == place.rows()
    assert 0 == place.count("outcomes")


CLOSINGS: dict[str, Callable[[sqlite3.Connection], None]] = {
    "as usual": lambda connection: connection.close(),
    "by force": lambda connection: sqlite3.Connection.close(connection),
}


@pytest.mark.parametrize("closing", CLOSINGS)
async def test_who_closes_the_connection_stops_nobody_else(
    sqlite_place: SQLitePlace, closing: str
) -> None:
    """The step fails; the file is free for others at once."""

    @outlive.step(transaction=True)
    def close(connection: sqlite3.Connection) -> None:
        write(connection, sqlite_place, "before")
        CLOSINGS[closing](connection)

    @outlive.step(transaction=True)
    def book(connection: sqlite3.Connection) -> None:
        write(connection, sqlite_place, "after")

    @outlive.flow
    async def trip() -> str:
        try:
            await close()
        except (UsageError, outlive.errors.StepFailed) as error:
            await book()
            return str(error)
        return "closed"

    told = await drive(sqlite_place, trip)
    assert "clos" in told
    assert "closed" != told
    assert ["after"] == sqlite_place.rows()


@pytest.mark.parametrize("awaits", [False, True], ids=["plain", "awaits"])
async def test_the_connection_is_the_engines_to_close(
    postgres_place: PostgresPlace, awaits: bool
) -> None:
    """A body that tries is told the same, and nothing of it is committed."""
    place = postgres_place

    @outlive.step(transaction=True, raises=(UsageError,))
    def book(connection: Any) -> None:
        write(connection, place, "before")
        connection.close()

    @outlive.step(transaction=True, raises=(UsageError,))
    async def book_awaiting(connection: Any) -> None:
        await connection.execute(place.insert(), ("before",))
        await connection.close()

    @outlive.flow
    async def trip() -> str:
        try:
            await (book_awaiting() if awaits else book())
        except UsageError as error:
            return str(error)
        return "committed"

    assert "belongs to the step" in await drive(place, trip)
    assert [] == place.rows()


@pytest.mark.parametrize("awaits", [False, True], ids=["plain", "awaits"])
async def test_what_a_body_sets_ends_with_it(postgres_place: PostgresPlace, awaits: bool) -> None:
    """The next one may get the same connection, and finds it as new."""
    say, ask = "SET search_path = nowhere", "SHOW search_path"

    @outlive.step(transaction=True)
    def plain(connection: Any) -> str:
        (before,) = connection.execute(ask).fetchone()
        connection.execute(say)
        return str(before)

    @outlive.step(transaction=True)
    async def awaiting(connection: Any) -> str:
        (before,) = await (await connection.execute(ask)).fetchone()
        await connection.execute(say)
        return str(before)

    @outlive.flow
    async def twice() -> list[str]:
        book = awaiting if awaits else plain
        return [await book(), await book()]

    first, second = await drive(postgres_place, twice)
    assert first == second


ROLES = ("SET ROLE", "SET LOCAL ROLE", "SET SESSION AUTHORIZATION")


@pytest.mark.parametrize("say", ROLES)
async def test_a_role_ends_with_the_body(postgres_place: PostgresPlace, say: str) -> None:
    """Its outcome is kept though the role may not write it, and the next body has its own role."""
    guest, ask = f"guest_{postgres_place.number}", "SELECT current_user"
    with postgres_place.connect() as db:
        db.execute(f"CREATE ROLE {guest}")

    @outlive.step(transaction=True)
    def become(connection: Any) -> str:
        connection.execute(f"{say} {guest}")
        return str(connection.execute(ask).fetchone()[0])

    @outlive.step(transaction=True)
    def look(connection: Any) -> str:
        return str(connection.execute(ask).fetchone()[0])

    @outlive.flow
    async def trip() -> list[str]:
        return [await look(), await become(), await look()]

    before, within, after = await drive(postgres_place, trip)
    assert guest == within
    assert before == after


async def test_a_body_may_have_a_month(postgres_place: PostgresPlace) -> None:
    """That is more than a server can count, and no limit of its own."""

    @outlive.step(transaction=True, timeout="30d")
    def book(connection: Any) -> None:
        write(connection, postgres_place, "a flight")

    @outlive.flow
    async def trip() -> str:
        await book()
        return "booked"

    assert "booked" == await drive(postgres_place, trip)


async def test_nothing_is_written_outside_the_transaction(sqlite_place: SQLitePlace) -> None:
    """Not even after a statement that rolls back by itself, whose error the body swallows."""
    place = sqlite_place

    @outlive.step(transaction=True)
    def book(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE rooms (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO rooms VALUES (1)")
        try:
            connection.execute("INSERT OR ROLLBACK INTO rooms VALUES (1)")
        except sqlite3.IntegrityError:
            connection.execute(place.insert(), ("after all",))

    @outlive.flow
    async def trip() -> str:
        try:
            await book()
        except outlive.errors.StepFailed:
            return "failed"
        return "committed"

    assert "failed" == await drive(place, trip)
    assert [] == place.rows()


async def test_a_constraint_that_is_checked_at_the_end(place: Place) -> None:
    """Fails the step; nothing of it is there."""
    key = "PRIMARY KEY" if isinstance(place, SQLitePlace) else "int PRIMARY KEY"
    with place.connect() as db:
        db.execute(f"CREATE TABLE hotels_{place.number} (id {key})")
        db.execute(
            f"CREATE TABLE rooms_{place.number} (hotel int REFERENCES hotels_{place.number} (id)"
            " DEFERRABLE INITIALLY DEFERRED)"
        )

    @outlive.step(transaction=True)
    def book(connection: Any) -> None:
        connection.execute(f"INSERT INTO rooms_{place.number} VALUES (7)")
        write(connection, place, "a room")

    @outlive.flow
    async def trip() -> str:
        try:
            await book()
        except outlive.errors.StepFailed as error:
            return error.type_name
        return "committed"

    assert "committed" != await drive(place, trip)
    assert [] == place.rows()
    assert 0 == place.count("outcomes")


async def test_a_body_that_takes_too_long_is_rolled_back(place: Place) -> None:
    """An awaiting one is cancelled; a plain one loses its transaction, and others can write."""
    going_on = threading.Event()

    @outlive.step(transaction=True, timeout="300ms")
    async def dawdle(connection: Any) -> None:
        found = write(connection, place, "late")
        if asyncio.iscoroutine(found):
            await found
        await asyncio.sleep(60)

    @outlive.step(transaction=True, timeout="300ms", raises=(TimedOut,))
    def dawdle_plainly(connection: Any) -> None:
        write(connection, place, "late")
        going_on.wait(60)
        write(connection, place, "later")

    @outlive.step
    def let_go() -> None:
        going_on.set()

    async def told(step: Any) -> str:
        try:
            await step()
        except TimedOut as error:
            return str(error)
        return "committed"

    @outlive.flow
    async def trip() -> list[str]:
        first = await told(dawdle)
        second = asyncio.create_task(told(dawdle_plainly))
        await outlive.sleep("1s")
        await let_go()
        return [first, await second]

    both = await drive(place, trip)
    assert ["was given 0.3 s" in each for each in both] == [True, True], both
    assert [] == place.rows()
    assert 0 == place.count("outcomes")
