"""What a transactional step writes and its outcome are committed together: both or neither."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import outlive
from outlive import sync
from outlive.app.app import App
from outlive.app.open import open_app
from outlive.errors import DefinitionRefused, InsideStep, NotInRun, RunFailed
from outlive.journal.seal.keys import new_key
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from tests.harness.places import Place, PostgresPlace, SQLitePlace

TWICE = outlive.Retry(attempts=2, delay="0s")


def write(connection: Any, place: Place, what: str) -> Any:
    """Write a booking; what it returns is to be awaited if the connection's calls are."""
    return connection.execute(place.insert(), (what,))


class Desk:
    """Steps that book, in both ways, at one place."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.calls: list[str] = []
        #: Called in the body, after it has written.
        self.then: Callable[[], object] = lambda: None

        @outlive.step(transaction=True, raises=(ZeroDivisionError,))
        async def book(connection: Any, what: str, times: int = 1) -> str:
            self.calls.append(what)
            for _ in range(times):
                found = write(connection, place, what)
                if asyncio.iscoroutine(found):
                    await found
            self.then()
            return f"{what} is booked"

        @outlive.step(transaction=True, raises=(ZeroDivisionError,))
        def book_plainly(connection: Any, what: str, times: int = 1) -> str:
            self.calls.append(what)
            for _ in range(times):
                write(connection, place, what)
            self.then()
            return f"{what} is booked"

        self.book, self.book_plainly = book, book_plainly


@pytest.fixture
def desk(place: Place) -> Desk:
    return Desk(place)


@pytest.fixture(params=["async", "plain"])
def book(request: pytest.FixtureRequest, desk: Desk) -> Any:
    """Each way of writing it."""
    return desk.book if request.param == "async" else desk.book_plainly


async def drive(place: Place, flow: Any, *args: Any, id: str = "r") -> Any:
    async with open_app(place.url) as app:
        return await (await app.start(flow, *args, id=id)).outcome()


async def test_both_are_committed(place: Place, desk: Desk, book: Any) -> None:
    """The row is there, the flow has the outcome, and nothing is left beside the journal."""

    @outlive.flow
    async def trip() -> list[str]:
        return [await book("a flight"), await book("a room", times=2)]

    assert ["a flight is booked", "a room is booked"] == await drive(place, trip)
    assert ["a flight", "a room", "a room"] == place.rows()
    assert ["a flight is booked", "a room is booked"] == await drive(
        place, trip
    )  # from the journal
    assert ["a flight", "a room"] == desk.calls
    assert 0 == place.count("outcomes")


def test_plain_flows_have_the_same(place: Place, book: Any) -> None:
    """Called, not awaited, however the step was written."""

    @outlive.flow
    def trip() -> str:
        found: str = book("a flight")
        return found

    with sync.open(place.url) as app:
        assert "a flight is booked" == app.run(trip, id="r")
    assert ["a flight"] == place.rows()
    assert 0 == place.count("outcomes")


async def test_many_at_once(place: Place, desk: Desk) -> None:
    """They share what there is of connections and writers, and none waits for ever."""

    @outlive.flow
    async def trip() -> int:
        steps = [desk.book if number % 2 else desk.book_plainly for number in range(60)]
        return len(await asyncio.gather(*(step(f"{n:02}") for n, step in enumerate(steps))))

    assert 60 == await asyncio.wait_for(drive(place, trip), 60)
    assert [f"{number:02}" for number in range(60)] == place.rows()
    assert 0 == place.count("outcomes")


async def test_an_exception_leaves_nothing(place: Place, desk: Desk, book: Any) -> None:
    """The flow gets it, and may go on."""
    desk.then = lambda: 1 / 0

    @outlive.flow
    async def trip() -> str:
        try:
            return str(await book("a flight"))
        except ZeroDivisionError:
            return "no flight"

    assert "no flight" == await drive(place, trip)
    assert [] == place.rows()
    assert 0 == place.count("outcomes")


@pytest.mark.parametrize("plainly", [True, False])
async def test_it_is_tried_again_as_declared(place: Place, plainly: bool) -> None:
    """A rolled back attempt left nothing, so there may be another."""
    tries: list[int] = []

    def attempt(connection: Any) -> Any:
        tries.append(outlive.attempt())
        return write(connection, place, f"try {outlive.attempt()}")

    def fail_at_first() -> int:
        if outlive.attempt() == 1:
            raise ConnectionError("the other side hung up")
        return outlive.attempt()

    @outlive.step(transaction=True, retry=TWICE)
    async def book(connection: Any) -> int:
        found = attempt(connection)
        if asyncio.iscoroutine(found):
            await found
        return fail_at_first()

    @outlive.step(transaction=True, retry=TWICE)
    def book_plainly(connection: Any) -> int:
        attempt(connection)
        return fail_at_first()

    @outlive.flow
    async def trip() -> int:
        return await (book_plainly if plainly else book)()

    assert 2 == await drive(place, trip)
    assert ["try 2"] == place.rows()
    assert [1, 2] == tries


async def test_a_serialization_failure_is_tried_again(postgres_place: PostgresPlace) -> None:
    """It is the database's word that nothing was done."""
    place, other = postgres_place, postgres_place.connect()

    @outlive.step(transaction=True, retry=TWICE)
    async def book(connection: psycopg.AsyncConnection[Any]) -> int:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        await connection.execute(f"SELECT count(*) FROM {place.table}")
        if outlive.attempt() == 1:
            other.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            other.execute(f"SELECT count(*) FROM {place.table}")
            other.execute(place.insert(), ("theirs",))
            other.commit()
        await connection.execute(place.insert(), ("ours",))
        return outlive.attempt()

    @outlive.flow
    async def trip() -> int:
        return await book()

    assert 2 == await drive(place, trip)
    assert ["ours", "theirs"] == place.rows()
    other.close()


async def test_an_outcome_that_cannot_be_recorded_leaves_nothing(place: Place) -> None:
    """It is refused before the commit."""

    @outlive.step(transaction=True)
    def book(connection: Any) -> Any:
        write(connection, place, "a flight")
        return object()

    @outlive.flow
    async def trip() -> str:
        try:
            await book()
        except outlive.errors.ValueRefused:
            return "refused"
        return "recorded"

    assert "refused" == await drive(place, trip)
    assert [] == place.rows()


async def test_a_large_outcome(place: Place, book: Any) -> None:
    """Is kept beside the journal like any other."""

    @outlive.step(transaction=True)
    def load(connection: Any, size: int) -> bytes:
        write(connection, place, "loaded")
        return bytes(size)

    @outlive.flow
    async def trip() -> int:
        return len(await load(8_000_000))

    assert 8_000_000 == await drive(place, trip)
    assert ["loaded"] == place.rows()


async def test_a_run_can_be_submitted_in_a_step(place: Place) -> None:
    """The step's own connection is one, too."""

    @outlive.flow
    async def confirm(what: str) -> str:
        return f"{what} is confirmed"

    async with open_app(place.url) as app:

        @outlive.step(transaction=True)
        async def book(connection: Any, what: str) -> str:
            found = write(connection, place, what)
            if asyncio.iscoroutine(found):
                await found
            await app.submit(confirm, what, id=f"confirm-{what}", connection=connection)
            return what

        @outlive.flow
        async def trip() -> str:
            return await book("flight")

        await (await app.start(trip, id="r")).outcome()
        async with app.worker([confirm]):
            handle = await app.get("confirm-flight", confirm)
            assert "flight is confirmed" == await handle.outcome()


async def test_calls_elsewhere_are_refused(desk: Desk) -> None:
    """There is no transaction there; ``plain`` takes a connection of one's own."""
    with pytest.raises(NotInRun):
        await desk.book("a flight")

    @outlive.step
    async def outer() -> str:
        return str(await desk.book("a flight"))

    @outlive.flow
    async def trip() -> str:
        return await outer()

    with pytest.raises(RunFailed) as caught:
        await drive(desk.place, trip)
    assert InsideStep.__name__ in str(caught.value)

    db = desk.place.connect()
    assert "a flight is booked" == desk.book_plainly.plain(db, "a flight")
    db.rollback()
    db.close()


async def test_stores_that_share_nothing_say_so(sqlite_place: SQLitePlace) -> None:
    """And name those that do."""
    desk = Desk(sqlite_place)

    @outlive.flow
    async def trip() -> str:
        return await desk.book("a flight")

    async with App(MemoryStore()) as app:
        with pytest.raises(RunFailed, match=r"step book .*sqlite:// or postgresql://"):
            await (await app.start(trip)).outcome()


def test_definitions_that_make_no_sense() -> None:
    """Are refused where they are made."""
    with pytest.raises(DefinitionRefused, match="first parameter"):

        @outlive.step(transaction=True)
        def nothing_to_write_to() -> None: ...

    with pytest.raises(DefinitionRefused, match="timeout"):

        @outlive.step(transaction=True, timeout=None)
        def for_ever(connection: Any) -> None: ...


async def test_a_sealed_store_shows_no_outcome(place: Place) -> None:
    """Not beside the journals, either; the run has it, and what the body wrote is the user's."""
    key, seen = new_key(os.urandom), []

    def look(moment: str) -> None:
        if moment == "transaction.after":
            seen.append(place.dump("outcomes"))

    @outlive.step(transaction=True)
    def book(connection: Any) -> str:
        write(connection, place, "a flight")
        return "a secret seat"

    @outlive.flow
    async def trip() -> str:
        return await book()

    async with open_app(place.url, key=key, ports=Ports(failpoint=look)) as app:
        assert "a secret seat" == await (await app.start(trip, id="r")).outcome()

    assert ["a flight"] == place.rows()
    assert len(seen) == 1
    assert b"book#1" in seen[0]
    assert b"secret" not in seen[0]
