"""A process that takes a large payload in and out of a run, and kills itself at some chunk."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import outlive

FOLDER, MEGABYTES, KILL_AT = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
seen = 0


def count() -> None:
    global seen
    seen += 1
    if seen == KILL_AT:
        os.kill(os.getpid(), signal.SIGKILL)


async def source() -> AsyncIterator[bytes]:
    rng, digest = random.Random(1), hashlib.sha256()
    for _ in range(MEGABYTES):
        chunk = rng.randbytes(1024 * 1024)
        digest.update(chunk)
        yield chunk
        count()
    (FOLDER / "digest").write_text(digest.hexdigest())


@outlive.step
async def take_in() -> outlive.Blob:
    return await outlive.Blob.of(source())


@outlive.step
async def give_out(blob: outlive.Blob) -> str:
    digest = hashlib.sha256()
    async for chunk in blob.chunks():
        digest.update(chunk)
        count()
    return digest.hexdigest()


@outlive.flow
async def pass_on() -> str:
    return await give_out(await take_in())


def resident_kb() -> int:
    """The most that this program had in memory; what its parent had does not count."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


async def main() -> None:
    async with outlive.open(f"sqlite:///{FOLDER}/o.db") as app:
        digest = await (await app.start(pass_on, id="large")).outcome()
    print(digest, resident_kb())


asyncio.run(main())
