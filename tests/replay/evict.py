"""Evicts flows that wait in async generators, and prints what user code was thrown, as JSON."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import outlive
from outlive.app.app import App
from outlive.journal.reader import read_events
from outlive.model.events import Parked
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore

seen: list[str] = []


async def items() -> AsyncIterator[int]:
    try:
        yield 1
        await outlive.wait_signal("more")
    except Exception as error:
        seen.append(f"generator: {error!r}")
        raise
    finally:
        seen.append("closed")


@outlive.flow
async def looping() -> None:
    try:
        async with aclosing(items()) as found:  # type: ignore[type-var]
            async for _ in found:
                pass
    except Exception as error:
        seen.append(f"flow: {error!r}")
        raise


@outlive.flow
async def stepping() -> None:
    try:
        async with aclosing(items()) as found:  # type: ignore[type-var]
            while await anext(found, None):
                pass
    except Exception as error:
        seen.append(f"flow: {error!r}")
        raise


async def is_parked(store: MemoryStore) -> bool:
    reading = await store.read("r")
    return reading is not None and Parked in map(type, read_events(reading))


async def evict(flow: Any) -> list[str]:
    """What user code saw while its run left memory."""
    seen.clear()
    store = MemoryStore()
    async with App(store, settings=Settings(idle_seconds=0.0)) as app:
        await app.start(flow, id="r")
        while not await is_parked(store):
            await asyncio.sleep(0.001)
        told = list(seen)
    gc.collect()
    return told


if __name__ == "__main__":
    print(json.dumps([asyncio.run(evict(flow)) for flow in (looping, stepping)]))
