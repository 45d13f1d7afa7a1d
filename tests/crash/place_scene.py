"""An agent in a place, under a framework that makes other tasks in every process; killed anywhere.

Model calls and tools are anonymous steps and effects, named by the ids of their calls. Ids and keys
must be the same in every process, or an effect would happen twice.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import outlive
from outlive.model.events import EffectDone, StepDone
from outlive.testing.audit.auditor import Policy, fresh_nonce
from outlive.testing.crash.child import Stage
from outlive.testing.crash.lab import Evidence
from outlive.testing.ledger import ANSWERS, BREAKS_AFTER
from tests.crash.reference_agent import LATE, LIMITS, ask, found

RUN_ID = "agent"
TURNS, CALLS = 2, 3
POLICIES: dict[str, Policy] = {"order": "once", "pay": "once"}
CHANCE = random.SystemRandom()
ORDER = outlive.EffectOptions(check=found, **LIMITS)


async def think(topic: str) -> str:
    return fresh_nonce(os.urandom)


async def order(book: str, why: str) -> str:
    return await ask(book, "order", why, CHANCE.choice((ANSWERS, LATE, BREAKS_AFTER)))


@outlive.effect(check=found, **LIMITS)
async def pay(book: str, why: str) -> str:
    return await ask(book, "pay", why, LATE)


async def beside(*parts: Callable[[], Awaitable[Any]]) -> list[Any]:
    """As a framework does it: in tasks of its own, as many as it likes, in any order."""

    async def turns(part: Callable[[], Awaitable[Any]] | None = None) -> Any:
        for _ in range(CHANCE.randrange(4)):
            await asyncio.sleep(0)
        return None if part is None else await part()

    more = [asyncio.create_task(turns()) for _ in range(CHANCE.randrange(4))]
    order = CHANCE.sample(range(len(parts)), len(parts))
    made = {n: asyncio.create_task(turns(parts[n])) for n in order}
    await asyncio.gather(*made.values(), *more)
    return [made[n].result() for n in range(len(parts))]


@outlive.flow
async def agent(book: str) -> list[str]:
    seen: list[str] = []

    async def use_tool(call: str, why: str) -> str:
        with outlive.place(call):
            await asyncio.sleep(0.01)
            return await pay(book, f"{call} {why}")

    with outlive.place("agent"):
        for turn in range(TURNS):
            seen.append(await outlive.do("model", think, f"turn {turn}"))
            orders = [
                partial(
                    *(outlive.do, "order", order, book, f"{turn}.{n} {seen[-1]}"),
                    id=f"call_{turn}{n}",
                    effect=ORDER,
                )
                for n in range(CALLS)
            ]
            seen += await beside(*orders, partial(use_tool, f"tool_{turn}", seen[-1]))
            await outlive.sleep(0.02)
    return seen


async def scene(stage: Stage) -> None:
    """Start the run, or go on with it."""
    handle = await stage.app.start(agent, str(stage.folder / "ledger.jsonl"), id=RUN_ID)
    await handle.outcome()


WANTED = sorted(
    [
        *(f"0@agent/model#{turn + 1}" for turn in range(TURNS)),
        *(f"0@agent/order:call_{turn}{n}#1" for turn in range(TURNS) for n in range(CALLS)),
        *(f"0@agent@tool_{turn}/pay#1" for turn in range(TURNS)),
    ]
)


def check(evidence: Evidence) -> Sequence[str]:
    """Every id is that of the first process, whatever tasks the others made."""
    ended = [e.step for e in evidence.journals[RUN_ID] if isinstance(e, (StepDone, EffectDone))]
    return [] if sorted(ended) == WANTED else [f"the run did {sorted(ended)}"]
