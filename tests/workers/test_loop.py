"""Which loop runs are driven on, and how a worker inside a program goes."""

from __future__ import annotations

import asyncio
import sys

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import AppClosed, UsageError
from outlive.model.events import Parked, StepDone
from outlive.portal import run_loop
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore

QUICK = Settings(lease_seconds=60, poll_seconds=0.01, idle_seconds=0.0, drain_seconds=5)


async def loop_of() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_uvloop_is_used_if_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """And never needed: it can be switched off, and it can be missing."""
    monkeypatch.delenv("OUTLIVE_LOOP", raising=False)
    assert "uvloop" == run_loop(loop_of())
    monkeypatch.setenv("OUTLIVE_LOOP", "asyncio")
    assert "asyncio" in run_loop(loop_of())
    monkeypatch.delenv("OUTLIVE_LOOP")
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert "asyncio" in run_loop(loop_of())


def test_a_loop_that_there_is_not_is_refused_by_name() -> None:
    """As every setting that makes no sense."""
    with pytest.raises(UsageError, match="OUTLIVE_LOOP='trio' is neither auto nor asyncio"):
        Settings.from_environment({"OUTLIVE_LOOP": "trio"})
    with pytest.raises(UsageError, match="OUTLIVE_DRAIN_SECONDS='soon'"):
        Settings.from_environment({"OUTLIVE_DRAIN_SECONDS": "soon"})
    assert 7.5 == Settings.from_environment({"OUTLIVE_DRAIN_SECONDS": "7.5"}).drain_seconds


begun: list[int] = []


@outlive.step
async def linger() -> str:
    begun.append(1)
    await asyncio.sleep(0.15)
    return "done"


@outlive.flow
async def lingering() -> str:
    return await linger() + await linger()


@pytest.mark.parametrize("drain", [None, 0])
async def test_a_worker_inside_a_program_drains_when_its_block_ends(drain: float | None) -> None:
    """In time: the step is recorded and the next is another's. Without time: it is cut off."""
    begun.clear()
    async with App(MemoryStore(), settings=QUICK) as app:
        handle = await app.submit(lingering, id="r")
        async with app.worker([lingering], drain=drain):
            while not begun:
                await asyncio.sleep(0.005)
        events = await handle.read()
        assert (0 if drain == 0 else 1) == sum(isinstance(event, StepDone) for event in events)
        assert isinstance(events[-1], Parked)
        assert None is (await app.read("r")).head.worker

        async with app.worker([lingering]):
            assert "donedone" == await handle.outcome(timeout=5)
        assert (3 if drain == 0 else 2) == len(begun)


async def test_a_worker_that_goes_takes_nothing_more() -> None:
    """Who asks it to start a run is told, and nothing is begun."""
    async with App(MemoryStore(), settings=QUICK) as app:
        await app.start(lingering, id="r")
        assert await app.drain()
        with pytest.raises(AppClosed, match="its worker stopped"):
            await app.start(lingering, id="late")
        assert ["r"] == [each.head.run_id for each in (await app.find()).items]
