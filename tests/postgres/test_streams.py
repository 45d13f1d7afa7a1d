"""Streams on PostgreSQL: readers in other processes are woken, and a killed writer is replaced."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.model.events import Published
from outlive.settings import Settings
from outlive.stores.postgres.store import PostgresStore
from tests.conftest import Figure
from tests.harness.readers import Screen
from tests.processes.speakers import TOKENS
from tests.processes.test_streams import check, play

pytestmark = [pytest.mark.alone("postgres")]

SETTINGS = Settings(lease_seconds=5.0, poll_seconds=0.05, idle_seconds=0.0)
#: Batches are far apart, so that whoever looks from time to time looks in vain.
PAUSE = 0.15


@outlive.step
async def model() -> int:
    async with outlive.stream("tokens") as out:
        for token in TOKENS[:20]:
            out.put(token)
            await outlive.publish(last=token)
            await asyncio.sleep(PAUSE)
    return 20


@outlive.flow(name="postgres_speaking")
async def speaking() -> int:
    return await model()


async def test_a_reader_elsewhere_is_woken(url: str, figure: Figure) -> None:
    """It looks when there is something, not from time to time."""
    writing, reading = PostgresStore(url), PostgresStore(url)
    looks = 0
    read = reading.read

    async def counted(*args: Any, **options: Any) -> Any:
        nonlocal looks
        looks += 1
        return await read(*args, **options)

    reading.read = counted  # type: ignore[method-assign]
    async with App(writing, settings=SETTINGS) as app, App(reading, drive=False) as other:
        handle = await app.start(speaking, id="r")
        screen = Screen()
        watching = asyncio.ensure_future(screen.follow((await other.get("r")).stream("tokens")))
        assert 20 == await handle
        await asyncio.wait_for(watching, 30)
        commits = app._writer.keeper.counters.flushes
        published = [e for e in await handle.read() if isinstance(e, Published)]
    await writing.close()
    await reading.close()

    assert {"0/model#1": TOKENS[:20]} == screen.shown
    assert published
    figure("streams, PostgreSQL: looks of a reader, commits of the writer", f"{looks}, {commits}")
    # Polling would look some four times between two batches.
    assert looks <= commits + 12


async def test_a_killed_writer_is_replaced(url: str, figure: Figure) -> None:
    """Its lease ends, another driver goes on, and the reader gets one reset."""
    screen, events, killed = await play(url, [(5, True)])

    assert 1 == killed
    figure("streams, PostgreSQL: resets after a kill", check(screen, events))
