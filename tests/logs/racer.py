"""A process that appends to a few keys beside others, until it is killed.

python -m tests.logs.racer URL NAME: prints what was acknowledged, a line each.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from random import Random
from typing import Any

import outlive

KEYS = ("a", "b", "c", "d")
AT_ONCE = 6


async def race(url: str, name: str) -> None:
    chance = Random(name)
    async with outlive.open(url, drive=False) as app:
        log = app.log("race")

        async def one(number: int) -> None:
            for turn in range(100_000):
                op = f"{name}-{number}-{turn}"
                keys = chance.sample(KEYS, chance.choice((1, 1, 2)))

                def decide(views: Any, op: str = op, keys: Any = keys) -> Any:
                    return {key: [[op, keys]] for key in keys}

                if len(keys) == 1:
                    (key,) = keys
                    await log.append(key, lambda view, op=op, keys=keys: [[op, keys]])
                else:
                    await log.append_all(keys, decide)
                await asyncio.sleep(0.01)
                os.write(1, json.dumps([op, keys]).encode() + b"\n")

        await asyncio.gather(*map(one, range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(race(sys.argv[1], sys.argv[2]))
