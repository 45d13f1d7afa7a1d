"""The user's loop, as the engine uses it: a narrow door that a simulation can stand in for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, Protocol


class Cancellable(Protocol):
    """A timer that can be called off."""

    def cancel(self) -> object:
        """Never call it."""
        ...


class Host(Protocol):
    """Where bodies run and where the engine's callbacks come from."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        """Call at the end of this turn."""
        ...

    def call_later(
        self, seconds: float, callback: Callable[..., object], *args: Any
    ) -> Cancellable:
        """Call after a while."""
        ...

    def time(self) -> float:
        """The seconds that ``call_later`` counts by."""
        ...

    def call_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        """Call from another thread; a loop that is closed hears nothing."""
        ...

    def create_task(
        self, work: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> asyncio.Task[Any]:
        """Run a coroutine here."""
        ...

    def run_in_thread(self, context: Context, fn: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run a plain function beside the loop, in this context."""
        ...


class Occupation:
    """Which run's code a loop is in, for a thread that watches it. Written without a lock."""

    __slots__ = ("run_id", "thread", "turn")

    def __init__(self) -> None:
        #: The thread of the loop: whoever makes this is on it.
        self.thread = threading.get_ident()
        self.run_id: str | None = None
        #: How often code of a run was entered.
        self.turn = 0


class LoopHost:
    """A real asyncio (or uvloop) loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self.loop = loop
        self.call_soon = loop.call_soon
        self.call_later = loop.call_later
        self.time = loop.time
        self._executor = executor

    def call_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def create_task(
        self, work: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> asyncio.Task[Any]:
        if self.loop.get_task_factory() is not None:
            return self.loop.create_task(_in_its_own_turn(work), context=context)
        return asyncio.Task(work, loop=self.loop, context=context)  # at half the cost

    def run_in_thread(self, context: Context, fn: Callable[[], Any]) -> asyncio.Future[Any]:
        return self.loop.run_in_executor(self._executor, context.run, _carried, fn)


def _carried(fn: Callable[[], Any]) -> Any:
    """What it returns or raises, if a future can carry that; as with coroutines otherwise."""
    try:
        return fn()
    except StopIteration as stop:
        raise RuntimeError("plain code raised StopIteration") from stop


async def _in_its_own_turn(work: Coroutine[Any, Any, Any]) -> Any:
    """An eager factory would begin it within whatever made it, and steps within one another."""
    await asyncio.sleep(0)
    return await work
