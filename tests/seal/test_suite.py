"""A sealed store keeps the promises of the seam, whichever store it seals."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlive.journal.seal.keys import MasterKeys, new_key
from outlive.journal.seal.sealed_store import SealedStore
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
from outlive.testing.suite.entries import LEASE_SECONDS
from outlive.testing.suite.suite import StoreSuite
from tests.harness.stores import opened_again

KEYS = MasterKeys.parse(new_key(os.urandom), os.urandom)


@pytest.mark.full
class TestSealedMemory(StoreSuite):
    """Another opening of it has to find the keys in the store."""

    @pytest.fixture
    def make_store(self, ports: Ports) -> Callable[[], Store]:
        self.below = MemoryStore(ports=ports, lease_seconds=LEASE_SECONDS)
        return lambda: SealedStore(self.below, KEYS)

    async def kill(self, store: Store, worker: str) -> None:
        self.below.kill(worker)


class TestSealedSQLite(StoreSuite):
    """Each opening is what another process would have, its keys too."""

    @pytest.fixture
    def make_store(self, ports: Ports, tmp_path: Path) -> Iterator[Callable[[], Store]]:
        def make() -> SQLiteStore:
            return SQLiteStore(tmp_path / "o.db", ports=ports, lease_seconds=LEASE_SECONDS)

        with opened_again(make, lambda store: SealedStore(store, KEYS)) as begin:
            yield begin
