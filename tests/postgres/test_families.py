"""Joining a family and deleting its last run side by side: whoever comes second sees the first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from outlive.stores.postgres.store import PostgresStore
from outlive.stores.postgres.url import parse_place
from outlive.stores.types import Conflict, Node
from outlive.testing.suite.deletion import child, root
from outlive.testing.suite.entries import START_MS, delete_one, entry, header

NODE = Node(b"shared", b"what parent and child name")
PATIENCE_SECONDS = 20.0


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(url)
    asyncio.run(store.commit([root("r")]))
    yield store
    asyncio.run(store.close())


@pytest.fixture
def connection(store: PostgresStore, url: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that is held open, as long as a commit may take."""
    with psycopg.connect(parse_place(url).conninfo) as connection:
        yield connection


@pytest.fixture
def waits_or_ends(url: str) -> Iterator[Callable[[Future[Any]], None]]:
    """Until what is done on another thread has ended, or waits for a lock in the server."""
    with psycopg.connect(parse_place(url).conninfo, autocommit=True) as looking:

        def look(doing: Future[Any]) -> None:
            until = time.monotonic() + PATIENCE_SECONDS
            while not doing.done() and time.monotonic() < until:
                found = looking.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                ).fetchone()
                if found is not None and found[0]:
                    return
                time.sleep(0.005)

        yield look


def elsewhere(verb: Callable[[], Any]) -> Future[Any]:
    """Do it on a thread of its own."""
    with_one = ThreadPoolExecutor(1)
    doing: Future[Any] = with_one.submit(lambda: asyncio.run(verb()))
    with_one.shutdown(wait=False)
    return doing


def test_a_deletion_waits_for_who_joins(
    store: PostgresStore,
    connection: psycopg.Connection[Any],
    waits_or_ends: Callable[[Future[Any]], None],
) -> None:
    """The child's commit is under way: when it is in, the family lives, and its nodes stay."""
    assert (True, None) == store.transactions.enlist(connection, child("c", "r"))

    deleting = elsewhere(lambda: delete_one(store, "r", seq=1, digest=b"", keep_until=START_MS))
    waits_or_ends(deleting)
    connection.commit()

    assert deleting.result(PATIENCE_SECONDS)
    assert {NODE.address: NODE.body} == asyncio.run(store.get_blobs("r", [NODE.address]))


def test_who_joins_waits_for_a_deletion(
    store: PostgresStore,
    connection: psycopg.Connection[Any],
    waits_or_ends: Callable[[Future[Any]], None],
) -> None:
    """The deletion is under way: when it is done, there is nothing to join."""
    schema = store.pool.place.schema
    connection.execute(
        f"SELECT * FROM \"{schema}\".delete_v2('{{r}}', '{{1}}', '{{\"\"}}', '{{0}}', NULL)"
    )

    joining = elsewhere(lambda: store.commit([child("c", "r")]))
    waits_or_ends(joining)
    connection.commit()

    assert [Conflict(seq=0, epoch=0)] == list(joining.result(PATIENCE_SECONDS))
    assert {} == asyncio.run(store.get_blobs("r", [NODE.address]))


def test_who_sweeps_waits_for_who_begins(
    store: PostgresStore,
    connection: psycopg.Connection[Any],
    waits_or_ends: Callable[[Future[Any]], None],
) -> None:
    """A family begins anew where something was left of one: what it names is not dropped."""
    asyncio.run(store.put_blob("again", NODE))
    begun = entry("again", 0, header=header(family="again"), nodes=(NODE,))
    assert (True, None) == store.transactions.enlist(connection, begun)

    sweeping = elsewhere(lambda: store.drop_family("again"))
    waits_or_ends(sweeping)
    connection.commit()

    assert not sweeping.result(PATIENCE_SECONDS)
    assert {NODE.address: NODE.body} == asyncio.run(store.get_blobs("again", [NODE.address]))
