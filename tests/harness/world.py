"""The outside, as far as the flows of these tests can see it: what was done, and by which body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import outlive
from tests.harness.theatre import EVICTING, STAYING, Theatre


class World:
    """Every body that runs leaves a trace here; a replay that runs one is caught."""

    def __init__(self) -> None:
        self.begin()

    def begin(self, seed: int = 0) -> None:
        """Forget everything; delays come from this seed on."""
        self.random = Random(seed)
        #: Names of bodies that ran, in this order.
        self.ran: list[str] = []
        #: By key: what happened and was not undone.
        self.done: dict[str, str] = {}
        #: By key: what was undone.
        self.undone: dict[str, str] = {}
        #: Set: bodies that ask for it wait until then.
        self.gates: dict[str, asyncio.Event] = {}
        #: By name: errors that the next bodies of that name raise, before or after the fact.
        self.breaks_before: dict[str, list[BaseException]] = {}
        self.breaks_after: dict[str, list[BaseException]] = {}

    def snapshot(self) -> tuple[dict[str, str], dict[str, str]]:
        """What would outlive this process."""
        return dict(self.done), dict(self.undone)

    def restore(self, kept: tuple[dict[str, str], dict[str, str]]) -> None:
        """Another process, the same outside."""
        self.begin()
        self.done, self.undone = dict(kept[0]), dict(kept[1])

    def go_on(self, seed: int, *, remembers: set[str]) -> None:
        """Another process: it ran nothing yet; the outside has these keys, and maybe others."""
        kept = {
            key: value
            for key, value in self.done.items()
            if key in remembers or self.random.random() < 0.5
        }
        self.begin(seed)
        self.done = kept

    def delay(self) -> float:
        """How long the next body takes: mostly differently long, at times not at all."""
        return self.random.choice((0.0, 0.001, 0.002, 0.003, 0.004))

    def find(self, key: str) -> Any:
        """Whether it happened."""
        return self.done.get(key, outlive.NOT_HAPPENED)

    def names(self) -> list[str]:
        """What happened and was not undone, by name."""
        return sorted(self.done.values())

    async def gate(self, name: str) -> None:
        """Wait for the test, if it asked for that."""
        if name in self.gates:
            await self.gates[name].wait()

    def bury(self) -> None:
        """Bodies that wait here died with their process: they never go on."""
        self.gates.clear()

    def hold(self, name: str) -> asyncio.Event:
        """Let bodies of this name wait."""
        self.gates[name] = asyncio.Event()
        return self.gates[name]


world = World()


@asynccontextmanager
async def theatre_of(variant: str, folder: Path) -> AsyncIterator[Theatre]:
    """A theatre where nothing has happened yet: ``memory`` or ``sqlite``, and the idle time.

    ``0``: a run leaves memory at every wait; ``2``: only at long ones.
    """
    kind, idle = variant.split("-")
    world.begin()
    file = folder / "journal.db" if kind == "sqlite" else None
    made = Theatre(EVICTING if idle == "0" else STAYING, file=file)
    yield made
    await made.close()


@outlive.step
async def note(text: str) -> str:
    """A plain step."""
    world.ran.append(text)
    await world.gate(text)
    for error in world.breaks_before.get(text, []):
        raise error
    return text.upper()


def _break(table: dict[str, list[BaseException]], name: str) -> None:
    if table.get(name):
        raise table[name].pop(0)


async def take_back(name: str, key: str, outcome: str) -> None:
    """The undo of ``pay``; repeating it is harmless, and seen."""
    world.ran.append(f"undo {name}")
    await world.gate(f"undo {name}")
    _break(world.breaks_before, f"undo {name}")
    assert outcome == world.done.get(key, outcome), (outcome, world.done)
    world.undone[key] = name
    world.done.pop(key, None)
    _break(world.breaks_after, f"undo {name}")


@outlive.effect(check=world.find, undo=take_back, settle_after=0, timeout="1h")
async def pay(name: str) -> str:
    """An effect that can be asked for and undone."""
    key = outlive.key()
    world.ran.append(name)
    await world.gate(name)
    _break(world.breaks_before, name)
    assert key not in world.done, f"{name} happened twice"
    assert key not in world.undone, f"{name} happened again after it was undone"
    world.done[key] = name
    _break(world.breaks_after, name)
    return name


@outlive.effect(settle_after=0, timeout="1h")
async def ring(name: str) -> str:
    """An effect that nobody can be asked about."""
    world.ran.append(name)
    await world.gate(name)
    _break(world.breaks_before, name)
    world.done[outlive.key()] = name
    _break(world.breaks_after, name)
    return name
