"""Retention on PostgreSQL."""

from __future__ import annotations

import pytest

from outlive.ports import Ports
from outlive.store import Store
from outlive.stores.postgres import PostgresStore
from tests.retention.calendar import Calendar
from tests.retention.rules import RetentionRules


class TestPostgres(RetentionRules):
    """On a real server; only its clock is ours."""

    @pytest.fixture
    def store(self, ports: Ports, calendar: Calendar, url: str) -> Store:
        return PostgresStore(url, ports=ports, lease_seconds=30.0, server_time=calendar.now_ms)
