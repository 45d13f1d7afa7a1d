"""What worker processes are given: flows of a limited queue, and of one that is not."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import outlive

models = outlive.Queue(
    "models", concurrency=4, per_key=2, per_worker=2, rate=outlive.Rate(15, per="4s")
)


@outlive.step
async def work(seconds: float) -> None:
    await asyncio.sleep(seconds)


@outlive.flow(queue="models")
async def limited(number: int) -> int:
    await work(0.05)
    if number % 3 == 0:
        await outlive.sleep(0.2)
        await work(0.05)
    return number


@outlive.flow(queue="others")
async def unlimited(number: int) -> int:
    await work(0.02)
    return number


@outlive.step
async def linger(seconds: float) -> int:
    """Says again and again which process it runs in."""
    path = Path(os.environ["DEPLOY_FOLDER"], "lingering")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with path.open("a") as file:
            file.write(f"{time.monotonic()} {os.getpid()}\n")
        await asyncio.sleep(0.02)
    return os.getpid()


@outlive.flow(queue="models")
async def lingering(seconds: float) -> int:
    return await linger(seconds)
