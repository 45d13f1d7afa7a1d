"""A connection that is lost, and a server that crashes, lose nothing that was acknowledged."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from outlive.errors import StoreFailed, StoreUnavailable
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.seam import Store
from outlive.stores.types import Conflict, Reading
from outlive.testing.suite.entries import entry, held, post_one, takeover
from tests.conftest import Figure
from tests.harness.postgres_server import PostgresServer
from tests.postgres.proxy import Proxy


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres.port) as wire:
        yield wire


def through(proxy: Proxy, url: str, **options: str) -> str:
    """The same place, by way of the proxy."""
    place, _, query = url.partition("?")
    front = place.rpartition("@")[0]
    more = "".join(f"&{name}={value}" for name, value in options.items())
    return f"{front}@127.0.0.1:{proxy.port}/postgres?{query}{more}"


async def test_an_answer_that_is_lost_after_the_commit_is_settled(
    proxy: Proxy, url: str, full: bool
) -> None:
    """Every commit is answered as done, once, although each second answer was lost."""
    store = PostgresStore(through(proxy, url))
    answers: list[Conflict | None] = []
    count = 400 if full else 40
    for seq in range(count):
        if seq % 2:
            proxy.lose_next_answer()
        answers += await store.commit([entry("r", seq)])

    reading = await seen(store, "r")
    assert [None] * count == answers
    assert count // 2 == proxy.lost
    assert list(range(1, count + 1)) == [record.seq for record in reading.records]
    await store.close()


async def test_an_answer_that_is_lost_does_not_lead_past_the_fence(proxy: Proxy, url: str) -> None:
    """If another took the run over before the settling, the commit is refused: the lease is lost.

    The takeover is committed in the very moment between the lost answer and the question for it.
    """
    zombie, other = PostgresStore(through(proxy, url)), PostgresStore(url)
    await zombie.commit([held("r", "zombie")])
    proxy.lose_next_answer()
    taken: list[Conflict | None] = []
    opening = zombie.pool._open

    def take_over_first(conninfo: str) -> object:
        answers = other.commit([takeover("r", 2, "other", epoch=2)]).send
        with pytest.raises(StopIteration) as done:
            answers(None)
        taken.extend(done.value.value)
        return opening(conninfo)

    zombie.pool._open = take_over_first  # type: ignore[method-assign, assignment]

    answers = await zombie.commit([entry("r", 1, b"done, but not acknowledged")])

    assert [None] == taken
    assert [Conflict(seq=3, epoch=2)] == list(answers)
    await zombie.close()
    await other.close()


async def test_mail_whose_answer_is_lost_was_posted(proxy: Proxy, url: str) -> None:
    """Its own repeat is told from a second letter of the same id, even when it was consumed."""
    store = PostgresStore(through(proxy, url))
    await store.commit([entry("r", 0)])
    proxy.lose_next_answer()

    assert "posted" == await post_one(store, "r", "m", b"yes")
    assert "already" == await post_one(store, "r", "m", b"yes")
    assert 1 == len((await seen(store, "r")).mail)
    await store.close()


async def test_a_cut_between_two_commits_is_not_noticed(proxy: Proxy, url: str, full: bool) -> None:
    """Connections that died while nobody used them are replaced."""
    store = PostgresStore(through(proxy, url))
    await store.commit([entry("r", 0)])
    for seq in range(1, 201 if full else 10):
        proxy.cut()
        assert [None] == list(await store.commit([entry("r", seq)]))
    await store.close()


async def test_a_server_that_does_not_answer_is_given_up_in_time(proxy: Proxy, url: str) -> None:
    """Half open: the verb ends with an error, and nothing is taken for stored."""
    store = PostgresStore(through(proxy, url, limit="0.2", outage="0.5"))
    await store.commit([entry("r", 0)])
    proxy.mute()

    with pytest.raises(StoreFailed, match="could not be reached"):
        await store.commit([entry("r", 1)])

    proxy.mend()
    assert [None] == list(await store.commit([entry("r", 1)]))
    await store.close()


async def test_no_server_at_all(proxy: Proxy, url: str) -> None:
    """Opening says so at once; the password is not in it."""
    proxy.refuse()

    with pytest.raises(StoreUnavailable, match="can't be opened") as caught:
        PostgresStore(through(proxy, url))

    assert url.split(":")[2].split("@")[0] not in str(caught.value)


class Appending:
    """Commits one event after the other, on a thread of its own, and counts what was answered."""

    def __init__(self, store: Store) -> None:
        self.acknowledged = 0
        self.refused: list[Conflict] = []
        self._store = store
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    async def _main(self) -> None:
        while not self._over.is_set():
            (answer,) = await self._store.commit([entry("r", self.acknowledged)])
            if answer is not None:
                self.refused.append(answer)
                return
            self.acknowledged += 1

    def wait_for_more(self, count: int = 20) -> None:
        """Until so many more were acknowledged."""
        until = self.acknowledged + count
        while self.acknowledged < until and self._thread.is_alive():
            time.sleep(0.001)

    def __enter__(self) -> Appending:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.alone("postgres")
async def test_a_crash_of_the_server_loses_no_acknowledged_event(
    own_postgres: PostgresServer, full: bool
) -> None:
    """It is ended as by a power cut again and again, in the middle of commits."""
    store = PostgresStore(own_postgres.url())
    with Appending(store) as appending:
        for _ in range(20 if full else 2):
            appending.wait_for_more()
            own_postgres.crash()
            own_postgres.start()
        appending.wait_for_more()

    reading = await seen(store, "r")
    assert [] == appending.refused
    assert list(range(1, appending.acknowledged + 1)) == [record.seq for record in reading.records]
    await store.close()


@pytest.mark.alone("postgres")
async def test_a_failover_loses_no_acknowledged_event(
    own_postgres: PostgresServer, figure: Figure
) -> None:
    """The server dies for good in the middle of commits, and its standby takes over."""
    standby = own_postgres.add_standby()
    try:
        hosts = f"127.0.0.1:{own_postgres.port},127.0.0.1:{standby.port}"
        url = own_postgres.url().replace(f"127.0.0.1:{own_postgres.port}", hosts)
        store = PostgresStore(url, lease_seconds=1.0)
        with Appending(store) as appending:
            appending.wait_for_more(100)
            own_postgres.crash()
            began = time.monotonic()
            standby.promote()
            appending.wait_for_more()
            away = time.monotonic() - began

        reading = await seen(store, "r")
        assert [] == appending.refused
        assert list(range(1, appending.acknowledged + 1)) == [r.seq for r in reading.records]
        figure("postgresql: back at work after a failover, ms", round(1000 * away))
        await store.close()
    finally:
        standby.remove()


def waiting_for_standby(server: PostgresServer, *, cancel: bool = False) -> int:
    """How many commits wait for the standby; an operator may cut that short."""
    act = sql.SQL("pg_cancel_backend(pid)" if cancel else "pid")
    look = sql.SQL("SELECT {} FROM pg_stat_activity WHERE wait_event = 'SyncRep'").format(act)
    with psycopg.connect(server.url(), autocommit=True) as db:
        return len(db.execute(look).fetchall())


async def seen(store: Store, run_id: str) -> Reading:
    """A run that must be there."""
    reading = await store.read(run_id)
    assert reading is not None
    return reading
