"""Five hundred pictures are described, twenty at a time; what failed is told at the end.

    python batch.py monday 500

Killed and started again, it goes on with what is missing.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import outlive

DONE = Path("described.txt")
MODEL_SECONDS = 0.02


@dataclass(frozen=True)
class Picture:
    number: int
    name: str


@dataclass(frozen=True)
class Report:
    described: int
    failed: list[str]


@outlive.step(timeout="2s")
async def describe(picture: Picture) -> str:
    await asyncio.sleep(MODEL_SECONDS)
    with DONE.open("a") as done:
        done.write(f"{picture.name}\n")
    return f"{picture.name} shows {picture.number} cats"


def pictures(day: str, count: int) -> Sequence[Picture]:
    return [Picture(number, f"{day}-{number}.png") for number in range(count)]


@outlive.flow
async def batch(day: str, count: int) -> Report:
    outcomes = await outlive.map(describe, pictures(day, count), limit=20)
    failed = [str(outcome.error) for outcome in outcomes if not outcome.ok]
    return Report(len(outcomes) - len(failed), failed)


if __name__ == "__main__":
    day, count = sys.argv[1], int(sys.argv[2])
    report = outlive.run(batch, day, count, id=f"batch-{day}")
    print(f"{report.described} described, {len(report.failed)} failed")
    for line in report.failed[:3]:
        print(line)
