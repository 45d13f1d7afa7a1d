"""Clockworks on every local store; chance that can be replayed; a PostgreSQL server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.crash.conftest import chance, trials
from tests.postgres.conftest import postgres, url
from tests.schedules.clockwork import Clockwork

__all__ = ["chance", "postgres", "trials", "url"]


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def clockwork(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Clockwork]:
    """One per kind of store; whatever waits leaves memory."""
    made = Clockwork(file=tmp_path / "journal.db" if request.param == "sqlite" else None)
    yield made
    await made.close()
