"""A sealed store keeps the promises of the seam, whichever store it seals."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlive.journal.master_keys import MasterKeys, new_key
from outlive.journal.sealed_extras import seal_store
from outlive.ports import Ports
from outlive.store import Store
from outlive.stores.memory import MemoryStore
from outlive.stores.sqlite import SQLiteStore
from outlive.testing.store_entries import LEASE_SECONDS
from outlive.testing.store_suite import StoreSuite
from tests.harness.stores import opened_again

KEYS = MasterKeys.parse(new_key(os.urandom), os.urandom)


@pytest.mark.full
class TestSealedMemory(StoreSuite):
    """Another opening of it has to find the keys in the store."""

    @pytest.fixture
    def make_store(self, ports: Ports) -> Callable[[], Store]:
        self.below = MemoryStore(ports=ports, lease_seconds=LEASE_SECONDS)
        return lambda: seal_store(self.below, KEYS)

    async def kill(self, store: Store, worker: str) -> None:
        self.below.kill(worker)


class TestSealedSQLite(StoreSuite):
    """Each opening is what another process would have, its keys too."""

    @pytest.fixture
    def make_store(self, ports: Ports, tmp_path: Path) -> Iterator[Callable[[], Store]]:
        def make() -> SQLiteStore:
            return SQLiteStore(tmp_path / "o.db", ports=ports, lease_seconds=LEASE_SECONDS)

        with opened_again(make, lambda store: seal_store(store, KEYS)) as begin:
            yield begin
