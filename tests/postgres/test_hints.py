"""Rows of a PostgreSQL store that lie."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from outlive.app.app import App
from outlive.errors import CorruptRecord
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.seam import Store
from tests.harness.postgres_server import PostgresServer
from tests.workers.hint_rules import QUICK, Damage, HintRules, buy, paid


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

    async def test_a_run_whose_row_is_gone_does_not_begin_again(
        self, opened: Callable[[], Store], damage: Damage
    ) -> None:
        """Its records are there: the journal is asked, and the worker goes on with others."""
        async with App(opened(), settings=QUICK) as app:
            await (await app.start(buy, "a", id="r"))
            damage("DELETE FROM runs WHERE run_id = 'r'")

            with pytest.raises(CorruptRecord, match="run r"):
                await (await app.start(buy, "a", id="r")).outcome(timeout=5)
            with pytest.raises(CorruptRecord, match="run r"):
                await app.submit(buy, "a", id="r")
            assert "b" == await (await app.start(buy, "b", id="s")).outcome(timeout=5)

        assert ["a", "b"] == paid
