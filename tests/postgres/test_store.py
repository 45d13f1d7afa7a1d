"""What the store in PostgreSQL promises beyond the seam."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from outlive.app.open import open_app
from outlive.errors import StoreFailed, StoreUnavailable, UnknownStore, UnsafeSettings, WrongVersion
from outlive.ports import Ports
from outlive.stores.postgres.notify import ANYBODY, WakeRate
from outlive.stores.postgres.schema import MIGRATIONS, SCHEMA_VERSION
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.types import Node
from outlive.testing.suite.entries import (
    WANTED,
    HandClock,
    delete_one,
    entry,
    header,
    held,
    parked,
    post_one,
)
from tests.harness.postgres_server import PostgresServer

Execute = Callable[[str], list[Any]]


@pytest.fixture
def execute(postgres: PostgresServer) -> Execute:
    """Says something to the server behind the store's back."""

    def say(sql: str) -> list[Any]:
        with psycopg.connect(postgres.url(), autocommit=True) as db:
            cursor = db.execute(sql)
            return cursor.fetchall() if cursor.description else []

    return say


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


# ------------------------------------------------------------------ round trips


@pytest.mark.parametrize("count", [1, 10, 500])
async def test_a_batch_is_one_round_trip(url: str, count: int) -> None:
    """Whatever it holds: new runs, appends, headers, nodes, mail, takeovers, refusals."""
    store = PostgresStore(url)
    await store.commit([held(f"r{n}", "w") for n in range(count)])
    await store.commit([parked(f"p{n}") for n in range(count)])
    await post_one(store, "r0", "m", b"")
    before = store.pool.round_trips["commit"]

    plain = await store.commit([entry(f"r{n}", 1) for n in range(count)])
    mixed = await store.commit(
        [
            *(entry(f"r{n}", 2, header=header(status="x")) for n in range(1, count)),
            *(entry(f"new{n}", 0, nodes=(Node(b"a", b"b"),)) for n in range(count)),
            *(entry(f"p{n}", 1, epoch=2, lease="take", worker="w") for n in range(count)),
            entry("r0", 2, consumed=("m",)),
        ]
    )
    refused = await store.commit([entry(f"r{n}", 1, b"late") for n in range(count)])

    assert 3 == store.pool.round_trips["commit"] - before
    assert {None} == {*plain, *mixed}
    assert None not in refused
    await store.close()


async def test_reading_and_claiming_are_one_round_trip(url: str) -> None:
    """A journal with its head and mail; everything that a worker wants to know."""
    store = PostgresStore(url)
    await store.commit([held("r", "w"), parked("p", 0)])
    await store.beat("w")
    before = store.pool.round_trips["other"]

    await store.read("r")
    await store.claim("other", WANTED, 10)

    assert 2 == store.pool.round_trips["other"] - before
    await store.close()


async def test_a_plain_append_touches_no_index_of_runs(url: str, execute: Execute) -> None:
    """Updates of the head stay on the row's page: nothing piles up in the indexes."""
    store = PostgresStore(url)
    await store.commit([held("r", "w")])
    for seq in range(1, 200):
        await store.commit([entry("r", seq)])
    await store.close()

    updates, on_page = 0, 0
    while updates < 199:  # the server counts when a session has ended
        ((updates, on_page),) = execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_all_tables"
            f" WHERE schemaname = '{schema_of(url)}' AND relname = 'runs'"
        )

    # Somebody's old snapshot may keep a page from being tidied up for a while.
    assert on_page >= 0.9 * updates


# ------------------------------------------------------------------ opening


async def test_many_open_a_new_place_at_once(url: str) -> None:
    """One makes the tables, the others wait for it."""
    barrier = threading.Barrier(6)

    def open_it(_: int) -> PostgresStore:
        barrier.wait()
        return PostgresStore(url)

    with ThreadPoolExecutor(6) as threads:
        stores = list(threads.map(open_it, range(6)))

    for number, store in enumerate(stores):
        assert [None] == list(await store.commit([entry(f"r{number}", 0)]))
        await store.close()


class Killed(BaseException):
    """Stands for the end of the process: nothing after it runs."""


@pytest.mark.parametrize(
    "moment",
    [f"{version}.{number}" for version, each in MIGRATIONS.items() for number in range(len(each))]
    + ["commit"],
)
async def test_a_migration_that_is_killed_leaves_nothing(
    postgres: PostgresServer, moment: str
) -> None:
    """At any of its statements; the next who opens the place makes it."""
    url = postgres.url(schema=f"killed_{moment.replace('.', '_')}")

    def kill(where: str) -> None:
        if where == f"migrate.{moment}":
            raise Killed

    with pytest.raises(Killed):
        PostgresStore(url, ports=Ports(failpoint=kill))

    store = PostgresStore(url)
    assert [None] == list(await store.commit([entry("r", 0)]))
    await store.close()


async def test_a_schema_of_before_is_brought_up_to_date(
    url: str, monkeypatch: pytest.MonkeyPatch, execute: Execute
) -> None:
    """What was there stays, and gets what it did not have."""
    with monkeypatch.context() as patched:
        patched.setattr("outlive.stores.postgres.schema.SCHEMA_VERSION", 1)
        with pytest.raises(ValueError, match="not enough"):  # stores had no id then
            PostgresStore(url)
    execute(
        f"INSERT INTO {schema_of(url)}.runs (run_id, seq, epoch, link, flow, version, format,"
        " status, family, started_at, wake_at, queue, tags, reason, chapter, chapter_link)"
        " VALUES ('old', 1, 0, '', 'support', '1', 3, 'pending', 'old', 1, 1, 'q', '{}', '', 0, '')"
    )

    store = PostgresStore(url)

    claims = await store.claim("w", WANTED, 10)
    assert [("old", "q", "", 0, 1)] == [
        (o.head.run_id, o.header.queue, o.header.queue_key, o.header.priority, o.header.units)
        for o in claims.offers
    ]
    await store.close()


async def test_a_later_schema_is_refused(url: str, execute: Execute) -> None:
    """Both versions are named, nothing is touched."""
    await PostgresStore(url).close()
    execute(f"UPDATE {schema_of(url)}.meta SET value = '99' WHERE name = 'outlive.schema'")

    with pytest.raises(WrongVersion, match=rf"schema 99.* schema {SCHEMA_VERSION}\b"):
        PostgresStore(url)


async def test_another_programs_schema_is_left_alone(url: str, execute: Execute) -> None:
    """It is not ours, so nothing is made there."""
    execute(f"CREATE SCHEMA {schema_of(url)} CREATE TABLE runs (x int)")

    with pytest.raises(StoreUnavailable, match="another program"):
        PostgresStore(url)


async def test_a_role_with_no_rights_to_create_can_use_what_is_there(
    postgres: PostgresServer, url: str, execute: Execute
) -> None:
    """Opening makes nothing when everything is there."""
    await PostgresStore(url).close()
    schema, role = schema_of(url), f"role_of_{schema_of(url)}"
    execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")
    execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}")
    plain = url.replace(f"outlive:{postgres.password}", f"{role}:secret")

    store = PostgresStore(plain)

    assert [None] == list(await store.commit([entry("r", 0)]))
    await store.close()


# ------------------------------------------------------------------ settings


async def test_a_server_that_answers_before_it_flushes_is_refused(
    postgres: PostgresServer, url: str, execute: Execute
) -> None:
    """Unless the URL says that this may be; then its health says so."""
    role = f"hasty_{schema_of(url)}"
    execute(f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD 'secret'")
    execute(f"ALTER ROLE {role} SET synchronous_commit = off")
    hasty = url.replace(f"outlive:{postgres.password}", f"{role}:secret")

    with pytest.raises(UnsafeSettings, match="synchronous_commit is off"):
        PostgresStore(hasty)

    store = PostgresStore(f"{hasty}&unsafe=yes")
    assert ["synchronous_commit is off"] == list((await store.health()).problems)
    await store.close()


def test_a_server_that_never_flushes_is_refused() -> None:
    """The same for fsync, which only a server as a whole has."""
    with (
        PostgresServer(settings={"fsync": "off"}) as server,
        pytest.raises(UnsafeSettings, match="fsync is off"),
    ):
        PostgresStore(server.url())


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("schema=No", "schema"),
        ("schema=a;drop", "schema"),
        ("schema=", "schema"),
        ("schema=pg_x", "nor pg_"),
        ("limit=never", "limit"),
        ("outage=0", "outage"),
        ("unsafe=maybe", "unsafe"),
        ("nonsense=1", "nonsense"),
    ],
)
def test_options_that_make_no_sense(query: str, why: str) -> None:
    """Refused by name before anything is opened; a password is not repeated."""
    with pytest.raises(UnknownStore, match=why) as caught:
        PostgresStore(f"postgresql://user:hushhush@127.0.0.1:1/db?{query}")

    assert "hushhush" not in str(caught.value)


async def test_a_look_that_fails_spoils_nothing(url: str, execute: Execute) -> None:
    """A part of the schema is gone and comes back: no connection is left in a broken state."""
    store = PostgresStore(url)
    await store.commit([entry("r", 0)])
    execute(f"ALTER TABLE {schema_of(url)}.records RENAME TO elsewhere")
    with pytest.raises(StoreFailed, match="removed a part"):
        await store.read("r")
    execute(f"ALTER TABLE {schema_of(url)}.elsewhere RENAME TO records")

    assert await store.read("r") is not None
    assert "posted" == await post_one(store, "r", "m", b"")
    await store.close()


# ------------------------------------------------------------------ news


async def test_whoever_waits_for_news_gets_them(url: str) -> None:
    """Of mail for its own runs, and of runs that anybody may claim; from another store object."""
    ours, theirs = PostgresStore(url), PostgresStore(url)
    await ours.commit([held("r", "w"), held("s", "other")])
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    stop = ours.watchable.watch("w", lambda: loop.call_soon_threadsafe(heard.set))
    await asyncio.wait_for(heard.wait(), 10)  # it listens now

    for tell in (post_one(theirs, "r", "m", b""), theirs.commit([parked("p", 0)])):
        heard.clear()
        await tell
        await asyncio.wait_for(heard.wait(), 10)

    stop()
    await asyncio.to_thread(lambda: asyncio.run(ours.close()))
    await theirs.close()


async def test_two_who_delete_the_last_of_a_family_leave_no_nodes(url: str) -> None:
    """However close together they come."""
    stores = [PostgresStore(url) for _ in range(2)]
    done = header(status="done", ended_at=1)
    for turn in range(10):
        ids = [f"{turn}.{n}" for n in range(2)]
        await stores[0].commit([entry(run_id, 0, header=done) for run_id in ids])
        await stores[0].put_blob("family-1", Node(b"a", b"body"))

        def delete(at: int, ids: list[str] = ids) -> bool:
            return asyncio.run(delete_one(stores[at], ids[at], seq=1, digest=b"", keep_until=0))

        assert [True, True] == await asyncio.gather(
            *(asyncio.to_thread(delete, at) for at in range(2))
        )
        assert {} == await stores[0].get_blobs("family-1", [b"a"])
    for store in stores:
        await store.close()


async def test_looking_makes_no_schema(url: str, execute: Execute) -> None:
    """Commands that only look say that there is nothing, without the password of the URL."""
    with pytest.raises(StoreUnavailable, match="there is no store at postgresql at") as caught:
        open_app(url, must_exist=True)

    assert url.split(":")[2].split("@")[0] not in str(caught.value)
    found = execute(f"SELECT nspname FROM pg_namespace WHERE nspname = '{schema_of(url)}'")
    assert [] == found
    await PostgresStore(url).close()
    open_app(url, must_exist=True).close()


async def test_a_look_for_work_does_not_go_over_all_workers(url: str, execute: Execute) -> None:
    """However many hold runs: only those that seem silent are looked at, all of them but rarely."""
    workers, looks = 100, 20
    store, schema = PostgresStore(url), schema_of(url)
    await store.commit([held(f"r{n}", f"w{n}") for n in range(workers)])
    for number in range(workers):
        await store.beat(f"w{number}")
    for _ in range(looks):
        assert [] == list((await store.claim("w0", WANTED, 10)).offers)
    await store.close()

    probes = 0
    while probes < workers:  # the server counts when a session has ended
        ((probes,),) = execute(
            "SELECT idx_scan FROM pg_stat_all_indexes"
            f" WHERE schemaname = '{schema}' AND indexrelname = 'runs_held'"
        )
    assert probes < 3 * workers


async def test_nobody_is_woken_for_a_run_that_sleeps_long(url: str) -> None:
    """Every notification wakes all who listen: only what is due is worth that."""
    store = PostgresStore(url)
    told: list[str] = []
    store.watchable.tell = told.extend  # type: ignore[method-assign, assignment]
    now = Ports().clock.now_ms()

    await store.commit([parked("long", now + 60_000), parked("for mail", None)])
    assert [] == told

    await store.commit([parked("due", now)])
    assert [""] == told
    await store.close()


def test_many_workers_do_not_all_look_at_once_again_and_again() -> None:
    """News for everybody are taken at a pace that all workers can afford; one's own at once."""
    clock = HandClock()
    pace = WakeRate(clock)
    pace.count(500)
    told = {ANYBODY}

    assert {ANYBODY} == pace.take(told)
    told |= {ANYBODY, "w"}
    assert {"w"} == pace.take(told)
    assert {ANYBODY} == told
    clock.advance(pace.left())
    assert {ANYBODY} == pace.take(told)
    assert set() == told
