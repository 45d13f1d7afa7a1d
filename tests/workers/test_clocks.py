"""A store's clock need not agree with the worker's."""

from __future__ import annotations

import asyncio

import outlive
from outlive.app.app import App
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from tests.harness.clocks import ShiftedClock

#: Whoever waits for the next look that has no reason waits in vain.
SETTINGS = Settings(lease_seconds=120.0, poll_seconds=60.0, idle_seconds=0.0)
BEHIND_MS = 300


async def test_a_timer_fires_by_the_clock_of_a_store_that_is_behind() -> None:
    """Not at the next look for no reason in particular."""

    @outlive.flow(name="short_nap")
    async def nap() -> str:
        await outlive.sleep("50ms")
        return "awake"

    store = MemoryStore(ports=Ports(clock=ShiftedClock(-BEHIND_MS)))
    async with App(store, settings=SETTINGS) as app, asyncio.timeout(20):
        assert "awake" == await (await app.start(nap, id="n"))
