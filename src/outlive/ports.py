"""Time, chance and named moments: the only doors through which they enter.

Everything that a test or a simulation must be able to replace comes in as ``Ports``.
No other module of the package reads a clock or draws a random number.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


class Clock(Protocol):
    """Wall time for timers and people, monotonic time for leases."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since some point; never jumps."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


def nothing_happens(moment: str) -> None:
    """The failpoint of production: no moment is special."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What the outside gives: a clock, randomness, and a hook at named moments."""

    clock: Clock = field(default_factory=SystemClock)
    #: n random bytes: run ids, run seeds, jitter.
    entropy: Callable[[int], bytes] = os.urandom
    #: called at named moments (``"effect.before"``); tests kill or stop the process there.
    failpoint: Callable[[str], None] = nothing_happens
