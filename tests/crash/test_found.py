"""What killing the reference agent brought to light, each as the smallest test that shows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import outlive
from outlive.app.app import App
from outlive.errors import NotHappened, RunIdTaken, TimedOut
from outlive.settings import Settings
from outlive.stores.sqlite.store import SQLiteStore

SETTINGS = Settings(lease_seconds=5.0, poll_seconds=0.02, idle_seconds=0.0)


@pytest_asyncio.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    store = SQLiteStore(tmp_path / "journal.db", lease_seconds=5.0)
    async with App(store, settings=SETTINGS) as opened:
        yield opened


@outlive.effect(doubt="fail", timeout="20ms")
async def slow() -> str:
    await asyncio.sleep(10)
    return "never"


@outlive.effect
async def closed() -> str:
    raise NotHappened("closed")


@outlive.flow
async def unlucky() -> list[str]:
    told = []
    for effect in (slow, closed):
        try:
            told.append(await effect())
        except Exception as error:
            told.append(type(error).__name__)
    return told


async def test_our_own_errors_are_recorded(app: App) -> None:
    """An effect that times out or says that nothing happened does not leave its run hanging."""
    handle = await app.start(unlucky)

    assert ["InDoubt", "NotHappened"] == await handle.outcome("20s")


@pytest.mark.parametrize("error", [TimedOut("late"), NotHappened("closed")])
async def test_our_own_errors_come_back(app: App, error: Exception) -> None:
    """They have no signature of their own, and come back with their text all the same."""

    @outlive.step
    async def fail() -> None:
        raise error

    @outlive.flow
    async def failing() -> list[str]:
        try:
            await fail()
        except type(error) as caught:
            return [type(caught).__name__, str(caught)]
        return []

    assert [type(error).__name__, str(error)] == await (await app.start(failing)).outcome("20s")


@outlive.effect
async def broken() -> str:
    raise OSError("the line went dead")


@outlive.flow
async def asking() -> str:
    return await broken()


async def test_a_word_to_a_run_that_left_memory_is_heard(app: App) -> None:
    """A run that waits for a human only, and has left memory, reads its mail when it is back."""
    handle = await app.start(asking, id="asks")
    while await handle.status() != "in_doubt":
        await asyncio.sleep(0.01)

    await app.resolve("asks", "0/broken#1", "happened", b'"yes"')

    assert "yes" == await handle.outcome("20s")


@outlive.step
async def short() -> None:
    await asyncio.sleep(0)


@outlive.flow
async def busy(rounds: int) -> str:
    for _ in range(rounds):
        await short()
    return "done"


async def test_asking_for_an_id_in_use_does_not_fence_its_driver(app: App) -> None:
    """However often a run's id is asked for while it is driven here, it is driven to its end."""
    handle = await app.start(busy, 300, id="busy")
    running = asyncio.create_task(handle.outcome("20s"))
    while not running.done():
        await app.start(busy, 300, id="busy")
        with pytest.raises(RunIdTaken):
            await app.submit(busy, 301, id="busy")

    assert "done" == await running
    assert 1 == (await handle.run()).epoch
