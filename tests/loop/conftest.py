"""Apps on every store that loops are driven on, and samples that can be repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from outlive.app.app import App
from outlive.app.open import open_app
from outlive.settings import Settings
from tests.harness.stores import KINDS, url_of

QUICK = Settings(lease_seconds=30.0, poll_seconds=0.02, idle_seconds=0.0)


@pytest_asyncio.fixture(params=KINDS)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    """One per kind of store."""
    async with open_app(url_of(request.param, tmp_path, request), settings=QUICK) as app:
        yield app
