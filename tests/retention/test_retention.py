"""Retention on the stores of one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.ports import Ports
from outlive.store import Store
from outlive.stores.memory import MemoryStore
from outlive.stores.sqlite import SQLiteStore
from tests.retention.rules import RetentionRules


class TestMemory(RetentionRules):
    """In memory."""

    @pytest.fixture
    def store(self, ports: Ports) -> Store:
        return MemoryStore(ports=ports, lease_seconds=30.0)


class TestSQLite(RetentionRules):
    """In a file."""

    @pytest.fixture
    def store(self, ports: Ports, tmp_path: Path) -> Store:
        return SQLiteStore(tmp_path / "o.db", ports=ports, lease_seconds=30.0)
