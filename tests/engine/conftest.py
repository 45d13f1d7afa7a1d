"""Theatres of every kind: in memory and in a file, leaving memory at every wait or only at long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.engine.world import world
from tests.harness.theatre import EVICTING, STAYING, Theatre


@pytest_asyncio.fixture(params=["memory-0", "memory-2", "sqlite-0", "sqlite-2"])
async def theatre(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Theatre]:
    """One theatre per kind of store and idle time."""
    kind, idle = request.param.split("-")
    world.begin()
    file = tmp_path / "journal.db" if kind == "sqlite" else None
    made = Theatre(EVICTING if idle == "0" else STAYING, file=file)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Theatre]:
    """In memory, leaving it at every wait: where the kind of store can't matter."""
    world.begin()
    made = Theatre()
    yield made
    await made.close()
