"""Runs that are spoken to: in memory or in a file, apps that die, time moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.harness.theatre import Theatre
from tests.harness.world import theatre_of


@pytest_asyncio.fixture(params=["memory-2", "sqlite-0"])
async def theatre(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Theatre]:
    """In memory and staying there, or in a file and leaving memory at every wait."""
    async with theatre_of(request.param, tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Theatre]:
    """In memory, leaving it at every wait: where the kind of store can't matter."""
    async with theatre_of("memory-0", tmp_path) as made:
        yield made
