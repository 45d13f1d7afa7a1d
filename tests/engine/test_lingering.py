"""A run that waits for mail stays for a moment: what comes soon need not load it again."""

from __future__ import annotations

import asyncio

import outlive
from outlive.engine import people
from outlive.model.events import Claimed, Parked
from tests.harness.theatre import STAYING, Theatre


@outlive.flow
async def listen(count: int) -> list[int]:
    return [await people.wait_signal("s", int) for _ in range(count)]


@outlive.flow
async def answer() -> str:
    return "child"


@outlive.flow
async def parent() -> list[str]:
    return [await outlive.call(answer) for _ in range(3)]


@outlive.flow
async def nap() -> str:
    await outlive.sleep("1h")
    return "rested"


async def test_mail_that_comes_soon_finds_the_run_in_memory(theatre: Theatre) -> None:
    """One claim for all, where runs may stay; where they may not, each leaves and comes back."""
    app = theatre.open()
    handle = await app.start(listen, 3, id="r")
    for number in range(3):
        await handle.signal("s", number)
        theatre.pass_time(1.0)
        await theatre.until(lambda n=number: _took(theatre, n + 1))

    assert [0, 1, 2] == await theatre.outcome(handle)
    is_staying = theatre.settings is STAYING
    assert is_staying == (1 == len(await theatre.events("r", Claimed)))


async def _took(theatre: Theatre, count: int) -> bool:
    return count <= len(await theatre.events("r", outlive.model.events.SignalReceived))


async def test_a_run_that_waits_in_vain_leaves_memory(theatre: Theatre) -> None:
    """After the idle time, and not before its last mail was that long ago."""
    app = theatre.open()
    handle = await app.start(listen, 2, id="r")
    idle = theatre.settings.idle_seconds
    theatre.pass_time(idle * 0.75)
    await handle.signal("s", 1)
    await theatre.until(lambda: _took(theatre, 1), step=0)
    theatre.pass_time(idle * 0.75)
    for _ in range(20):
        await asyncio.sleep(0)
    stayed = [] == await theatre.events("r", Parked)
    assert stayed == (idle > 0)

    theatre.pass_time(idle * 0.5)
    await theatre.has("r", Parked)
    assert "waiting" == await handle.status()
    await handle.signal("s", 2)
    assert [1, 2] == await theatre.outcome(handle)


async def test_a_parent_is_told_of_its_children_without_leaving(theatre: Theatre) -> None:
    """Where runs may stay, a family of one process needs one claim each."""
    handle = await theatre.open().start(parent, id="r")

    assert ["child"] * 3 == await theatre.outcome(handle, step=0.0005)
    is_staying = theatre.settings is STAYING
    assert is_staying == (1 == len(await theatre.events("r", Claimed)))


async def test_a_run_that_only_sleeps_leaves_at_once(theatre: Theatre) -> None:
    """No mail can shorten its time, so it does not stay for any."""
    await theatre.open().start(nap, id="r")

    await theatre.until(lambda: theatre.events("r", Parked), step=0)
