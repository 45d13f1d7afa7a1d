"""Bodies that take a random while, and effects of every kind, on a world of their own."""

from __future__ import annotations

import asyncio
import time

import outlive
from tests.harness.world import World

world = World()


@outlive.step
async def fetch(name: str) -> str:
    """A step that takes a while."""
    world.ran.append(name)
    await asyncio.sleep(world.delay())
    return name.upper()


@outlive.step
def fetch_plain(name: str) -> str:
    """The same in a thread."""
    world.ran.append(name)
    time.sleep(world.delay())
    return name.upper()


@outlive.step
async def fail(name: str) -> str:
    """A step that fails after a while."""
    world.ran.append(name)
    await asyncio.sleep(world.delay())
    raise ValueError(name)


@outlive.step
async def stubborn(name: str) -> str:
    """A step that returns though it was cancelled: its outcome comes late."""
    world.ran.append(name)
    try:
        await asyncio.sleep(world.delay() + 0.002)
    except asyncio.CancelledError:
        await asyncio.sleep(world.delay())
        return f"late {name}"
    return name.upper()


@outlive.step(retry=outlive.Retry(attempts=3, delay=0.001, jitter=False))
async def third_time(name: str) -> str:
    """A step that succeeds at its third attempt, whoever makes it."""
    world.ran.append(name)
    await asyncio.sleep(world.delay())
    if outlive.attempt() < 3:
        raise ConnectionError(name)
    return f"{name} at {outlive.attempt()}"


@outlive.effect(check=world.find, settle_after=0, timeout="30s")
async def send(name: str) -> str:
    """An effect that can be asked for; it happens in the middle of its body."""
    key = outlive.key()
    world.ran.append(name)
    await asyncio.sleep(world.delay() / 2)
    assert key not in world.done, f"{name} was sent twice"
    world.done[key] = f"sent {name}"
    await asyncio.sleep(world.delay() / 2)
    return world.done[key]


@outlive.effect(check=world.find, settle_after=0, timeout="30s", not_happened=(ConnectionError,))
async def refuse(name: str) -> str:
    """An effect that never happens, and says so."""
    world.ran.append(name)
    await asyncio.sleep(world.delay())
    raise ConnectionError(name)


@outlive.effect(
    check=world.find,
    settle_after=0,
    timeout="30s",
    retry=outlive.Retry(attempts=2, delay=0.001, jitter=False),
)
async def risk(name: str) -> str:
    """An effect that may break before or after it happens: only the ledger knows."""
    key = outlive.key()
    world.ran.append(name)
    await asyncio.sleep(world.delay())
    fate = world.random.choice(("returns", "breaks before", "breaks after"))
    if fate == "breaks before":
        raise OSError(name)
    assert key not in world.done, f"{name} was risked twice"
    world.done[key] = f"risked {name}"
    if fate == "breaks after":
        raise OSError(name)
    return world.done[key]
