"""What flows under test touch: bodies that take a random while, and a ledger of effects.

One ``World`` per run under test, set by the test; every body that runs leaves a trace here, so
that a replay which runs one is caught.
"""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Any

import outlive


class World:
    """The outside, as far as these flows can see it."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Forget everything; delays come from this seed on."""
        self.random = Random(seed)
        self.ran: list[str] = []
        self.ledger: dict[str, str] = {}

    def go_on(self, seed: int, *, remembers: set[str]) -> None:
        """Another process: it ran nothing yet; the ledger has these keys, and maybe others."""
        kept = {
            key: value
            for key, value in self.ledger.items()
            if key in remembers or self.random.random() < 0.5
        }
        self.begin(seed)
        self.ledger = kept

    def delay(self) -> float:
        """How long the next body takes: mostly differently long, at times not at all."""
        return self.random.choice((0.0, 0.001, 0.002, 0.003, 0.004))


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


def find(key: str) -> Any:
    """Whether the ledger has it."""
    return world.ledger.get(key, outlive.NOT_HAPPENED)


@outlive.effect(check=find, settle_after=0, timeout="30s")
async def send(name: str) -> str:
    """An effect that can be asked for; it happens in the middle of its body."""
    key = outlive.key()
    world.ran.append(name)
    await asyncio.sleep(world.delay() / 2)
    assert key not in world.ledger, f"{name} was sent twice"
    world.ledger[key] = f"sent {name}"
    await asyncio.sleep(world.delay() / 2)
    return world.ledger[key]


@outlive.effect(check=find, settle_after=0, timeout="30s", not_happened=(ConnectionError,))
async def refuse(name: str) -> str:
    """An effect that never happens, and says so."""
    world.ran.append(name)
    await asyncio.sleep(world.delay())
    raise ConnectionError(name)


@outlive.effect(
    check=find,
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
    assert key not in world.ledger, f"{name} was risked twice"
    world.ledger[key] = f"risked {name}"
    if fate == "breaks after":
        raise OSError(name)
    return world.ledger[key]
