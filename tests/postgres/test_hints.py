"""Rows of a PostgreSQL store that lie."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from outlive.store import Store
from outlive.stores.postgres import PostgresStore
from tests.harness.postgres_server import PostgresServer
from tests.workers.hint_rules import Damage, HintRules


class TestPostgres(HintRules):
    """On a server."""

    @pytest.fixture
    def opened(self, url: str) -> Callable[[], Store]:
        return lambda: PostgresStore(url, lease_seconds=30.0)

    @pytest.fixture
    def damage(self, postgres: PostgresServer, url: str) -> Damage:
        schema = url.rpartition("schema=")[2]

        def execute(sql: str) -> None:
            with psycopg.connect(postgres.url(), autocommit=True) as db:
                db.execute(f"SET search_path = {schema}".encode())
                db.execute(sql.encode())

        return execute
