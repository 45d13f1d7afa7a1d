"""Clockworks on every local store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.schedules.clockwork import Clockwork


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def clockwork(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Clockwork]:
    """One per kind of store; whatever waits leaves memory."""
    made = Clockwork(file=tmp_path / "journal.db" if request.param == "sqlite" else None)
    yield made
    await made.close()
