"""What a handle asks the store for, and what it need not ask."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import outlive
from outlive.app.app import App
from outlive.errors import RunFailed
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.testing.crash.failing_store import FailingStore


@pytest_asyncio.fixture
async def app() -> AsyncIterator[App]:
    store = FailingStore(MemoryStore(ports=Ports(), lease_seconds=5.0))
    async with App(store) as opened:
        yield opened


def reads(app: App) -> int:
    assert isinstance(app.store, FailingStore)
    return app.store.calls.count("read")


@outlive.step
async def double(number: int) -> int:
    return 2 * number


@outlive.flow
async def doubling(number: int) -> int:
    return await double(number)


async def test_an_outcome_that_was_had_here_costs_no_read(app: App) -> None:
    """However late one asks for it, and as often as one likes."""
    handles = [await app.start(doubling, number) for number in range(10)]
    last = await app.start(doubling, 10)
    await last.outcome()
    before = reads(app)

    outcomes = [await handle.outcome() for handle in handles]

    assert [2 * number for number in range(10)] == outcomes
    assert outcomes == [await handle.outcome() for handle in handles]
    assert before == reads(app)


MENDED: list[bool] = []


@outlive.step
async def break_down() -> str:
    if not MENDED:
        raise OSError("broken")
    return "mended"


@outlive.flow
async def fragile() -> str:
    return await break_down()


async def test_a_failure_is_not_remembered(app: App) -> None:
    """The run may be tried again, and then its outcome is another."""
    MENDED.clear()
    handle = await app.start(fragile, id="r")
    with pytest.raises(RunFailed):
        await handle.outcome()
    MENDED.append(True)
    await app.retry("r")
    await app.start(fragile, id="r")

    assert "mended" == await handle.outcome(timeout="10s")
