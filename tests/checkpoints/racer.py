"""A process that saves one run's steps as fast as it can, beside others that do the same.

python -m tests.checkpoints.racer URL NAME COUNT
"""

from __future__ import annotations

import asyncio
import sys

from outlive.checkpoints import DurableRunner, SnapshotStore


async def race(url: str, name: str, count: int) -> None:
    async with SnapshotStore(url) as store:
        runner = DurableRunner(store)
        for number in range(count):
            texts = [f"{name} {each} " * 80 for each in range(number + 1)]
            await runner.checkpoint("r", f"{name}-{number}", {"texts": texts}, {"n": number})


if __name__ == "__main__":
    asyncio.run(race(sys.argv[1], sys.argv[2], int(sys.argv[3])))
