"""At most so many runs are in memory; those that only wait never keep others out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import TimedOut
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore

#: Runs that wait stay in memory for long: it is the limit that makes them leave.
STAYING = Settings(lease_seconds=60, poll_seconds=0.01, idle_seconds=60.0, drain_seconds=2)

together = 0
most = 0


@outlive.step
async def work() -> None:
    global together, most
    together += 1
    most = max(most, together)
    await asyncio.sleep(0.01)
    together -= 1


@outlive.flow
async def working() -> None:
    for _ in range(3):
        await work()
        await outlive.sleep(0.01)


@outlive.flow
async def child(text: str) -> str:
    await work()
    return text


@outlive.flow
async def parent(depth: int) -> str:
    """Calls another, which calls another, each with a time limit of its own."""
    async with outlive.timeout(30):
        if depth:
            return await outlive.call(parent, depth - 1) + "."
        return await outlive.call(child, "deep")


@outlive.flow
async def polling() -> str:
    """Is in memory again and again while it waits for its child."""
    asked = asyncio.ensure_future(outlive.call(child, "at last"))
    while not asked.done():
        await outlive.sleep(0.02)
    return await asked


@pytest.fixture
async def app() -> AsyncIterator[App]:
    global together, most
    together = most = 0
    async with App(MemoryStore(), settings=STAYING) as app:
        yield app


async def test_the_limit_holds(app: App) -> None:
    """Never more in memory, never more at work; and everybody ends."""
    handles = [await app.submit(working, id=f"r{n}") for n in range(30)]
    async with app.worker([working], concurrency=4) as worker:
        in_memory = 0
        waiting = asyncio.gather(*(handle.outcome(timeout=20) for handle in handles))
        while not waiting.done():
            in_memory = max(in_memory, len(worker.driving))
            await asyncio.sleep(0)
        await waiting
    assert 4 == in_memory
    assert 0 < most <= 4


async def test_a_parent_never_keeps_its_child_out(app: App) -> None:
    """With room for one, a chain of parents that all have time limits still ends."""
    handle = await app.submit(parent, 3, id="p")
    async with app.worker([parent, child], concurrency=1):
        assert "deep..." == await handle.outcome(timeout=20)


async def test_a_parent_that_looks_again_and_again_lets_its_child_in(app: App) -> None:
    """It only waits between two looks, so it gives way."""
    handle = await app.submit(polling, id="p")
    async with app.worker([polling, child], concurrency=1):
        assert "at last" == await handle.outcome(timeout=20)


async def test_parked_runs_take_no_room(app: App) -> None:
    """A hundred that sleep for an hour, and room for one."""
    for number in range(20):
        await app.submit(sleeping, id=f"s{number}")
    async with app.worker([sleeping, child], concurrency=1) as worker:
        handle = await app.submit(child, "awake", id="c")
        assert "awake" == await handle.outcome(timeout=20)
        with pytest.raises(TimedOut):
            await (await app.get("s0")).outcome(timeout=0.05)
        assert len(worker.driving) <= 1


@outlive.flow
async def sleeping() -> None:
    await outlive.sleep("1h")
