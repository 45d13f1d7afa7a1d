"""Forks that an earlier release wrote: those that ended are read, the others are gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.app.app import App
from outlive.journal.retention.archive import copy_run
from outlive.stores.memory import MemoryStore
from tests.forks import flows
from tests.replay.golden_forks import SETTINGS, Family, load, made

FILES = sorted((Path(__file__).parent / "golden_forks").glob("*.json"))


async def check(family: Family) -> None:
    """All of them, restored into a store of today."""
    store = MemoryStore()
    for run in family.runs:
        await copy_run(store, run)
    for seen in (flows.seen.paid, flows.seen.planned):
        seen.clear()
    async with App(store, settings=SETTINGS) as app:
        ended = {name: await (await app.get(name, flows.buy)).outcome() for name in family.outcomes}
        assert family.outcomes == ended
        pending = await (await app.resume("pending", [flows.buy])).outcome("20s")
        deeper = await (await app.resume("deeper", [flows.buy])).outcome("20s")

    assert (family.outcomes["origin"], family.outcomes["other"]) == (pending, deeper)
    # What they share is not done again, what comes behind it is.
    assert ([], ["a-1", "a-2", "z"]) == (flows.seen.planned, flows.seen.paid)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_golden_forks_are_gone_on_with(path: Path) -> None:
    """From the very bytes that were written then."""
    await check(load(path))


async def test_forks_of_today_are_gone_on_with() -> None:
    """What is written now is what the golden ones are."""
    await check(await made())


def test_there_are_golden_forks() -> None:
    """Or nothing would be held to."""
    assert FILES
