"""The store in a SQLite file keeps the promises of the seam."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
from outlive.testing.suite.entries import LEASE_SECONDS
from outlive.testing.suite.suite import StoreSuite
from tests.harness.stores import opened_again


class TestSQLite(StoreSuite):
    """Opening the file again is what another process would do."""

    @pytest.fixture
    def make_store(self, ports: Ports, tmp_path: Path) -> Iterator[Callable[[], Store]]:
        def make() -> SQLiteStore:
            return SQLiteStore(tmp_path / "o.db", ports=ports, lease_seconds=LEASE_SECONDS)

        with opened_again(make) as begin:
            yield begin
