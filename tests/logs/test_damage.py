"""Whatever is read of a log may be forged, damaged or moved: it is refused by name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

import outlive
from outlive import App, LogView, Retention
from outlive.errors import CorruptRecord
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.testing.suite.entries import HandClock
from tests.harness.clocks import ShiftedClock

HOUR_MS = 3_600_000


async def filled(store: MemoryStore) -> list[str]:
    """Two keys with the same entries; the ids of their journals."""
    async with App(store, drive=False) as app:
        log = app.log("l")
        for key in ("a", "b"):
            await log.append(key, lambda view: ["one", "x" * 900])
            await log.append(key, lambda view: ["two"])
    return [f"outlive/log/l/{key}" for key in ("a", "b")]


async def read(store: MemoryStore) -> list[Any]:
    async with App(store, drive=False) as app:
        return [entry.value for entry in await app.log("l").read("a")]


async def test_an_entry_of_another_key_is_refused() -> None:
    """Records are bound to their key: who swaps journals is found out."""
    store = MemoryStore()
    mine, other = await filled(store)
    store._journals[mine].records[:] = store._journals[other].records
    with pytest.raises(CorruptRecord, match=mine):
        await read(store)


async def test_a_changed_entry_is_refused() -> None:
    """And so is an append to what can't be read."""
    store = MemoryStore()
    mine, _ = await filled(store)
    records = store._journals[mine].records
    records[1] = type(records[1])(records[1].seq, records[1].body[:-1] + b"?")
    with pytest.raises(CorruptRecord, match=mine):
        await read(store)
    async with App(store, drive=False) as app:
        with pytest.raises(CorruptRecord, match=mine):
            await app.log("l").append("a", lambda view: ["three"])
        assert 1 == len(await app.log("l").append("b", lambda view: ["three"]))


async def test_a_missing_part_is_refused() -> None:
    """A long text that is gone is not an entry without it."""
    store = MemoryStore()
    mine, _ = await filled(store)
    store._nodes.clear()
    with pytest.raises(CorruptRecord, match=mine):
        await read(store)


async def test_damage_of_one_key_disturbs_no_other() -> None:
    """Also where they are appended to at the same moment."""
    store = MemoryStore()
    mine, _ = await filled(store)
    del store._journals[mine].records[0]
    async with App(store, drive=False) as app:
        log = app.log("l")
        answers = await asyncio.gather(
            *(log.append(key, lambda view: ["three"]) for key in ("a", "b", "c")),
            return_exceptions=True,
        )

    assert isinstance(answers[0], CorruptRecord)
    assert [1, 1] == [len(each) for each in answers[1:] if not isinstance(each, BaseException)]


async def test_a_forged_header_deletes_nothing() -> None:
    """A sweep believes the journal, not the row that says that it is over."""
    store = MemoryStore()
    mine, _ = await filled(store)
    journal = store._journals[mine]
    journal.header = replace(journal.header, ended_at=1, status="dropped")
    async with App(store, drive=False) as app:
        await app.retain(Retention())

    assert ["one", "x" * 900, "two"] == await read(store)


async def test_a_decision_goes_by_the_stores_clock(url: str) -> None:
    """Not by that of a machine that is an hour ahead."""
    seen: list[LogView] = []

    def decide(view: LogView) -> list[int]:
        seen.append(view)
        return [1]

    right = Ports().clock
    for ahead in (0, HOUR_MS):
        async with outlive.open(url, drive=False, ports=Ports(clock=ShiftedClock(ahead))) as app:
            entries = await app.log("l").append("k", decide)
            for told in (seen[-1].now, entries[0].at):
                assert abs(told.timestamp() * 1000 - right.now_ms()) < 60_000


async def test_time_does_not_go_back_within_a_key() -> None:
    """A clock that is set back makes no entry older than the one before."""
    clock = HandClock()
    async with App(MemoryStore(), ports=Ports(clock=clock), drive=False) as app:
        log = app.log("l")
        for seconds in (0, 10, -5, 1):
            clock.advance(seconds)
            await log.append("k", lambda view: [1])
        found = [entry.at for entry in await log.read("k")]

    assert sorted(found) == found
