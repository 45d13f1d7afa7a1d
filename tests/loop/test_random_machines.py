"""Random machines end as they end in memory, however often their process dies on the way."""

from __future__ import annotations

import asyncio
import hashlib
import random
from contextlib import suppress
from enum import Enum
from typing import Any

import outlive
from outlive.app.app import App
from outlive.errors import NotInRun, OutliveError
from outlive.loop import Loop, drive, step_once
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from tests.conftest import Figure
from tests.harness.scene import Door

MACHINES, MACHINES_FULL = 40, 1000
#: Until then a loop does not end if it need not; from here on it goes to an end.
SHORT, LONG = 10, 25
SETTINGS = Settings(lease_seconds=1e6, poll_seconds=0.01, idle_seconds=0.0)
PATIENCE_SECONDS = 30.0


def drawn(*what: object) -> int:
    """A number that depends on nothing but this."""
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=6).digest())


class World:
    """A receiver that honours keys."""

    def __init__(self) -> None:
        self.done: dict[str, str] = {}


@outlive.step
async def think(*what: str) -> int:
    return drawn(*what)


class Tool:
    """What a random loop does to its world."""

    def __init__(self, world: World) -> None:
        @outlive.effect(name="act", doubt="retry", timeout="5s", settle_after=0)
        async def act(what: str) -> str:
            return world.done.setdefault(outlive.key(), what)

        self._act: Any = act

    def __call__(self, what: str) -> Any:
        try:
            outlive.run_id()
        except NotInRun:
            return said(what)
        return self._act(what)


async def said(what: str) -> str:
    return what


def machine(dice: random.Random, tool: Tool) -> type[Loop]:
    """A loop with states, moves, work and checkpoints at random; from everywhere it can end."""
    count = dice.randint(1, 6)
    states: Any = Enum("Place", [f"S{number}" for number in range(count + dice.randint(1, 2))])
    every = list(states)
    moves = {every[at]: {every[at + 1]} for at in range(count)}
    for _ in range(dice.randint(0, 2 * count)):
        moves[dice.choice(every[:count])].add(dice.choice(every))
    moves[every[dice.randrange(count)]].update(every[count:])
    salt = dice.random()
    parts: dict[str, Any] = {
        f"on_{state.name.lower()}": handler(state, sorted(moves[state], key=str), count, salt, tool)
        for state in every[:count]
    }
    parts |= {"states": states, "moves": moves, "keep": None}
    parts["working"] = [state for state in every if dice.random() < 0.3]
    parts["checkpoint_every"] = dice.choice([1, 1, 2, 3])
    return type("Random", (Loop,), parts)


def handler(state: Enum, targets: list[Any], last: int, salt: float, tool: Tool) -> Any:
    ahead = [each for each in targets if each.value > state.value]
    onward = [each for each in targets if each.value <= last] or targets

    async def handle(self: Loop) -> Any:
        thought = await think(state.name, str(self.seq), str(salt))
        self.results.append([state.name, thought])
        if thought % 3 == 0:
            self.context[f"{self.seq}"] = await tool(f"{state.name} {self.seq}")
        if thought % 5 == 0:
            await asyncio.gather(think("a", str(salt)), think("b", str(salt)))
        self.cursor = thought % 7
        among = onward if self.seq < SHORT else ahead if self.seq > LONG else targets
        return among[thought % len(among)]

    return handle


async def in_memory(kind: type[Loop]) -> Loop:
    loop = kind("go", id="r")
    while not loop.is_over:
        await step_once(loop)
    return loop


async def with_deaths(kind: type[Loop], store: MemoryStore, dice: random.Random) -> tuple[Any, int]:
    """Driven by one process after another, each of which dies after some commits."""
    deaths = 0
    while True:
        door = Dying(store, dice.randint(1, 9) if deaths < 40 else 1 << 30, dice)
        async with App(door, settings=SETTINGS) as app:
            with suppress(OutliveError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    return await drive(kind("go", id="r"), app), deaths
        deaths += 1


class Dying(Door):
    """A process that dies before or after its n-th commit."""

    def __init__(self, store: MemoryStore, number: int, dice: random.Random) -> None:
        super().__init__(store)
        self._number, self._is_late = number, dice.random() < 0.5

    async def commit(self, batch: Any, *, wait: bool = True) -> Any:
        self._number -= 1
        if self._number == 0 and not self._is_late:
            self.slam()
        answers = await super().commit(batch, wait=wait)
        if self._number == 0:
            self.slam()
        self.enter("commit")
        return answers


async def test_random_machines_end_as_they_do_in_memory(
    chance: random.Random, figure: Figure, full: bool
) -> None:
    """The same last snapshot, and the same keys for what they did."""
    transitions = deaths = 0
    for _ in range(MACHINES_FULL if full else MACHINES):
        seed = chance.randrange(1 << 32)
        calm, stormy = World(), World()
        wanted = await in_memory(machine(random.Random(seed), Tool(calm)))
        async with App(MemoryStore(lease_seconds=1e6), settings=SETTINGS) as app:
            driven = await drive(machine(random.Random(seed), Tool(calm))("go", id="r"), app)
        kind = machine(random.Random(seed), Tool(stormy))
        killed, died = await with_deaths(kind, MemoryStore(lease_seconds=1e6), chance)

        assert wanted.snapshot() == driven.snapshot() == killed.snapshot(), seed
        assert calm.done == stormy.done, seed
        transitions, deaths = transitions + wanted.seq, deaths + died
    figure("loop: random machines", f"{transitions} transitions, {deaths} deaths")
    assert deaths > MACHINES // 4
