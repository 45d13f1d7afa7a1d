"""A loop asks the server itself and waits for a moment; what takes longer is not its business."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

import outlive
from outlive.app.app import App
from outlive.journal import lane as immediate
from outlive.settings import Settings
from outlive.stores.postgres import commit as postgres_prompt
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.types import Entry
from outlive.testing.suite.entries import entry, held
from tests.harness.postgres_server import PostgresServer
from tests.postgres.proxy import COMMITS, Proxy

PATIENT_SECONDS = 30.0


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


@contextmanager
def locked(server: PostgresServer, url: str, run_id: str) -> Iterator[None]:
    """Whoever commits to this run waits."""
    with psycopg.connect(server.url()) as db:
        table = f"{schema_of(url)}.runs"
        db.execute(f"SELECT 1 FROM {table} WHERE run_id = %s FOR UPDATE", (run_id,))
        yield


async def records(store: PostgresStore, run_id: str) -> list[int]:
    reading = await store.read(run_id)
    assert reading is not None
    return [record.seq for record in reading.records]


async def ready(url: str) -> PostgresStore:
    """A store with two runs, and a connection for commits."""
    store = PostgresStore(url)
    await store.commit([held("r", "w"), held("s", "w")])
    return store


async def test_a_quick_server_answers_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one round trip, as any commit; a connection that would have to be opened is no answer."""
    monkeypatch.setattr(postgres_prompt, "MOMENT_SECONDS", PATIENT_SECONDS)
    unready = PostgresStore(url)
    assert await unready.commit([entry("r", 1)], wait=False) is None
    await unready.close()
    store = await ready(url)
    before = store.pool.round_trips["commit"]

    assert [None] == await store.commit([entry("r", 1)], wait=False)
    (conflict,) = await store.commit([entry("r", 1, record=b"another")], wait=False) or ()

    assert conflict is not None
    assert 2 == store.pool.round_trips["commit"] - before
    assert [1, 2] == await records(store, "r")
    await store.close()


async def test_a_late_answer_is_waited_for_elsewhere(postgres: PostgresServer, url: str) -> None:
    """The same question is not asked twice; others get answers of their own meanwhile."""
    store = await ready(url)
    await asyncio.gather(*(store.commit([entry("s", 1)]) for _ in range(2)))
    before = store.pool.round_trips["commit"]
    with locked(postgres, url, "r"):
        assert await store.commit([entry("r", 1)], wait=False) is None
        assert [None] == await store.commit([entry("s", 2)])

    assert [None] == await store.commit([entry("r", 1)])

    assert {} == store._commits._late
    assert 2 == store.pool.round_trips["commit"] - before
    assert [1, 2] == await records(store, "r")
    await store.close()


async def test_a_store_that_is_closed_waits_for_nothing(postgres: PostgresServer, url: str) -> None:
    """The connection of an answer that nobody waits for is given up."""
    store = await ready(url)
    with locked(postgres, url, "r"):
        assert await store.commit([entry("r", 1)], wait=False) is None
        await store.close()

    assert {} == store._commits._late


@pytest.mark.parametrize("moment", [0.002, PATIENT_SECONDS])
async def test_an_answer_that_never_comes(
    postgres: PostgresServer, url: str, moment: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is done and its connection lost, before or after the moment: it counts once."""
    monkeypatch.setattr(postgres_prompt, "MOMENT_SECONDS", moment)
    with Proxy(postgres.port) as proxy:
        store = await ready(url.replace(f":{postgres.port}/", f":{proxy.port}/"))
        proxy.lose_next_answer(to=COMMITS)
        batch: list[Entry] = [entry("r", 1)]

        assert await store.commit(batch, wait=False) is None
        assert [None] == await store.commit(batch)

        assert 1 == proxy.lost
        assert [1, 2] == await records(store, "r")
        await store.close()


async def test_a_lone_run_commits_from_its_own_loop(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some quick answers, and no other thread has a part in it."""
    monkeypatch.setattr(postgres_prompt, "MOMENT_SECONDS", PATIENT_SECONDS)
    monkeypatch.setattr(immediate, "SLOW_SECONDS", PATIENT_SECONDS)
    threads: list[str] = []

    class Watched(PostgresStore):
        async def commit(self, batch, *, wait=True):  # type: ignore[no-untyped-def]
            if not wait:
                threads.append(threading.current_thread().name)
            return await super().commit(batch, wait=wait)

    @outlive.effect(name="prompt_touch")
    async def touch(number: int) -> int:
        return number

    @outlive.flow(name="prompt_touches")
    async def touches(count: int) -> int:
        return sum([await touch(number) for number in range(count)])

    async with App(Watched(url), settings=Settings(lease_seconds=60.0)) as app:
        effects = 3 * immediate.QUICK_TIMES
        assert sum(range(effects)) == await (await app.start(touches, effects, id="r"))

    assert {"MainThread"} == set(threads)
    assert len(threads) >= immediate.QUICK_TIMES
