"""Work that is carried out where it is asked for, as long as that is a matter of moments.

Verbs of stores never suspend by themselves, so whoever calls one decides on which thread it runs.
Work that begins on a loop's own thread says by ``aside`` from where on it may keep that waiting.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

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

    __slots__ = ("_clock", "_quick")

    def __init__(self, clock: Clock) -> None:
        self._clock, self._quick = clock, 0

    @property
    def is_quick(self) -> bool:
        """It was, many times in a row."""
        return self._quick >= QUICK_TIMES

    def begin(self) -> float:
        """The instant at which it begins, for ``note``."""
        return self._clock.monotonic()

    def note(self, began: float, *, is_done: bool = True) -> None:
        """It is over; not done: it would have taken longer."""
        is_slow = self._clock.monotonic() - began > SLOW_SECONDS
        self._quick = 0 if is_slow or not is_done else self._quick + 1
