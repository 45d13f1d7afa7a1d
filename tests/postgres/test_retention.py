"""Retention on PostgreSQL."""

from __future__ import annotations

import pytest

from outlive import Retention
from outlive.app import App
from outlive.errors import UsageError
from outlive.ports import Ports
from outlive.store import Store
from outlive.stores.postgres import PostgresStore
from tests.retention.calendar import Calendar
from tests.retention.flows import double
from tests.retention.rules import RetentionRules, runs_of


class TestPostgres(RetentionRules):
    """On a real server; only its clock is ours."""

    @pytest.fixture
    def store(self, ports: Ports, calendar: Calendar, url: str) -> Store:
        return PostgresStore(url, ports=ports, lease_seconds=30.0, server_time=calendar.now_ms)

    async def test_the_store_itself_is_no_archive(self, app: App, url: str) -> None:
        """However its URL is written: the two know one another by an id."""
        await (await app.start(double, 1, id="r"))
        other = f"{url}{'&' if '?' in url else '?'}application_name=archive"

        for itself in (url, other):
            with pytest.raises(UsageError, match="is the store itself; name another, or a folder"):
                await app.retain(Retention(completed=0, archive=itself))

        assert ["r"] == await runs_of(app)
