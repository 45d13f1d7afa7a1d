"""Every store that keeps limits of queues, with a fresh place for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from outlive.app.app import App
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from tests.harness.stores import KINDS, open_shared, url_of

#: Runs that wait stay in memory for long: it is their queue that makes them leave.
STAYING = Settings(lease_seconds=60, poll_seconds=0.01, idle_seconds=60.0, drain_seconds=2)

OpenApp = Callable[[], App]


@pytest.fixture(params=KINDS)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store of each kind is."""
    return url_of(request.param, tmp_path, request)


@pytest.fixture
def open_stores(store_url: str) -> Callable[[], Store]:
    """Opens the same place again at every call."""
    memory = MemoryStore()

    def begin() -> Store:
        return memory if store_url == "memory://" else open_shared(store_url)

    return begin


@pytest.fixture
async def open_app(open_stores: Callable[[], Store]) -> AsyncIterator[OpenApp]:
    """Opens apps on one place, and closes them in the end."""
    apps: list[App] = []

    def begin() -> App:
        apps.append(App(open_stores(), settings=STAYING))
        return apps[-1]

    yield begin
    for app in apps:
        await app.aclose()
