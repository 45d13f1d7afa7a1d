"""How a loop calls a store without being blocked by it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from outlive.errors import AppClosed
from outlive.journal.immediate import run_immediate

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
        #: For what was begun elsewhere. It may hold what those above wait for.
        self._rest = ThreadPoolExecutor(1, thread_name_prefix="outlive-rest")
        self._process: int | None = os.getpid()

    async def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        self._check(work)
        future = self._pool.submit(run_immediate, work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if future.cancelled():
                work.close()
            raise

    async def begin_here(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry it out on the caller's thread, and from where it may take long on, beside.

        What was begun is carried to its end, also when nobody waits for it any more.
        """
        self._check(work)
        try:
            work.send(None)
        except StopIteration as stop:
            value: T = stop.value
            return value
        return await asyncio.shield(asyncio.wrap_future(self._rest.submit(run_immediate, work)))

    def _check(self, work: Coroutine[Any, Any, T]) -> None:
        if self._process != os.getpid():
            work.close()
            raise AppClosed("the app was closed, or this process was forked; open another")

    def close(self) -> None:
        """End the threads."""
        self._process = None
        self._pool.shutdown(wait=True)
        self._rest.shutdown(wait=True)
