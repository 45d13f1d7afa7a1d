"""A store with its blobs elsewhere keeps the promises of the seam, sealed or not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlive.journal.blobs import keep_elsewhere
from outlive.journal.lane import run_immediate
from outlive.journal.seal.keys import MasterKeys, new_key
from outlive.journal.seal.sealed_store import SealedStore
from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
from outlive.testing.suite.entries import LEASE_SECONDS
from outlive.testing.suite.suite import StoreSuite
from tests.harness.stores import opened_again

KEYS = MasterKeys.parse(new_key(os.urandom), os.urandom)


@pytest.mark.full
class TestElsewhere(StoreSuite):
    """Two files, of which one has the chunks."""

    @pytest.fixture
    def make_store(self, ports: Ports, tmp_path: Path) -> Iterator[Callable[[], Store]]:
        def make() -> Store:
            journal, blobs = (
                SQLiteStore(tmp_path / f"{name}.db", ports=ports, lease_seconds=LEASE_SECONDS)
                for name in ("o", "blobs")
            )
            return run_immediate(keep_elsewhere(journal, blobs, "blobs.db", os.urandom))

        with opened_again(make, self.dressed) as begin:
            yield begin

    def dressed(self, store: Store) -> Store:
        return store


class TestSealedElsewhere(TestElsewhere):
    """The same behind a seal."""

    def dressed(self, store: Store) -> Store:
        return SealedStore(store, KEYS)
