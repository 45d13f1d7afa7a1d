"""Retention and forks on a sealed store: as on any other, but nothing readable leaves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive import Retention
from outlive.app import App
from outlive.errors import UsageError
from outlive.journal.master_keys import new_key
from outlive.ports import Ports
from outlive.sealing import sealed
from outlive.store import Store
from outlive.stores.memory import MemoryStore
from tests.forks.rules import ForkRules
from tests.retention.calendar import Calendar
from tests.retention.rules import RetentionRules


def sealed_store(ports: Ports) -> Store:
    key = new_key(ports.entropy)
    return sealed(MemoryStore(ports=ports, lease_seconds=30.0), key, ports)


class TestSealed(RetentionRules):
    """Rules of deletion."""

    @pytest.fixture
    def store(self, ports: Ports) -> Store:
        return sealed_store(ports)

    async def test_what_goes_is_archived_first(
        self, app: App, calendar: Calendar, tmp_path: Path
    ) -> None:
        """An archive would be readable by anybody, so there is none."""
        with pytest.raises(UsageError, match="readable by anybody"):
            await app.retain(Retention(completed=0, archive=str(tmp_path / "old")))

    async def test_what_goes_may_be_archived_in_another_store(
        self, app: App, calendar: Calendar, tmp_path: Path
    ) -> None:
        """Nor in another store."""
        with pytest.raises(UsageError, match="readable by anybody"):
            await app.retain(Retention(completed=0, archive=f"sqlite:///{tmp_path}/a.db"))


class TestSealedForks(ForkRules):
    """Rules of forks."""

    @pytest.fixture
    def store(self) -> Store:
        return sealed_store(Ports())
