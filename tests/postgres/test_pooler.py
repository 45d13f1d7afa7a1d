"""Behind a pooler that hands out a server per transaction, everything works but wake-ups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from urllib.parse import quote

import pytest

import outlive
from outlive.ports import Ports
from outlive.stores.postgres.connection import Statement
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.seam import Store
from outlive.stores.types import Query
from outlive.testing.suite.entries import HandClock, entry, held
from outlive.testing.suite.leases import LeaseRules
from outlive.testing.suite.mail import MailRules
from outlive.testing.suite.suite import StoreSuite
from tests.harness.postgres_pooler import PostgresPooler
from tests.harness.postgres_server import PostgresServer
from tests.harness.stores import on_server, opened_again

_numbers = count(1)


@pytest.fixture(scope="module")
def pooler(postgres: PostgresServer) -> Iterator[PostgresPooler]:
    with PostgresPooler(postgres) as pooler:
        yield pooler


@pytest.fixture
def url(postgres: PostgresServer, pooler: PostgresPooler) -> str:
    return postgres.url(port=pooler.port, schema=f"pooled_{next(_numbers)}")


@pytest.mark.full
class TestPooled(MailRules, LeaseRules):
    """The part of the suite that has most to do with many at once."""

    deaths_are_certain = False
    clock, ports, store = StoreSuite.clock, StoreSuite.ports, StoreSuite.store

    @pytest.fixture
    def make_store(self, ports: Ports, clock: HandClock, url: str) -> Iterator[Callable[[], Store]]:
        with opened_again(lambda: on_server(url, ports, clock)) as make:
            yield make


async def test_more_clients_than_connections(url: str) -> None:
    """Twelve threads share the four connections that the pooler has; no run mixes with another."""
    store = PostgresStore(url)
    await store.commit([held(f"r{number}", "w") for number in range(12)])

    def drive(number: int) -> list[object]:
        seqs = range(1, 30)
        return [asyncio.run(store.commit([entry(f"r{number}", seq)]))[0] for seq in seqs]

    answers = await asyncio.gather(*(asyncio.to_thread(drive, number) for number in range(12)))

    assert [[None] * 29] * 12 == answers
    assert 30 == (await store.find(Query())).items[0].head.seq
    await store.close()


async def test_nothing_is_kept_by_sessions_of_others(url: str) -> None:
    """The next transaction may have another one."""
    store = PostgresStore(url)
    await store.commit([held("r", "w")])
    for seq in (1, 2, 3):
        assert [None] == await store.commit([entry("r", seq)])

    found = store.pool.run("commit", Statement("SELECT count(*) FROM pg_prepared_statements"))

    assert [[(0,)]] == found
    await store.close()


async def test_it_is_noticed(postgres: PostgresServer, url: str) -> None:
    """No session is taken for one's own; who names the server gets wake-ups all the same."""
    pooled = PostgresStore(url)
    assert "yes" == (await pooled.health()).facts["pooler"]
    assert pooled.pool.open_to_listen() is None
    await pooled.close()

    past = PostgresStore(f"{url}&listen={quote(postgres.url(), safe='')}")
    listening = past.pool.open_to_listen()
    assert listening is not None
    listening.close()
    await past.close()


@outlive.effect
async def pay(cents: int) -> int:
    return cents


@outlive.flow
async def paying() -> int:
    return await pay(1) + await pay(2)


async def test_a_flow_runs(url: str) -> None:
    """By polling alone."""
    async with outlive.open(url) as app:
        assert 3 == await (await app.start(paying)).outcome()
