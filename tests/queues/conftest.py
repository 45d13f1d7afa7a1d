"""Every store that keeps limits of queues, with a fresh place for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from outlive.app import App
from outlive.settings import Settings
from outlive.store import Store
from outlive.stores.memory import MemoryStore
from outlive.stores.postgres import PostgresStore
from outlive.stores.sqlite import SQLiteStore

#: Runs that wait stay in memory for long: it is their queue that makes them leave.
STAYING = Settings(lease_seconds=60, poll_seconds=0.01, idle_seconds=60.0, drain_seconds=2)

OpenApp = Callable[[], App]


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store of each kind is."""
    if request.param == "memory":
        return "memory://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/o.db"
    found: str = request.getfixturevalue("url")
    return found


@pytest.fixture
def open_stores(store_url: str) -> Callable[[], Store]:
    """Opens the same place again at every call."""
    memory = MemoryStore()

    def begin() -> Store:
        if store_url == "memory://":
            return memory
        if store_url.startswith("sqlite"):
            return SQLiteStore(store_url.removeprefix("sqlite:///"))
        return PostgresStore(store_url)

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
