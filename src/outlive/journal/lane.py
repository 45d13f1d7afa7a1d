"""How a loop calls a store without being blocked by it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from outlive.errors import AppClosed
from outlive.journal.keeper import run_immediate

T = TypeVar("T")

#: Enough for a local store, whose verbs hardly wait.
LANE_THREADS = 2


class Lane(Protocol):
    """Carries a store's verb out beside the caller's loop."""

    async def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """The verb's answer."""
        ...


class ThreadLane:
    """For stores whose verbs never suspend: a thread or two that run them."""

    def __init__(self, threads: int = LANE_THREADS) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="outlive-lane")
        self._process: int | None = os.getpid()

    async def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        if self._process != os.getpid():
            work.close()
            raise AppClosed("the app was closed, or this process was forked; open another")
        future = self._pool.submit(run_immediate, work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if future.cancelled():
                work.close()
            raise

    def close(self) -> None:
        """End the threads."""
        self._process = None
        self._pool.shutdown(wait=True)
