"""Time, chance and named moments: the only doors through which they enter.

Everything that a test or a simulation must be able to replace comes in as ``Ports``.
No other module of the package reads a clock or draws a random number.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

logger = logging.getLogger("outlive")

#: A clock of this machine that is further off than this from the store's is worth a warning.
OFFSET_MS_MAX = 1000


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

    #: Python's own: it is asked several times for each effect.
    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class RemoteClock:
    """The clock of a store's server, as far as it is known here (R23).

    The server says what time it is now and then; in between, our own monotonic time goes on. What
    it says was so at some moment between question and answer, and what is known is changed no
    further than that demands: a slow answer moves nothing, a quick one says it exactly.
    """

    def __init__(self, own: Clock, name: str) -> None:
        self._own, self._name = own, name
        self._lock = threading.Lock()
        #: The server's time less our monotonic time, in ms.
        self._ahead: float | None = None
        self._asked_at = -math.inf
        self._told_ms = 0

    def now_ms(self) -> int:
        ahead = self._ahead
        return self._own.now_ms() if ahead is None else int(self.monotonic() * 1000 + ahead)

    def monotonic(self) -> float:
        return self._own.monotonic()

    def notice(self, server_ms: int, sent_at: float) -> None:
        """The server said what time it is; it was asked at ``sent_at``, and has answered now.

        An answer that was overtaken by one to a later question says nothing: the server's clock
        may have been set since.
        """
        least, most = server_ms - self.monotonic() * 1000, server_ms + 1 - sent_at * 1000
        with self._lock:
            if sent_at < self._asked_at:
                return
            self._asked_at = sent_at
            ahead = (least + most) / 2 if self._ahead is None else self._ahead
            self._ahead = min(max(ahead, least), most)
        self._warn()

    @property
    def offset_ms(self) -> int:
        """How far the server's clock is ahead of this machine's."""
        return self.now_ms() - self._own.now_ms()

    def _warn(self) -> None:
        """Say so when it is far off, and again when that has changed."""
        offset = self.offset_ms
        if abs(offset - self._told_ms) <= OFFSET_MS_MAX:
            return
        self._told_ms = offset
        logger.warning(
            "the clock of %s is %s; runs go by that one: set this machine's clock right",
            self._name,
            describe_offset(offset),
        )


def describe_offset(offset_ms: int) -> str:
    """How far a server's clock is from this machine's, in words."""
    if abs(offset_ms) <= OFFSET_MS_MAX:
        return f"within {OFFSET_MS_MAX // 1000} s of this machine's"
    way = "ahead of" if offset_ms > 0 else "behind"
    return f"{abs(offset_ms) / 1000:.1f} s {way} this machine's"


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
