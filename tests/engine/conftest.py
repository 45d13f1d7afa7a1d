"""Theatres of two kinds: runs stay in memory on a store in memory, or leave it at every wait on a
store in a file. In full also the other way round."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.harness.theatre import Theatre
from tests.harness.world import theatre_of

IS_FULL = os.environ.get("OUTLIVE_TEST_FULL") == "1"
#: (kind of store, seconds until a run that waits leaves memory): each of both, in two theatres.
DIAGONAL = ("memory-2", "sqlite-0")
OTHERS = ("memory-0", "sqlite-2")


@pytest_asyncio.fixture(params=(*DIAGONAL, *OTHERS) if IS_FULL else DIAGONAL)
async def theatre(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Theatre]:
    """One theatre per kind of store and idle time."""
    async with theatre_of(request.param, tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Theatre]:
    """In memory, leaving it at every wait: where the kind of store can't matter."""
    async with theatre_of("memory-0", tmp_path) as made:
        yield made
