"""Who waits for whom in PostgreSQL: nobody in a circle, and nobody for a stranger's run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import psycopg
import pytest

from outlive.store import Posting, Query
from outlive.stores.postgres import PostgresStore
from outlive.testing.postgres_server import PostgresServer
from outlive.testing.store_entries import entry, header, held, takeover

Verb: TypeAlias = Callable[[PostgresStore], Awaitable[Sequence[Any] | None]]
Db: TypeAlias = psycopg.AsyncConnection[Any]


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


async def wait_for_waiting(db: Db, seen_by: int) -> None:
    """Until a session waits for a lock that this one holds."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
    while (await (await db.execute(asked, [seen_by])).fetchall())[0][0] == 0:
        await asyncio.sleep(0.01)


VERBS: dict[str, Verb] = {
    "appends": lambda store: store.commit([entry("b", 1), entry("a", 1)]),
    "chains": lambda store: store.commit([entry("b", 1), entry("b", 2), entry("a", 1)]),
    "waves": lambda store: store.commit(
        [entry("b", 1, header=header()), entry("a", 1), entry("a", 2, header=header())]
    ),
    "claims": lambda store: store.commit(
        [takeover("b", 1, "v", epoch=2), takeover("a", 1, "v", epoch=2)]
    ),
    "posts": lambda store: store.post_all([Posting("b", "m", b""), Posting("a", "m", b"")]),
    "releases": lambda store: store.release("w"),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_heads_are_locked_in_the_order_of_their_ids(
    postgres: PostgresServer, url: str, verb: str
) -> None:
    """Whatever is done to them, and in whatever order it comes: so no two wait in a circle."""
    store = PostgresStore(url)
    for run_id in ("b", "a"):
        await store.commit([held(run_id, "w")])
    runs = f'"{schema_of(url)}".runs'
    async with (
        await psycopg.AsyncConnection.connect(postgres.url()) as holder,
        await psycopg.AsyncConnection.connect(postgres.url(), autocommit=True) as watcher,
    ):
        await holder.execute(f"SELECT 1 FROM {runs} WHERE run_id = 'a' FOR UPDATE")
        call = VERBS[verb](store)
        under_way = asyncio.create_task(asyncio.to_thread(asyncio.run, call))
        await wait_for_waiting(watcher, holder.info.backend_pid)

        # Refused if it is locked already by who waits for the other.
        await watcher.execute(f"SELECT 1 FROM {runs} WHERE run_id = 'b' FOR UPDATE NOWAIT")
        await holder.rollback()
        answers = await under_way

    assert answers is None or {None} == set(answers) or ["posted"] * 2 == answers
    await store.close()


async def test_new_runs_are_numbered_in_the_order_of_their_coming(url: str) -> None:
    """Though heads that move are locked in another."""
    store = PostgresStore(url)
    await store.commit([held("y", "w"), held("x", "w")])

    await store.commit([entry("y", 1), held("c", "w"), entry("x", 1), held("a", "w")])

    assert ["y", "x", "c", "a"] == [
        found.head.run_id for found in (await store.find(Query(), limit=10)).items
    ]
    await store.close()
