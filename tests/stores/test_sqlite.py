"""The store in a SQLite file keeps the promises of the seam."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlive.ports import Ports
from outlive.store import Store
from outlive.stores.sqlite import SQLiteStore
from outlive.testing.store_entries import LEASE_SECONDS
from outlive.testing.store_suite import StoreSuite


class TestSQLite(StoreSuite):
    """Opening the file again is what another process would do."""

    @pytest.fixture
    def make_store(self, ports: Ports, tmp_path: Path) -> Iterator[Callable[[], Store]]:
        opened: list[SQLiteStore] = []

        def make() -> Store:
            store = SQLiteStore(tmp_path / "o.db", ports=ports, lease_seconds=LEASE_SECONDS)
            opened.append(store)
            return store

        yield make
        for store in opened:
            asyncio.run(store.close())
