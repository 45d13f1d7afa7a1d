"""Forks on PostgreSQL."""

from __future__ import annotations

import pytest

from outlive.stores.postgres.store import PostgresStore
from outlive.stores.seam import Store
from tests.forks.rules import ForkRules


class TestPostgres(ForkRules):
    """On a real server."""

    @pytest.fixture
    def store(self, url: str) -> Store:
        return PostgresStore(url, lease_seconds=30.0)
