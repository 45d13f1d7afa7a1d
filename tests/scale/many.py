"""Runs with very many parts, in a process of their own, which tells what they cost.

python -m tests.scale.many URL FLOW COUNT LIMIT
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import outlive
from outlive.app.open import open_app

PAGE_BYTES = 4096


@outlive.step(raises=(ValueError,))
async def work(number: int) -> int:
    """Fails for one number in seven."""
    if number % 7 == 3:
        raise ValueError(f"no {number}")
    return number


@outlive.flow
async def child(number: int) -> int:
    """A run of its own for every number."""
    return await work(number)


@outlive.flow
async def over_steps(count: int, limit: int) -> list[int]:
    """How many went well, and how many did not."""
    return tally(await outlive.map(work, range(count), limit=limit))


@outlive.flow
async def over_children(count: int, limit: int) -> list[int]:
    """The same with a child for every number."""
    return tally(await outlive.map(child, range(count), limit=limit))


def tally(outcomes: list[outlive.Outcome]) -> list[int]:
    """Good ones, bad ones, and the sum of the good ones."""
    good = [each.value for each in outcomes if each.ok]
    return [len(good), len(outcomes) - len(good), sum(good)]


FLOWS: dict[str, Any] = {"over_steps": over_steps, "over_children": over_children}


def resident_mb() -> float:
    """What this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * PAGE_BYTES / 1e6


async def watch(seen: list[float]) -> None:
    """Write down the memory, again and again."""
    while True:
        seen.append(resident_mb())
        await asyncio.sleep(0.1)


async def main(url: str, flow: str, count: int, limit: int) -> None:
    """Run it, and tell."""
    seen = [resident_mb()]
    began = time.monotonic()
    async with open_app(url) as app:
        watching = asyncio.create_task(watch(seen))
        handle = await app.start(FLOWS[flow], count, limit, id="many")
        outcome = await handle.outcome()
        watching.cancel()
        epochs = (await app.read("many", 1 << 62)).head.epoch
    print(json.dumps([outcome, time.monotonic() - began, seen[0], max(seen), epochs]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
