"""A year's worth of runs goes in small portions, and work goes on beside it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from outlive import Retention
from outlive.app.app import App
from outlive.journal.retention.sweep import Rules, Sweep
from outlive.ports import Ports, SystemClock
from outlive.settings import Settings
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Query
from outlive.worker.retention import rest_after
from tests.conftest import Figure, Stretch
from tests.harness.postgres_server import PostgresServer
from tests.retention.year import effects_until, fill, percentile

RUNS, RUNS_FULL = 2_000, 100_000
#: In full, twice its own. Of a sample the p99 is a handful of effects, and a disk has its moods.
RATIO_MAX = {True: 2.0, False: 3.0}
#: In a sample an effect's own p99 counts as this at least: below it are the moods of a machine.
SHORTEST_SECONDS = {True: 0.0, False: 0.01}
#: On a server, which flushes more slowly and shares the processors with those who wait for it.
SERVED, SERVED_FULL = 1_000, 10_000
TURN_SECONDS = 1.0
RULES = Retention(completed="30d")


class Gate:
    """Open and closed by turns, so that whatever else the machine does strikes both alike."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()

    async def swing(self) -> None:
        while True:
            await asyncio.sleep(TURN_SECONDS)
            if self.is_open.is_set():
                self.is_open.clear()
            else:
                self.is_open.set()


async def sweep(app: App, gate: Gate) -> int:
    """As a worker does, when the gate is open."""
    sweep = Sweep(app.store, Rules(retention=RULES), Ports())
    more = True
    while more:
        await gate.is_open.wait()
        began = time.monotonic()
        more = await app._reader.lane(sweep.step())
        await asyncio.sleep(rest_after(time.monotonic() - began))
    return sweep.swept.fates["deleted"]


async def clear_a_year(store: Store, count: int, figure: Figure, name: str, full: bool) -> float:
    """Clear away so many runs; by how much that slowed the slowest effects."""
    settings = Settings(lease_seconds=60.0, poll_seconds=0.25)
    await fill(store, count, SystemClock().now_ms())
    gate, began = Gate(), time.monotonic()
    async with App(store, ports=Ports(), settings=settings) as app:
        swinging = asyncio.create_task(gate.swing())
        sweeping = asyncio.create_task(sweep(app, gate))
        quiet, busy = await effects_until(app, sweeping, gate.is_open)
        swinging.cancel()
        deleted = await sweeping
        left = await store.find(Query(flow="old"), None, 10)

    seconds = (time.monotonic() - began) / 2
    ratio = percentile(busy, 0.99) / max(percentile(quiet, 0.99), SHORTEST_SECONDS[full])
    figure(f"retention on {name}: runs deleted", deleted)
    figure(f"retention on {name}: runs deleted per second", round(deleted / seconds))
    figure(f"retention on {name}: effects meanwhile, and in between", (len(busy), len(quiet)))
    for share in (0.5, 0.99):
        between, meanwhile = percentile(quiet, share) * 1000, percentile(busy, share) * 1000
        told = f"{between:.2f} -> {meanwhile:.2f}"
        figure(f"retention on {name}: p{share * 100:.0f} of effects, ms, meanwhile", told)
    figure(f"retention on {name}: ratio of p99", round(ratio, 2))
    assert (count, []) == (deleted, list(left.items))
    return ratio


@pytest.mark.alone("time")
@pytest.mark.timeout(3600)
async def test_a_year_goes_without_stalling_work(
    full: bool, figure: Figure, tmp_path: Path, stretch: Stretch
) -> None:
    """In SQLite, in the very process that works: the p99 of effects stays near its own."""
    store = SQLiteStore(tmp_path / "o.db", ports=Ports(), lease_seconds=60.0)

    ratio = await clear_a_year(store, RUNS_FULL if full else RUNS, figure, "SQLite", full)

    assert ratio < RATIO_MAX[full] * stretch()


@pytest.mark.alone("time")
@pytest.mark.timeout(3600)
async def test_the_same_on_a_server(
    own_postgres: PostgresServer, full: bool, figure: Figure, stretch: Stretch
) -> None:
    """In PostgreSQL, where whoever deletes locks nobody else out."""
    store = PostgresStore(own_postgres.url(schema="year"), ports=Ports(), lease_seconds=60.0)

    ratio = await clear_a_year(store, SERVED_FULL if full else SERVED, figure, "PostgreSQL", full)

    assert ratio < RATIO_MAX[full] * stretch()
