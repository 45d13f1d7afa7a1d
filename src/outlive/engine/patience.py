"""A store that can't be reached for a moment is asked again, until nobody wants to know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from outlive.errors import OutliveError, StoreUnavailable

PAUSE_SECONDS = 0.2

T = TypeVar("T")


async def insist(ask: Callable[[], Awaitable[T]], is_over: Callable[[], bool]) -> T | None:
    """The answer; None if nobody wants it any more, or the store is gone for good."""
    while not is_over():
        try:
            return await ask()
        except StoreUnavailable:
            await asyncio.sleep(PAUSE_SECONDS)
        except OutliveError:
            # Whoever drives the run hears of it from the journal keeper or from its worker.
            return None
    return None
