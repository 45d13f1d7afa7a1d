"""Entries of several writers for one run, in one flush: one that is refused takes none along."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import outlive
from outlive.app.app import App
from outlive.engine.host import LoopHost
from outlive.journal.headers import next_entry
from outlive.journal.keeper import commit_one
from outlive.model.events import Parked
from outlive.stores.memory import MemoryStore


@outlive.flow
async def waits() -> str:
    return str(await outlive.wait_signal("go", type=str))


async def test_a_stale_entry_does_not_get_a_good_one_refused() -> None:
    """A worker that lost the race for a run stands in the way of nobody who may write to it."""
    store = MemoryStore()
    async with App(store, drive=False) as app:
        await app.submit(waits, id="r")
        reading = await store.read("r")
        assert reading is not None
        stale = next_entry(reading.head, Parked(0, None), reading.header, epoch=0)
        host = LoopHost(asyncio.get_running_loop(), ThreadPoolExecutor(1))
        keeper = app._writer.keeper
        assert await commit_one(keeper, host, stale)
        moved = await store.read("r")
        assert moved is not None
        good = next_entry(moved.head, Parked(0, None), moved.header, epoch=0)

        other = next_entry(reading.head, Parked(1, None), reading.header, epoch=0)
        answers = await asyncio.gather(
            commit_one(keeper, host, other), commit_one(keeper, host, good)
        )

    assert [False, True] == answers
