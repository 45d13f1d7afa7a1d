"""Settings of roles, of poolers' other clients and of bodies change nothing of what is promised."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from psycopg.types.string import TextLoader

from outlive.stores.postgres.store import PostgresStore
from outlive.stores.transactions import Attempt, Unsure
from outlive.stores.types import Reading
from outlive.testing.suite.entries import held
from tests.harness.postgres_pooler import PostgresPooler
from tests.harness.postgres_server import PostgresServer
from tests.postgres.test_outages import Appending, seen, waiting_for_standby

#: What an id may hold, and what has a meaning in texts of SQL.
NASTY = "r'\\x41 \\' é漢 🜁 $1"


def attempt(seq: int, run_id: str = "r") -> Attempt:
    return Attempt(run_id=run_id, step="0/book#1 \\'é", seq=seq, epoch=1)


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.commit([held("r", "w"), held(NASTY, "w")])
    yield store
    await store.close()


def set_for_all(server: PostgresServer, setting: str) -> None:
    """As an operator may, for every session of the role."""
    with psycopg.connect(server.url(), autocommit=True) as db:
        db.execute(f"ALTER ROLE outlive SET {setting}".encode())


@pytest.mark.alone("postgres")
@pytest.mark.parametrize("way", ["direct", "pooled"])
async def test_a_standby_that_is_gone_is_not_done_without(
    own_postgres: PostgresServer, way: str
) -> None:
    """A commit that its standby did not confirm is not acknowledged, even if an operator cuts it
    short: the server says done then, with a warning, and only asking again settles it. That holds
    for roles and for bodies that want no warnings.
    """
    standby = own_postgres.add_standby()
    set_for_all(own_postgres, "client_min_messages = error")
    with ExitStack() as stack:
        stack.callback(standby.remove)
        port = own_postgres.port
        if way == "pooled":
            port = stack.enter_context(PostgresPooler(own_postgres)).port
        store = PostgresStore(own_postgres.url(port=port))
        await store.commit([held("s", "w")])
        body = store.transactions.begin(attempt(2, "s"), 60)
        body.connection.execute("SET client_min_messages = error")
        with Appending(store) as appending:
            appending.wait_for_more(20)
            standby.crash()
            while not waiting_for_standby(own_postgres):
                pass
            acknowledged, cancelled = appending.acknowledged, 0
            ending = asyncio.create_task(asyncio.to_thread(body.commit, b"done"))
            while cancelled < 3 or not ending.done():
                cancelled += waiting_for_standby(own_postgres, cancel=True)
                await asyncio.sleep(0.01)
            without_standby = appending.acknowledged - acknowledged
            standby.start()
            appending.wait_for_more(20)

        assert 0 == without_standby
        assert isinstance(ending.exception(), Unsure)
        assert [] == appending.refused
        reading = await seen(store, "r")
        assert list(range(1, appending.acknowledged + 1)) == [r.seq for r in reading.records]
        await store.close()


async def test_no_setting_of_a_body_reaches_another(store: PostgresStore) -> None:
    """Not even those by which a transaction begins, nor when the next one is rolled back."""
    asked = (
        "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only'),"
        " current_setting('transaction_deferrable'), current_setting('search_path'),"
        " to_regclass('pg_temp.orders') IS NULL, current_user,"
        " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"
    )
    before = asked_of(store, 2, asked)

    first = store.transactions.begin(attempt(3), 5)
    first.connection.execute("CREATE TEMP TABLE orders (id int)")
    first.connection.execute("SELECT pg_advisory_lock(7)")
    first.connection.execute("SET search_path = pg_temp")
    first.connection.execute(
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, DEFERRABLE"
    )
    first.connection.execute("SET default_transaction_read_only = on")
    first.connection.adapters.register_loader("int8", TextLoader)
    process = first.connection.info.backend_pid
    first.commit(b"done")

    assert [before] * 2 == [asked_of(store, seq, asked) for seq in (4, 5)]
    last = store.transactions.begin(attempt(6), 5)
    assert process == last.connection.info.backend_pid, "it was the same session"
    last.roll_back()


def asked_of(store: PostgresStore, seq: int, sql: str) -> Any:
    """What a body gets to see; it is rolled back."""
    body = store.transactions.begin(attempt(seq), 5)
    try:
        return body.connection.execute(sql.encode()).fetchone()
    finally:
        body.roll_back()


@pytest.mark.parametrize("setting", ["standard_conforming_strings", "client_encoding"])
async def test_texts_are_read_as_they_are_meant(store: PostgresStore, setting: str) -> None:
    """Whatever a body says about backslashes and letters."""
    value = "off" if setting == "standard_conforming_strings" else "LATIN1"
    for seq in (2, 3):
        given = Attempt(run_id=NASTY, step=f"\\{seq} 'é\\'", seq=seq, epoch=1)
        body = await store.transactions.begin_async(given, 5)
        await body.connection.execute(f"SET {setting} = {value}")
        await body.commit(b"\\x00'\xff")
        assert b"\\x00'\xff" == await store.transactions.outcome_of(given)


async def test_a_role_with_other_backslashes(own_postgres: PostgresServer) -> None:
    """The tables are made and used as everywhere."""
    set_for_all(own_postgres, "standard_conforming_strings = off")
    store = PostgresStore(own_postgres.url())
    assert [None] == list(await store.commit([held(NASTY, "w")]))
    given = attempt(2, NASTY)
    store.transactions.begin(given, 5).commit(b"\\x41")
    reading = await store.read(NASTY)

    assert isinstance(reading, Reading)
    assert b"\\x41" == await store.transactions.outcome_of(given)
    await store.close()
