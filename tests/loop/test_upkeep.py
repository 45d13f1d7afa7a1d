"""Loops under workers: handed in, taken over, given up after their time, shown like all runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import outlive
from outlive.app.app import App
from outlive.app.open import open_app
from outlive.cli.modules import find_flow, find_flows
from outlive.errors import UsageError
from outlive.journal.seal.keys import new_key
from outlive.loop import Loop, State, drive, load
from outlive.model.retention import Retention, with_own
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.testing.clock import FakeClock
from tests.loop.agents import Agent, Kept
from tests.loop.conftest import QUICK
from tests.loop.test_driving import Patient, left_waiting, until

DAY_SECONDS = 86_400


async def test_a_worker_drives_loops_that_were_handed_in(app: App) -> None:
    """By class or by name alone, with nothing but the request."""
    async with app.worker([Kept.flow]):
        await (await app.submit(Kept.flow, "a !b", id="x")).outcome("20s")
        await (await app.submit("Kept", "c", id="y")).outcome("20s")
    first, second = await load(app, "x", Kept), await load(app, "y", Kept)

    assert first is not None
    assert second is not None
    assert (State.COMPLETE, ["c found"]) == (first.state, second.results)


async def test_a_loop_can_be_a_child(app: App) -> None:
    """Of any flow, which gets its last snapshot."""

    @outlive.flow
    async def boss(request: str) -> list[str]:
        ended: dict[str, list[str]] = await outlive.call(Kept.flow, request)
        return ended["results"]

    assert ["a found"] == await (await app.start(boss, "a"))


def test_the_command_line_finds_loops_beside_flows() -> None:
    """By module, or one by name."""
    names = {flow.name for flow in find_flows(["tests.loop.agents"])}

    assert {"Agent", "Clerk", "Release"} <= names
    assert "Loop" not in names
    assert Agent.flow is find_flow("tests.loop.agents:Agent")
    with pytest.raises(UsageError, match=r"or write a subclass of outlive\.loop\.Loop"):
        find_flow("tests.loop.agents:Stage")


def test_rules_of_a_loop_hold_where_the_store_has_none() -> None:
    """Rules by name win; those for all runs are for all others."""
    own = {"Agent": Agent.flow.retention or Retention()}
    mine = Retention(completed="7d", flows={"Agent": Retention(completed="1d")})

    assert Retention(completed="1m", cancelled="1m", failed="24h", ttl="24h") == own["Agent"]
    assert Retention(flows=own) == with_own(None, own)
    assert mine == with_own(mine, own)
    assert (7 * DAY_SECONDS * 1000, 60_000) == _ages(with_own(Retention(completed="7d"), own))


def _ages(rules: Retention | None) -> tuple[int | None, int | None]:
    assert rules is not None
    return rules.age_ms("other", "completed"), rules.age_ms("Agent", "completed")


@pytest.mark.parametrize(("hours", "is_left"), [(23, True), (25, False)])
async def test_a_loop_that_nobody_goes_on_with_is_given_up(hours: int, is_left: bool) -> None:
    """A day after it last wrote: whoever works on the store ends it and deletes it."""
    clock = FakeClock()
    ports = Ports(clock=clock)
    store = MemoryStore(ports=ports, lease_seconds=1e9)
    async with App(store, ports=ports, settings=QUICK) as app:
        await left_waiting(app, Waiting)
        clock.advance(hours * 3600)
        rules = with_own(None, {"Waiting": Waiting.flow.retention or Retention()})
        swept = await app.retain(rules)
        if not is_left:
            assert {"cancelled: it wrote nothing for its ttl": 1} == swept.fates
            await app.resume("x", [Waiting.flow])
            await until(app, "x", "cancelled")
            clock.advance(60)
            swept = await app.retain(rules)
            assert {"deleted": 1} == swept.fates
        assert is_left == bool((await app.find()).items)


class Waiting(Patient):
    """Kept by the rules of every loop."""

    keep = 0


async def test_workers_go_by_the_rules_of_their_loops() -> None:
    """Nobody has to write any: what is over goes."""

    class Brief(Agent):
        keep = "50ms"

    settings = Settings(lease_seconds=30, poll_seconds=0.02, retain_seconds=0.1, idle_seconds=0)
    async with open_app("memory://", settings=settings) as app:
        async with app.worker([Brief.flow, Kept.flow]):
            await app.submit(Kept.flow, "a", id="kept")
            await until(app, "kept", "completed")
            await app.submit(Brief.flow, "a", id="x")
            await _until_gone(app, "x")
        assert ["kept"] == [each.head.run_id for each in (await app.find()).items]


@pytest.mark.parametrize(("seconds", "fates"), [(59, {}), (60, {"deleted": 1})])
async def test_who_handed_in_a_loop_that_is_not_kept_can_read_how_it_ended(
    seconds: int, fates: dict[str, int]
) -> None:
    """For a minute; then whoever works on the store deletes it."""
    clock = FakeClock()
    ports = Ports(clock=clock)
    store = MemoryStore(ports=ports, lease_seconds=1e9)
    async with App(store, ports=ports, settings=QUICK) as app:
        handle = await app.start(Agent.flow, "a", id="x")
        await handle
        clock.advance(seconds)
        swept = await app.retain(with_own(None, {"Agent": Agent.flow.retention or Retention()}))

        assert fates == {fate: n for fate, n in swept.fates.items() if fate == "deleted"}
        assert bool(fates) != bool((await app.find()).items)


async def _until_gone(app: App, run_id: str) -> None:
    async with asyncio.timeout(20):
        while any(run_id == each.head.run_id for each in (await app.find()).items):
            await asyncio.sleep(0.02)


async def test_a_run_is_deleted_only_when_nobody_needs_it(app: App) -> None:
    """One that is under way stays, and so does one of which a fork was made."""
    await left_waiting(app)
    assert not await app.delete("x")
    await drive(Kept("a", id="k"), app)
    at = (await app.read("k", 1 << 62)).header.chapter
    await app.fork("k", at=at, id="f")
    assert not await app.delete("k")
    assert {"x", "k", "f"} == {each.head.run_id for each in (await app.find()).items}


async def test_a_sealed_store_has_no_word_of_a_loop(tmp_path: Path) -> None:
    """Neither of its request nor of what it found."""
    path = tmp_path / "sealed.db"
    ports = Ports()
    async with open_app(f"sqlite:///{path}", key=new_key(ports.entropy), settings=QUICK) as app:
        loop: Loop = await drive(Kept("lighthouse keeper", id="x"), app)
        assert ["lighthouse found", "keeper found"] == loop.results
    stored = b"".join(each.read_bytes() for each in tmp_path.glob("sealed.db*") if each.is_file())
    assert b"lighthouse" not in stored
