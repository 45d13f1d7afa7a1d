"""Storages for checkpoints: a file, memory, and a server's schema."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from outlive.checkpoints import DurableRunner, SnapshotStore, SQLiteStorageBackend


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file of a test is."""
    return tmp_path / "o.db"


@pytest_asyncio.fixture
async def storage(path: Path) -> AsyncIterator[SQLiteStorageBackend]:
    """A SQLite file."""
    storage = SQLiteStorageBackend(db_path=str(path))
    await storage.initialize()
    yield storage
    await storage.close()


@pytest.fixture
def snapshots(storage: SQLiteStorageBackend) -> SnapshotStore:
    """The snapshots in it."""
    return SnapshotStore(storage_backend=storage)


@pytest.fixture
def runner(snapshots: SnapshotStore) -> DurableRunner:
    """A runner of them."""
    return DurableRunner(snapshot_store=snapshots)
