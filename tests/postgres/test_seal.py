"""A sealed store on PostgreSQL: the promises of the seam, and nothing readable in its folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from outlive.journal.seal.keys import MasterKeys, new_key
from outlive.journal.seal.sealed_store import SealedStore
from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.testing.suite.entries import HandClock
from outlive.testing.suite.suite import StoreSuite
from tests.conftest import Figure
from tests.harness.postgres_server import PostgresServer
from tests.harness.stores import on_server, opened_again
from tests.seal.test_secrets import SECRETS, found_in, live_it

KEY = new_key(os.urandom)


@pytest.mark.full
class TestSealedPostgres(StoreSuite):
    """On a real server; each opening has to find the keys there."""

    deaths_are_certain = False

    @pytest.fixture
    def make_store(self, ports: Ports, clock: HandClock, url: str) -> Iterator[Callable[[], Store]]:
        def sealed(store: Store) -> Store:
            return SealedStore(store, MasterKeys.parse(KEY, os.urandom))

        with opened_again(lambda: on_server(url, ports, clock), sealed) as make:
            yield make


async def test_no_secret_is_in_the_data_folder(
    own_postgres: PostgresServer, figure: Figure
) -> None:
    """Neither in tables nor in the log of writes nor in what the server says."""
    server, url = own_postgres, own_postgres.url(schema="sealed")
    seen: set[str] = set()
    await live_it(url, KEY, lambda: seen.update(found_in(server.folder)))
    server.stop()

    assert set() == seen | found_in(server.folder)

    server.start()
    await live_it(server.url(schema="plain"), None)
    server.stop()
    plain = found_in(server.folder)
    figure("sealed: secrets readable in PostgreSQL", f"0 of 20, without a key {len(plain)} of 20")
    assert len(SECRETS) - 1 <= len(plain)  # a long text is compressed by the server
