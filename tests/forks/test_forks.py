"""Forks on the stores of one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
from tests.forks.rules import ForkRules


class TestMemory(ForkRules):
    """In memory."""

    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore(lease_seconds=30.0)


class TestSQLite(ForkRules):
    """In a file."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return SQLiteStore(tmp_path / "o.db", lease_seconds=30.0)
