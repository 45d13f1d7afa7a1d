"""A process that streams tokens and is killed by itself before or after one of its commits."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from typing import Any

import outlive
from outlive.app.app import App
from outlive.settings import Settings
from outlive.stores.types import Entry
from tests.harness.stores import open_shared

TOKENS = [f"token {number}" for number in range(60)]
#: Batches of 50 ms have about ten tokens each.
PAUSE = 0.005
QUICK = Settings(lease_seconds=1.0, poll_seconds=0.02, idle_seconds=0.0)
STEP, PLACE = "0/model#1", "0/stream:tokens#1"
SHOWN = {PLACE: ["question", "answered"], STEP: TOKENS}


@outlive.step
async def model() -> int:
    async with outlive.stream("tokens") as out:
        for number, token in enumerate(TOKENS):
            out.put(token)
            await outlive.publish(progress=number)
            await asyncio.sleep(PAUSE)
    return len(TOKENS)


@outlive.flow(name="speaking")
async def speaking() -> int:
    async with outlive.stream("tokens") as out:
        out.put("question")
        count = await model()
        out.put("answered")
    return count


def speak(url: str, kill_at: int | None, *, is_done: bool) -> None:
    """Start or continue the run; die at the commit of this number, once it is done or before."""
    store: Any = open_shared(url, QUICK.lease_seconds)
    commit, made = store.commit, 0

    async def commit_or_die(batch: Sequence[Entry], **options: Any) -> Any:
        nonlocal made
        made += 1
        if made == kill_at and not is_done:
            os.kill(os.getpid(), signal.SIGKILL)
        answers = await commit(batch, **options)
        if made == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return answers

    store.commit = commit_or_die

    async def main() -> None:
        async with App(store, settings=QUICK) as app:
            assert len(TOKENS) == await (await app.start(speaking, id="r"))

    asyncio.run(main())
