"""From plain code into a loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from outlive.errors import UsageError

T = TypeVar("T")


def run_blocking(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function to its end from plain code; in a notebook, beside its loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    if "ipykernel" not in sys.modules:
        raise UsageError("a loop is running here; use `await outlive.start(...)` instead of run()")
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(asyncio.run, main()).result()
