"""Who waits for whom in PostgreSQL: nobody in a circle, and nobody for a stranger's run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import psycopg
import pytest

import outlive
from outlive.app.open import open_app
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.transactions import Attempt
from outlive.stores.types import Conflict, Posting, Query
from outlive.testing.suite.entries import entry, header, held, takeover
from tests.harness.postgres_server import PostgresServer

Verb: TypeAlias = Callable[[PostgresStore], Awaitable[Sequence[Any] | None]]
Db: TypeAlias = psycopg.AsyncConnection[Any]


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


async def wait_for_waiting(db: Db, seen_by: int) -> None:
    """Until a session waits for a lock that this one holds."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
    while (await (await db.execute(asked, [seen_by])).fetchall())[0][0] == 0:
        await asyncio.sleep(0.01)


async def assert_unlocked(postgres: PostgresServer, url: str, run_id: str) -> None:
    """Whoever wants to move this head need not wait."""
    runs = f'"{schema_of(url)}".runs'
    async with await psycopg.AsyncConnection.connect(postgres.url(), autocommit=True) as db:
        await db.execute(f"SELECT 1 FROM {runs} WHERE run_id = %s FOR UPDATE NOWAIT", [run_id])


@outlive.flow
async def double(number: int) -> int:
    return 2 * number


@outlive.flow
async def doubles() -> int:
    return await outlive.call(double.options(id="child"), 2)


VERBS: dict[str, Verb] = {
    "appends": lambda store: store.commit([entry("b", 1), entry("a", 1)]),
    "chains": lambda store: store.commit([entry("b", 1), entry("b", 2), entry("a", 1)]),
    "waves": lambda store: store.commit(
        [entry("b", 1, header=header()), entry("a", 1), entry("a", 2, header=header())]
    ),
    "claims": lambda store: store.commit(
        [takeover("b", 1, "v", epoch=2), takeover("a", 1, "v", epoch=2)]
    ),
    "posts": lambda store: store.post([Posting("b", "m", b""), Posting("a", "m", b"")]),
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

        await assert_unlocked(postgres, url, "b")
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


# ------------------------------------------------------------------ transactions of users


async def test_a_run_that_is_there_is_not_locked_by_who_submits_it_again(
    postgres: PostgresServer, url: str
) -> None:
    """Its driver goes on, however long that user's transaction is open."""
    store = PostgresStore(url)
    await store.commit([held("r", "w")])
    async with await psycopg.AsyncConnection.connect(postgres.url()) as user:
        is_in, there = await store.transactions.enlist_async(user, entry("r", 0))
        await assert_unlocked(postgres, url, "r")

    assert (False, 1) == (is_in, there and there.head.seq)
    await store.close()


async def test_of_two_users_who_begin_a_run_at_once_the_second_locks_nothing(
    postgres: PostgresServer, url: str
) -> None:
    """It waits for the first to commit, as it must; then that run is driven."""
    store = PostgresStore(url)
    async with (
        await psycopg.AsyncConnection.connect(postgres.url()) as first,
        await psycopg.AsyncConnection.connect(postgres.url()) as second,
        await psycopg.AsyncConnection.connect(postgres.url(), autocommit=True) as watcher,
    ):
        await store.transactions.enlist_async(first, entry("r", 0))
        asked = asyncio.create_task(
            store.transactions.enlist_async(second, entry("r", 0, b"another"))
        )
        await wait_for_waiting(watcher, first.info.backend_pid)
        await first.commit()
        is_in, there = await asked
        await assert_unlocked(postgres, url, "r")

    assert (False, 1) == (is_in, there and there.head.seq)
    await store.close()


async def test_a_batch_does_not_wait_for_a_users_transaction(
    postgres: PostgresServer, url: str
) -> None:
    """Of what it holds only the run that is begun there is refused, as one that is not there."""
    store = PostgresStore(url)
    async with await psycopg.AsyncConnection.connect(postgres.url()) as user:
        await store.transactions.enlist_async(user, entry("r", 0))
        early = await store.commit([entry("a", 0), entry("r", 0, b"another"), entry("s", 0)])
        await user.commit()
    late = await store.commit([entry("r", 0, b"another")])

    assert [None, Conflict(seq=0, epoch=0), None] == early
    assert [Conflict(seq=1, epoch=1)] == late
    await store.close()


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("verb", ["start", "submit"])
async def test_whoever_wants_a_run_that_a_user_begins_waits_alone(
    postgres: PostgresServer, url: str, verb: str, end: str
) -> None:
    """Until the user's transaction has ended: then it is that run, or a new one."""
    async with (
        open_app(url) as app,
        app.worker([double]),
        await psycopg.AsyncConnection.connect(postgres.url()) as user,
    ):
        await app.submit(double, 2, id="r", connection=user)
        asked = asyncio.create_task(getattr(app, verb)(double, 2, id="r"))
        other = await (await app.start(double, 3, id="other")).outcome()
        assert not asked.done()
        await (user.commit() if end == "commit" else user.rollback())

        assert (6, 4) == (other, await (await asked).outcome())


async def test_a_child_that_a_user_begins_is_waited_for(postgres: PostgresServer, url: str) -> None:
    """Its parent's other steps go on meanwhile, and so do other runs."""
    async with (
        open_app(url) as app,
        await psycopg.AsyncConnection.connect(postgres.url()) as user,
    ):
        await app.submit(double, 2, id="child", connection=user)
        parent = await app.start(doubles, id="parent")
        other = await (await app.start(double, 3, id="other")).outcome()
        await user.rollback()

        assert (6, 4) == (other, await parent.outcome())


async def test_what_a_step_has_put_off_until_its_end_waits_before_its_run_is_locked(
    postgres: PostgresServer, url: str
) -> None:
    """A constraint may wait for somebody's lock; the run's driver, and all beside it, go on."""
    store = PostgresStore(url)
    await store.commit([held("r", "w")])
    names = [f"{schema_of(url)}.{name}" for name in ("parents", "children")]
    async with (
        await psycopg.AsyncConnection.connect(postgres.url()) as holder,
        await psycopg.AsyncConnection.connect(postgres.url(), autocommit=True) as watcher,
    ):
        await watcher.execute(f"CREATE TABLE {names[0]} AS SELECT 1 AS id")
        await watcher.execute(f"ALTER TABLE {names[0]} ADD PRIMARY KEY (id)")
        await watcher.execute(
            f"CREATE TABLE {names[1]} (parent int REFERENCES {names[0]} INITIALLY DEFERRED)"
        )
        await holder.execute(f"DELETE FROM {names[0]}")
        own = await store.transactions.begin_async(
            Attempt(run_id="r", step="s", seq=1, epoch=1), 30
        )
        await own.connection.execute(f"INSERT INTO {names[1]} VALUES (1)")
        ending = asyncio.create_task(own.commit(b"done"))
        await wait_for_waiting(watcher, holder.info.backend_pid)
        await assert_unlocked(postgres, url, "r")
        await holder.rollback()
        await ending

    assert b"done" == await store.transactions.outcome_of(
        Attempt(run_id="r", step="s", seq=1, epoch=1)
    )
    await store.close()
