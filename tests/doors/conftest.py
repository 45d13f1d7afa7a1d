"""Runs that are spoken to: in memory or in a file, apps that die, time moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.engine.world import world
from tests.harness.theatre import EVICTING, STAYING, Theatre


@pytest_asyncio.fixture(params=["memory-2", "sqlite-0"])
async def theatre(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Theatre]:
    """In memory and staying there, or in a file and leaving memory at every wait."""
    kind, idle = request.param.split("-")
    world.begin()
    file = tmp_path / "journal.db" if kind == "sqlite" else None
    made = Theatre(EVICTING if idle == "0" else STAYING, file=file)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[Theatre]:
    """In memory, leaving it at every wait: where the kind of store can't matter."""
    world.begin()
    made = Theatre()
    yield made
    await made.close()
