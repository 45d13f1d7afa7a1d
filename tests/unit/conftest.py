"""What the engine's tests share: a scene that is struck afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.harness.scene import Scene


@pytest_asyncio.fixture
async def scene() -> AsyncIterator[Scene]:
    """A store in memory, a clock moved by hand, and apps that are closed at the end."""
    made = Scene()
    yield made
    await made.close()
