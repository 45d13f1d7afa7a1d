"""One small test per rule of deleting what is old."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import outlive
from outlive import Retention
from outlive.app.app import App
from outlive.errors import RunIdTaken
from outlive.journal.retention.archive import StoreArchive
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from outlive.stores.types import Deletion
from tests.mutants.killers_waits import play

ALL = Retention(completed=0, failed=0, cancelled=0)


@outlive.effect(name="mutant_pay", key="pay:{order}", doubt="retry")
async def pay(order: str) -> str:
    return outlive.run_id()


@outlive.flow(name="mutant_shop")
async def shop(order: str) -> str:
    return await pay(order)


@outlive.flow(name="mutant_parent")
async def parent() -> None:
    await outlive.call(shop, "7", id="child")
    await outlive.wait_signal("go")


def living_parents_keep_their_children(folder: Path) -> None:
    """A child stays as long as its parent is under way."""

    async def scene(app: App, store: MemoryStore) -> Any:
        await app.start(parent, id="parent")
        while (child := await store.read("child")) is None or child.header.ended_at is None:
            await asyncio.sleep(0.01)
        await app.retain(ALL)
        return await store.read("child")

    assert play(scene) is not None


def ids_stay_taken(folder: Path) -> None:
    """A deleted run leaves a tombstone."""

    async def scene(app: App, store: MemoryStore) -> Any:
        await (await app.start(shop, "7", id="once"))
        await app.retain(ALL)
        with pytest.raises(RunIdTaken):
            await app.start(shop, "7", id="once")

    play(scene)


class _Archived(MemoryStore):
    """Knows, at each deletion, whether the run was in the archive by then."""

    def __init__(self, archive: Store) -> None:
        super().__init__()
        self._archive = archive
        self.was_kept: list[bool] = []

    async def delete(self, batch: Sequence[Deletion]) -> Sequence[bool]:
        self.was_kept += [await self._archive.read(each.run_id) is not None for each in batch]
        return await super().delete(batch)


def what_goes_is_archived_first(folder: Path) -> None:
    """When a run is deleted, its archive is durable."""
    archive = MemoryStore()
    store = _Archived(archive)

    async def scene(app: App, _: MemoryStore) -> Any:
        await (await app.start(shop, "7", id="once"))
        app._retention._archives["memory://"] = StoreArchive(archive)
        await app.retain(Retention(completed=0, archive="memory://"))

    play(scene, store)
    assert [True] == store.was_kept


def keys_outlive_their_run(folder: Path) -> None:
    """Who asks for the key of a deleted run gets the outcome of that run."""

    async def scene(app: App, store: MemoryStore) -> Any:
        await (await app.start(shop, "7", id="once"))
        await app.retain(ALL)
        return await (await app.start(shop, "7", id="again"))

    assert "once" == play(scene)


def forks_keep_what_they_share(folder: Path) -> None:
    """A run stays as long as a fork of it is there."""

    async def scene(app: App, store: MemoryStore) -> Any:
        await (await app.start(shop, "7", id="forked"))
        await (await app.fork("forked", at=1, id="fork")).outcome("20s")
        await app.retain(ALL)
        return await store.read("fork"), await store.read("forked")

    fork, forked = play(scene)
    assert fork is None
    assert forked is not None


def headers_delete_nothing(folder: Path) -> None:
    """A run that is under way stays, whatever its header says."""

    async def scene(app: App, store: MemoryStore) -> Any:
        await app.start(parent, id="alive")
        while (reading := await store.read("alive")) is None or reading.head.worker is not None:
            await asyncio.sleep(0.01)
        journal = store._journals["alive"]
        journal.header = replace(journal.header, status="completed", ended_at=1)
        await app.retain(ALL)
        return await store.read("alive")

    assert play(scene) is not None
