"""The loops that an app may live on: asyncio's, uvloop's, and one whose tasks begin eagerly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

LOOPS = ("asyncio", "uvloop", "eager")


def run_on(name: str, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine on a loop of this kind."""
    with asyncio.Runner(loop_factory=_factory(name)) as runner:
        return runner.run(main())


def _factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    return new_eager_loop if name == "eager" else asyncio.new_event_loop


def new_eager_loop() -> asyncio.AbstractEventLoop:
    """Python 3.12 and later: a task's first piece runs where it is made."""
    loop = asyncio.new_event_loop()
    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]  # 3.12
    return loop
