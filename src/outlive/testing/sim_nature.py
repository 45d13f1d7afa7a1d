"""What a simulated world is made of: one timeline, one source of chance, clocks that can jump.

Nothing here reads a real clock or draws real randomness: the seed is all there is.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from outlive.testing.sim_loop import Timeline, new_loop

#: The wall clock's time when a simulation begins (ms since 1970).
BEGINNING_MS = 1_700_000_000_000


class SimCrash(BaseException):
    """The process that runs this code died just now."""


class Nature:
    """Time and chance of one simulation, and a loop that no fault ever touches."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.timeline = Timeline()
        self.loop = new_loop(self.timeline, "nature")
        self.rng = random.Random(f"outlive {seed}")
        #: How far every wall clock is ahead of virtual time.
        self.wall_ms = 0

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.timeline.now

    def entropy(self, size: int) -> bytes:
        """The random bytes of everybody."""
        return self.rng.randbytes(size)

    def after(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        """Let something happen, whatever becomes of the processes."""
        self.loop.call_later(seconds, callback, *args)

    def mostly_short(self, seconds_max: float) -> float:
        """A duration: often short, at times as long as it may be."""
        drawn: float = self.rng.random()
        return seconds_max * drawn * drawn * drawn

    def chance(self, share: float) -> bool:
        """True in this share of all cases."""
        drawn: float = self.rng.random()
        return drawn < share


class SimClock:
    """The clock of one process: its wall clock may jump, its monotonic time never does."""

    def __init__(self, nature: Nature, skew_ms: int = 0) -> None:
        self._nature = nature
        self.skew_ms = skew_ms
        #: How far this process's wall clock is ahead of everybody's, for a while.
        self.offset_ms = 0

    def now_ms(self) -> int:
        nature = self._nature
        here_ms = nature.wall_ms + self.skew_ms + self.offset_ms
        return BEGINNING_MS + int(nature.timeline.now * 1000) + here_ms

    def monotonic(self) -> float:
        return self._nature.timeline.now
