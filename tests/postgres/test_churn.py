"""Runs come, sleep, end and are deleted, again and again: the database does not grow."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from outlive.stores.postgres.store import PostgresStore
from outlive.stores.types import Node
from outlive.testing.suite.entries import delete_one, entry, header, post_one, takeover
from tests.conftest import Figure

TABLES = ("runs", "records", "mail", "nodes", "tombstones", "workers")
RUNS, ROUNDS = 40, 5
RUNS_FULL, ROUNDS_FULL = 2_000, 30
#: Rounds after which every table has the room that one round needs.
SETTLED = 3
#: How much larger the database may be after the last round than after it had settled.
GROWTH_MAX = 1.25


@pytest.fixture
def server(url: str) -> Iterator[psycopg.Connection[tuple[int, ...]]]:
    """Says something to the server behind the store's back."""
    with psycopg.connect(url.partition("?")[0], autocommit=True) as db:
        yield db


async def live(store: PostgresStore, run_ids: list[str]) -> None:
    """All of them begin, sleep, get mail, are taken up, work and end."""
    asleep = {r: header(wake_at=1, family=r) for r in run_ids}
    over = {r: header(status="done", ended_at=1, family=r) for r in run_ids}
    body, nodes = bytes(300), (Node(b"a", bytes(5_000)),)
    await store.commit([entry(r, 0, body, header=asleep[r], nodes=nodes) for r in run_ids])
    for run_id in run_ids:
        await post_one(store, run_id, "m", b"hello")
    await store.commit([takeover(r, 1, "w", epoch=2) for r in run_ids])
    for seq in range(2, 8):
        await store.commit([entry(r, seq, body, epoch=2) for r in run_ids])
    ends = [entry(r, 8, body, epoch=2, consumed=("m",), header=over[r]) for r in run_ids]
    await store.commit(ends)


async def bury(store: PostgresStore, run_ids: list[str]) -> None:
    """Each in a transaction of its own: nobody waits for a long one. Their ids are free at once."""
    for run_id in run_ids:
        assert await delete_one(store, run_id, seq=9, digest=b"", keep_until=1)


def sizes(db: psycopg.Connection[tuple[int, ...]], schema: str) -> dict[str, int]:
    """Bytes of each table with its indexes, after the server has swept as it does by itself."""
    found = {}
    for table in TABLES:
        db.execute(f"VACUUM {schema}.{table}".encode())
        row = db.execute("SELECT pg_total_relation_size(%s)", [f"{schema}.{table}"]).fetchone()
        assert row is not None
        found[table] = row[0]
    return found


def dead(db: psycopg.Connection[tuple[int, ...]], schema: str) -> int:
    """Rows that nobody can see and that still take room."""
    row = db.execute(
        "SELECT sum(n_dead_tup)::int FROM pg_stat_all_tables WHERE schemaname = %s", [schema]
    ).fetchone()
    assert row is not None
    return row[0]


async def test_deletion_does_not_bloat(
    url: str, server: psycopg.Connection[tuple[int, ...]], figure: Figure, full: bool
) -> None:
    """After any number of rounds the tables are as large as after the third."""
    store, schema = PostgresStore(url), url.rpartition("=")[2]
    runs, rounds = (RUNS_FULL, ROUNDS_FULL) if full else (RUNS, ROUNDS)
    taken, left = [], 0
    for number in range(rounds):
        run_ids = [f"{number}-{each}" for each in range(runs)]
        await live(store, run_ids)
        await bury(store, run_ids)
        await store.beat("w")
        taken.append(sizes(server, schema))
        left = dead(server, schema)
    await store.close()

    settled, last = (sum(taken[at].values()) for at in (SETTLED - 1, -1))
    figure("postgresql: churn: runs started, ended and deleted", runs * rounds)
    figure("postgresql: churn: kB after round 3 and after the last", (settled >> 10, last >> 10))
    figure("postgresql: churn: dead rows after a sweep", left)
    assert last < settled * GROWTH_MAX, taken
    assert left < runs


async def test_beats_do_not_bloat(
    url: str, server: psycopg.Connection[tuple[int, ...]], figure: Figure, full: bool
) -> None:
    """A worker's row changes on its own page, and touches no index."""
    store, schema = PostgresStore(url), url.rpartition("=")[2]
    beats = 1_000 if full else 500
    for number in range(beats):
        await store.beat(f"w{number % 5}")
    await store.close()

    size = server.execute("SELECT pg_relation_size(%s)", [f"{schema}.workers"]).fetchone()
    assert size is not None
    figure(f"postgresql: bytes of the table of workers after {beats} beats of 5", size[0])
    assert size[0] <= 4 * 8192
