"""How a loop calls a store without being blocked by it."""

from __future__ import annotations

import asyncio
import os
import types
from collections.abc import Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from outlive.errors import AppClosed
from outlive.model.defaults import LANE_THREADS
from outlive.ports import Clock

T = TypeVar("T")

_ASIDE = object()
#: What takes longer is slow: no loop must wait for it.
SLOW_SECONDS = 0.002
#: How often in a row it must have been quick before a loop's own thread does it again.
QUICK_TIMES = 5


@types.coroutine
def aside() -> Generator[object, None, None]:
    """What follows may take long; who began this on a loop goes on with it on another thread."""
    yield _ASIDE


def run_immediate(work: Coroutine[Any, Any, T]) -> T:
    """The value of a coroutine that never suspends, as those of local stores."""
    while True:
        try:
            wish = work.send(None)
        except StopIteration as stop:
            value: T = stop.value
            return value
        if wish is not _ASIDE:  # this is aside
            work.close()
            raise RuntimeError("a local store's verb suspended")


class Pace:
    """Whether what is done again and again is quick enough for a loop to wait for it."""

    __slots__ = ("_clock", "_quick", "begin", "is_quick")

    def __init__(self, clock: Clock) -> None:
        self._clock, self._quick = clock, 0
        #: The instant at which it begins, for ``note``.
        self.begin = clock.monotonic
        #: It was, many times in a row.
        self.is_quick = False

    def note(self, began: float, *, is_done: bool = True) -> None:
        """It is over; not done: it would have taken longer."""
        is_slow = self._clock.monotonic() - began > SLOW_SECONDS
        self._quick = 0 if is_slow or not is_done else self._quick + 1
        self.is_quick = self._quick >= QUICK_TIMES


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

    def start(self, work: Coroutine[Any, Any, None], *, here: bool = False) -> None:
        """Carry it out though nobody waits for it; ``here``: on this thread while it is quick."""
        self._check(work)
        if not here:
            self._pool.submit(run_immediate, work)
            return
        try:
            work.send(None)
        except StopIteration:
            return
        self._rest.submit(run_immediate, work)

    def _check(self, work: Coroutine[Any, Any, T]) -> None:
        if self._process != os.getpid():
            work.close()
            raise AppClosed("the app was closed, or this process was forked; open another")

    def close(self) -> None:
        """End the threads."""
        self._process = None
        self._pool.shutdown(wait=True)
        self._rest.shutdown(wait=True)
