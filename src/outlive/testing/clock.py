"""A clock that stands still until it is moved, for tests that would otherwise wait.

``FakeClock`` is both clocks of ``Ports``. With ``rule(loop)`` the timers of an asyncio loop follow
it, too, so that an hour of sleep is over as soon as ``advance(3600)`` returns to the loop.
"""

from __future__ import annotations

import asyncio

START_MS = 1_700_000_000_000


class FakeClock:
    """Wall time and monotonic time, moved by hand."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._wall_ms = float(now_ms)
        self._seconds = 1000.0
        self._loops: list[asyncio.AbstractEventLoop] = []

    def now_ms(self) -> int:
        return int(self._wall_ms)

    def monotonic(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Advance both clocks."""
        self._seconds += seconds
        self.set_wall(self._wall_ms + seconds * 1000)

    def set_wall(self, now_ms: float) -> None:
        """Set the wall clock, back or forth; monotonic time is unaffected."""
        self._wall_ms = now_ms
        for loop in self._loops:
            if not loop.is_closed():
                # A sleeping loop must look at its timers again.
                loop.call_soon_threadsafe(int)

    def rule(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let this loop's timers follow this clock. Not for loops with timers in C."""
        loop.time = self.monotonic  # type: ignore[method-assign]  # what a subclass would do
        self._loops.append(loop)
