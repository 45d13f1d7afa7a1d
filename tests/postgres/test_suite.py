"""The store in PostgreSQL keeps the promises of the seam."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from outlive.ports import Ports
from outlive.store import Store
from outlive.stores.postgres import PostgresStore
from outlive.testing.store_entries import LEASE_SECONDS, HandClock
from outlive.testing.store_suite import StoreSuite


class TestPostgres(StoreSuite):
    """On a real server; only its clock is ours."""

    deaths_are_certain = False

    @pytest.fixture
    def make_store(self, ports: Ports, clock: HandClock, url: str) -> Iterator[Callable[[], Store]]:
        opened: list[PostgresStore] = []

        def make() -> Store:
            store = PostgresStore(
                url, ports=ports, lease_seconds=LEASE_SECONDS, server_time=clock.now_ms
            )
            opened.append(store)
            return store

        yield make
        for store in opened:
            asyncio.run(store.close())
