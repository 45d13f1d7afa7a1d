"""Random flows: a seed grows a tree of branches, waits, limits and cancellations.

The tree depends on the seed alone, the trace that the flow returns on timing as well: everything
that any branch saw, in the order in which it saw it. Between two deliveries that order is asyncio's
own: it replays on the same minor version of Python; on another one, branches that are being
cancelled (through ``wait_for`` above all, which was written anew in 3.12) may take turns otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import outlive
from tests.order.bodies import fail, fetch, fetch_plain, refuse, risk, send, stubborn, third_time

DEPTH_MAX = 3
LEAVES: list[Callable[[str], Any]] = [fetch, fetch_plain, stubborn, third_time, send, risk]
FAILING: list[Callable[[str], Any]] = [fail, refuse]

Branch = Callable[[], Coroutine[Any, Any, str]]


@outlive.flow
async def program(seed: int) -> list[str]:
    grown = Program(seed)
    await grown.seen_node("0", 0)
    return grown.trace


class Program:
    """One tree, and what its branches saw."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.trace: list[str] = []

    async def seen_node(self, path: str, depth: int) -> str:
        """A node, its end noted; ordinary errors end here, cancellations go on."""
        try:
            got = await self.node(path, depth)
        except asyncio.CancelledError:
            self.trace.append(f"{path} cancelled")
            raise
        except Exception as error:
            got = type(error).__name__
        self.trace.append(f"{path} {got}")
        return got

    async def node(self, path: str, depth: int) -> str:
        chance = Random(f"{self._seed} {path}")
        if depth == DEPTH_MAX or chance.random() < 0.1:
            return await self.leaf(path, chance)
        width = chance.randint(2, 4)
        branches = [self.branch(f"{path}.{n}", depth + 1) for n in range(width)]
        shape = chance.choice(SHAPES)
        return str(await shape(self, branches, chance))

    def branch(self, path: str, depth: int) -> Branch:
        return lambda: self.seen_node(path, depth)

    async def leaf(self, path: str, chance: Random) -> str:
        kind = chance.random()
        if kind < 0.15:
            await asyncio.sleep(chance.choice((0, 0.001, 0.003)))
            return "slept"
        if kind < 0.25:
            await outlive.sleep(chance.choice((0.001, 0.002)))
            return f"slept {outlive.random()}"
        return str(await chance.choice(FAILING if kind < 0.4 else LEAVES)(path))

    async def one_by_one(self, branches: list[Branch], chance: Random) -> str:
        return " ".join([await branch() for branch in branches])

    async def gathered(self, branches: list[Branch], chance: Random) -> str:
        return " ".join(await asyncio.gather(*(branch() for branch in branches)))

    async def grouped(self, branches: list[Branch], chance: Random) -> str:
        async with asyncio.TaskGroup() as group:
            for branch in branches:
                group.create_task(branch())
            if chance.random() < 0.5:
                await fetch("breaks")
                raise ValueError("the group's own")
        return "grouped"

    async def first_completed(self, branches: list[Branch], chance: Random) -> str:
        pending = {asyncio.create_task(branch()) for branch in branches}
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if pending and chance.random() < 0.7:
            await asyncio.wait(pending)
        return " ".join(task.result() for task in done)

    async def as_completed(self, branches: list[Branch], chance: Random) -> str:
        given = [branch() for branch in branches]
        return " ".join([await each for each in asyncio.as_completed(given)])

    async def waited_for(self, branches: list[Branch], chance: Random) -> str:
        limit = chance.choice((0.001, 0.004, 1))
        return await asyncio.wait_for(self.gathered(branches, chance), limit)

    async def limited(self, branches: list[Branch], chance: Random) -> str:
        async with asyncio.timeout(chance.choice((0.001, 0.004, 1))):
            return await self.grouped(branches, chance)

    async def cancelled(self, branches: list[Branch], chance: Random) -> str:
        first, *others = [asyncio.create_task(branch()) for branch in branches]
        await fetch("before the cancellation")
        first.cancel()
        await asyncio.wait([first])
        return " ".join([await task for task in others])

    async def shielded(self, branches: list[Branch], chance: Random) -> str:
        task = asyncio.create_task(self.one_by_one(branches, chance))
        try:
            return await asyncio.wait_for(asyncio.shield(task), chance.choice((0.001, 0.005)))
        except TimeoutError:
            return f"late {await task}"

    async def queued(self, branches: list[Branch], chance: Random) -> str:
        queue: asyncio.Queue[str] = asyncio.Queue(1)

        async def put(branch: Branch) -> None:
            await queue.put(await branch())

        putting = asyncio.gather(*(put(branch) for branch in branches))
        got = [await queue.get() for _ in branches]
        await putting
        return " ".join(got)


SHAPES: list[Callable[[Program, list[Branch], Random], Coroutine[Any, Any, str]]] = [
    Program.one_by_one,
    Program.gathered,
    Program.grouped,
    Program.first_completed,
    Program.as_completed,
    Program.waited_for,
    Program.limited,
    Program.cancelled,
    Program.shielded,
    Program.queued,
]
