"""Outcomes beside the journals: the fence, what a look says, and when they go."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

import outlive
from outlive.app.open import open_app
from outlive.errors import LeaseLost, UsageError
from outlive.journal.reader import read_events
from outlive.model.events import AttemptFailed, EffectDoubted
from outlive.ports import Ports
from outlive.stores.open import open_store
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.postgres.transactions import TRANSACTIONS_MAX
from outlive.stores.transactions import Attempt, Unsure
from outlive.stores.types import Reading
from outlive.testing.suite.entries import HandClock, delete_one, entry, header, held
from tests.harness.places import Place, PostgresPlace, SQLitePlace
from tests.harness.postgres_pooler import PostgresPooler
from tests.harness.postgres_server import PostgresServer
from tests.postgres.proxy import Proxy
from tests.transactions.booking import QUICK, Here, booked, expected, recover, trip


def opened(place: Place) -> Any:
    return open_store(place.url, ports=Ports(), lease_seconds=15.0)


@pytest.fixture
def store(place: Place) -> Iterator[Any]:
    """With a run that its first driver holds."""
    store = opened(place)
    first = held("r", "one")
    assert [None] == list(asyncio.run(store.commit([first])))
    yield store
    asyncio.run(store.close())


def attempt(seq: int = 2, epoch: int = 1) -> Attempt:
    return Attempt(run_id="r", step="0/book#1", seq=seq, epoch=epoch)


def take_over(store: Any) -> None:
    """Another driver claims the run."""
    claim = entry("r", 1, last=2, epoch=2, lease="take", worker="two")
    assert [None] == list(asyncio.run(store.commit([claim])))


def look(store: Any, which: Attempt) -> bytes | None:
    found: bytes | None = asyncio.run(store.transactions.outcome_of(which))
    return found


def test_the_outcome_is_there_with_the_writes(place: Place, store: Any) -> None:
    """Or neither is."""
    first = store.transactions.begin(attempt(), 5)
    first.connection.execute(place.insert(), ("first",))
    first.roll_back()
    assert (None, []) == (look(store, attempt()), place.rows())

    second = store.transactions.begin(attempt(seq=3), 5)
    second.connection.execute(place.insert(), ("second",))
    second.commit(b"done")
    assert (b"done", ["second"]) == (look(store, attempt(seq=3)), place.rows())


def test_an_old_epoch_is_refused(place: Place, store: Any) -> None:
    """Whenever it began: what it wrote is gone."""
    if isinstance(place, SQLitePlace):
        take_over(store)  # there is no other time: one writes, and all others wait
        old = store.transactions.begin(attempt(), 5)
        old.connection.execute(place.insert(), ("old",))
    else:
        old = store.transactions.begin(attempt(), 5)
        old.connection.execute(place.insert(), ("old",))
        take_over(store)

    with pytest.raises(LeaseLost):
        old.commit(b"done")

    assert (None, []) == (look(store, attempt()), place.rows())


def test_a_claim_waits_for_a_commit_that_is_under_way(
    postgres_place: PostgresPlace,
) -> None:
    """So whoever looks after the claim sees all there will ever be."""
    place, store = postgres_place, opened(postgres_place)
    first = held("r", "one")
    asyncio.run(store.commit([first]))
    schema = place.url.rpartition("schema=")[2]
    with place.connect() as db:
        db.execute("SET LOCAL outlive.attempt = '0/book#1 2'")
        db.execute(f"SELECT {schema}.keep_v1('r', '0/book#1', 2, 1, 'done')")
        claiming = threading.Thread(target=take_over, args=(store,))
        claiming.start()
        claiming.join(0.5)
        assert claiming.is_alive()

    claiming.join(10)
    assert b"done" == look(store, attempt())
    asyncio.run(store.close())


def test_a_step_has_one_outcome(place: Place, store: Any) -> None:
    """Even if its driver did not look before it tried again."""
    for seq in (2, 3):
        again = store.transactions.begin(attempt(seq=seq), 5)
        again.connection.execute(place.insert(), (f"try {seq}",))
        if seq == 2:
            again.commit(b"done")
    with pytest.raises(Unsure):
        again.commit(b"done again")

    assert (b"done", ["try 2"]) == (look(store, attempt(seq=3)), place.rows())


def test_that_there_is_none_is_final(postgres_place: PostgresPlace) -> None:
    """A commit that comes after somebody looked is refused; a later attempt is not."""
    place, store = postgres_place, opened(postgres_place)
    asyncio.run(store.commit([held("r", "one")]))
    slow = store.transactions.begin(attempt(seq=2), 5)
    slow.connection.execute(place.insert(), ("slow",))

    assert look(store, attempt(seq=2)) is None
    with pytest.raises(Unsure):
        slow.commit(b"slow")
    later = store.transactions.begin(attempt(seq=3), 5)
    later.connection.execute(place.insert(), ("later",))
    later.commit(b"later")

    assert (b"later", ["later"]) == (look(store, attempt(seq=3)), place.rows())
    asyncio.run(store.close())


def test_they_are_forgotten(place: Place, store: Any) -> None:
    """When the journal has them, or with their run."""
    for step in ("a", "b"):
        own = store.transactions.begin(Attempt(run_id="r", step=step, seq=2, epoch=1), 5)
        own.commit(b"done")
    assert 2 == place.count("outcomes")

    asyncio.run(store.transactions.forget_outcomes([("r", "a"), ("r", "never"), ("s", "b")]))
    assert 1 == place.count("outcomes")
    end = entry("r", 1, header=header(status="completed", ended_at=1), lease="free")
    assert [None] == list(asyncio.run(store.commit([end])))
    assert asyncio.run(delete_one(store, "r", seq=2, digest=b"d", keep_until=1))
    assert 0 == place.count("outcomes")


@pytest.mark.timeout(120)
def test_a_body_at_work_and_its_limit_never_wait_for_each_other(
    sqlite_place: SQLitePlace,
) -> None:
    """Whatever SQLite does for the body at the moment of the limit."""
    store = opened(sqlite_place)
    asyncio.run(store.commit([held("r", "one")]))
    rows = [("x",)] * 1000
    for _ in range(150):
        own = store.transactions.begin(attempt(), 5)

        def body(own: Any = own) -> None:
            with suppress(sqlite3.Error, UsageError):
                while True:
                    own.connection.executemany(sqlite_place.insert(), rows)

        busy = threading.Thread(target=body, daemon=True)
        busy.start()
        time.sleep(random.random() * 0.005)
        own.abort()
        busy.join(30)
        assert not busy.is_alive()
        own.roll_back()
    assert [] == sqlite_place.rows()


def test_at_its_limit_a_file_is_free_for_others(sqlite_place: SQLitePlace) -> None:
    """Also if the body goes on and on, and nothing of that is written."""
    place, store = sqlite_place, opened(sqlite_place)
    asyncio.run(store.commit([held("r", "one")]))
    own = store.transactions.begin(attempt(), 5)
    failures: list[Exception] = []

    def body() -> None:
        try:
            while True:
                own.connection.executemany(place.insert(), [("x",)] * 1000)
        except (sqlite3.Error, UsageError) as error:
            failures.append(error)

    busy = threading.Thread(target=body)
    busy.start()
    time.sleep(0.1)
    own.abort()
    asyncio.run(store.commit([entry("s", 0)]))  # nobody holds the file
    busy.join(10)
    with pytest.raises(TimeoutError):
        own.commit(b"done")
    own.roll_back()

    assert failures
    assert [] == place.rows()
    asyncio.run(store.close())


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres.port) as proxy:
        yield proxy


def through(proxy: Proxy, postgres: PostgresServer, place: PostgresPlace) -> str:
    return postgres.url(port=proxy.port, schema=place.url.rpartition("schema=")[2])


def test_a_commit_whose_answer_is_lost(
    postgres_place: PostgresPlace, postgres: PostgresServer, proxy: Proxy
) -> None:
    """Is told as what it is: unknown, until somebody looks."""
    place = postgres_place
    store = PostgresStore(through(proxy, postgres, place))
    asyncio.run(store.commit([held("r", "one")]))
    own = store.transactions.begin(attempt(), 5)
    own.connection.execute(place.insert(), ("a flight",))
    proxy.lose_next_answer()
    with pytest.raises(Unsure):
        own.commit(b"done")

    assert (b"done", ["a flight"]) == (look(store, attempt()), place.rows())
    asyncio.run(store.close())


async def test_answers_are_lost_while_runs_go_on(
    postgres_place: PostgresPlace, postgres: PostgresServer, proxy: Proxy
) -> None:
    """What was done is not done again; the runs go on in the same process."""
    place = Here.place = postgres_place
    names = [f"t{number}" for number in range(5)]

    def lose(moment: str) -> None:
        if moment == "transaction.before":
            proxy.lose_next_answer()

    url = through(proxy, postgres, place)
    doubts = 0
    async with open_app(url, ports=Ports(failpoint=lose), settings=QUICK) as app:
        for name in names:
            await asyncio.wait_for((await app.start(trip, name, id=name)).outcome(), 60)
            events = read_events(await app.read(name))
            doubts += sum(isinstance(event, EffectDoubted) for event in events)

    assert expected(names) == booked(place)
    assert 0 < doubts <= proxy.lost


async def test_a_connection_that_is_lost_before_the_commit(
    postgres_place: PostgresPlace,
) -> None:
    """Nothing was done; that is certain at once, and the step is begun again as after a kill."""
    place, lost = postgres_place, []

    def lose(moment: str) -> None:
        if moment == "transaction.before" and not lost:
            lost.append(moment)
            with psycopg.connect(place.conninfo, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE query LIKE 'INSERT INTO %bookings%' AND state LIKE 'idle in%'"
                )

    @outlive.step(transaction=True)
    async def book(connection: Any) -> int:
        await connection.execute(place.insert(), ("a flight",))
        return outlive.attempt()

    @outlive.flow
    async def once() -> int:
        return await book()

    begun = time.monotonic()
    async with open_app(place.url, ports=Ports(failpoint=lose), settings=QUICK) as app:
        assert 1 == await (await app.start(once, id="t")).outcome()
        events = read_events(await app.read("t"))

    assert ["a flight"] == place.rows()
    assert [True] == [event.by == "check" for event in events if isinstance(event, AttemptFailed)]
    assert time.monotonic() - begun < 20


def end_session(place: PostgresPlace, connection: Any) -> None:
    """As a server does that is restarted, or an operator."""
    with psycopg.connect(place.conninfo, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,))


@pytest.mark.parametrize("awaits", [False, True], ids=["plain", "awaits"])
async def test_a_connection_that_is_lost_inside_the_body(
    postgres_place: PostgresPlace, awaits: bool
) -> None:
    """What the body raises then is not its fault: it is begun again, and that does not count."""
    place, lost = postgres_place, []

    def lose(connection: Any) -> None:
        if not lost:
            lost.append(connection)
            end_session(place, connection)

    @outlive.step(transaction=True)
    def book(connection: Any) -> int:
        lose(connection)
        connection.execute(place.insert(), ("a flight",))
        return outlive.attempt()

    @outlive.step(transaction=True)
    async def book_awaiting(connection: Any) -> int:
        lose(connection)
        await connection.execute(place.insert(), ("a flight",))
        return outlive.attempt()

    @outlive.flow
    async def once() -> int:
        return await (book_awaiting() if awaits else book())

    async with open_app(place.url, settings=QUICK) as app:
        assert 1 == await (await app.start(once, id="t")).outcome()

    assert ["a flight"] == place.rows()


async def test_a_body_that_ends_its_connection_each_time(postgres_place: PostgresPlace) -> None:
    """Is not begun again for ever; the flow is told what the database said."""
    place = postgres_place

    @outlive.step(transaction=True)
    def book(connection: Any) -> None:
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    @outlive.flow
    async def once() -> str:
        try:
            await book()
        except outlive.errors.StepFailed as error:
            return str(error)
        return "done"

    async with open_app(place.url, settings=QUICK) as app:
        assert "terminating connection" in await (await app.start(once, id="t")).outcome()


async def test_connections_that_nobody_uses_are_closed(postgres_place: PostgresPlace) -> None:
    """After a minute, also if there is no other transaction that comes by."""
    place, clock = postgres_place, HandClock()
    store = PostgresStore(place.url, ports=Ports(clock=clock))
    await store.commit([held("r", "one")])
    plain, awaiting = (
        store.transactions.begin(attempt(), 5),
        await store.transactions.begin_async(attempt(), 5),
    )
    processes = [each.connection.info.backend_pid for each in (plain, awaiting)]
    plain.roll_back()
    await awaiting.roll_back()
    clock.advance(61)
    await store.beat("one")

    with psycopg.connect(place.conninfo, autocommit=True) as db:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (%s)"
        while db.execute(asked, (processes,)).fetchall() != [(0,)]:
            await asyncio.sleep(0.01)
    await store.close()


@pytest.mark.parametrize("awaits", [False, True], ids=["plain", "awaits"])
async def test_a_step_waits_for_its_turn(postgres_place: PostgresPlace, awaits: bool) -> None:
    """However long others take, and that is no attempt: it has all of its time when it begins."""
    place = postgres_place

    @outlive.step(transaction=True, timeout="100ms")
    def book(connection: Any) -> int:
        return outlive.attempt()

    @outlive.step(transaction=True, timeout="100ms")
    async def book_awaiting(connection: Any) -> int:
        return outlive.attempt()

    @outlive.flow
    async def once() -> int:
        return await (book_awaiting() if awaits else book())

    def is_put_off(reading: Reading) -> bool:
        return any(isinstance(event, AttemptFailed) for event in read_events(reading))

    async with open_app(place.url, settings=QUICK) as app, asyncio.timeout(60):
        store: Any = app.store
        others = [
            await store.transactions.begin_async(attempt(), 5) for _ in range(TRANSACTIONS_MAX)
        ]
        plain = [store.transactions.begin(attempt(), 5) for _ in range(TRANSACTIONS_MAX)]
        handle = await app.start(once, id="t")
        while not is_put_off(await app.read("t")):
            await asyncio.sleep(0.01)
        for each, other in zip(plain, others, strict=True):
            each.roll_back()
            await other.roll_back()

        assert 1 == await handle.outcome()


async def test_behind_a_pooler(postgres_place: PostgresPlace, postgres: PostgresServer) -> None:
    """That hands out a server per transaction: everything that counts is in the transaction."""
    place = Here.place = postgres_place
    with PostgresPooler(postgres) as pooler:
        url = postgres.url(port=pooler.port, schema=place.url.rpartition("schema=")[2])
        async with open_app(url, settings=QUICK) as app:
            handles = [await app.start(trip, f"t{n}", id=f"t{n}") for n in range(6)]
            for handle in handles:
                await asyncio.wait_for(handle.outcome(), 60)
            with psycopg.connect(f"{place.conninfo} port={pooler.port}") as db:
                await app.submit(trip, "mine", id="mine", connection=db)
        await recover(place, ["mine"])

    assert expected([*(f"t{n}" for n in range(6)), "mine"]) == booked(place)
