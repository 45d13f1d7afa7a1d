"""Worker processes that are killed at a commit of a schedule, or of what it fires."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from outlive.app.app import App
from outlive.ports import Ports
from outlive.stores.open import open_store
from outlive.stores.types import Entry
from tests.harness.stores import store_url
from tests.processes.players import QUICK, enter
from tests.schedules.toll import NAME, toll


class Doom:
    """Counts commits that touch the schedule, and ends the process at one of them."""

    def __init__(self, number: int, when: str) -> None:
        self._left, self._when = number, when

    def watch(self, store: Any, verb: str) -> None:
        """Stand beside this verb of the store."""
        commit: Callable[..., Awaitable[Any]] = getattr(store, verb)

        async def watched(batch: Sequence[Entry], **how: Any) -> Any:
            is_ours = any(NAME in entry.run_id for entry in batch)
            self._left -= is_ours
            is_last = is_ours and self._left == 0
            if is_last and self._when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            answer = await commit(batch, **how)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        setattr(store, verb, watched)


def work(folder: Path, number: int, when: str) -> None:
    """Be a worker until killed; 0: nothing kills it."""
    enter(folder)

    async def main() -> None:
        store = open_store(store_url(folder), ports=Ports(), lease_seconds=QUICK.lease_seconds)
        doom = Doom(number, when)
        doom.watch(store, "commit")
        async with App(store, settings=QUICK) as app, app.worker([toll]) as worker:
            await worker.wait()

    asyncio.run(main())
