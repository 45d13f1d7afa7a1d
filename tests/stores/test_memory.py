"""The store in memory keeps the promises of the seam."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from outlive.testing.suite.entries import LEASE_SECONDS
from outlive.testing.suite.suite import StoreSuite


class TestMemory(StoreSuite):
    """The object is the disk, so opening it again is having it."""

    @pytest.fixture
    def make_store(self, ports: Ports) -> Callable[[], Store]:
        store = MemoryStore(ports=ports, lease_seconds=LEASE_SECONDS)
        return lambda: store

    async def kill(self, store: Store, worker: str) -> None:
        assert isinstance(store, MemoryStore)
        store.kill(worker)
