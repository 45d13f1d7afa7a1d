"""Who is dead, who is only silent: how a watcher judges the holder of a lease (R23).

No worker's clock is ever compared with another's. A beat is a counter; a watcher notes when it
first saw the counter's present value, on its own monotonic clock, and calls the worker silent
once that value has stood for a whole lease.
"""

from __future__ import annotations

from typing import Literal

from outlive.ports import Clock

#: What a watcher thinks of a worker: ``dead`` is certain, ``silent`` only supposed.
Standing = Literal["alive", "silent", "dead"]


class Silence:
    """Remembers since when each worker's beat counter has not moved."""

    def __init__(self, clock: Clock, lease_seconds: float) -> None:
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._seen: dict[str, tuple[int, float]] = {}

    def judge(self, worker: str, counter: int) -> Standing:
        """Alive, or silent if this counter has been seen for a whole lease."""
        now = self._clock.monotonic()
        seen = self._seen.get(worker)
        if seen is None or seen[0] != counter:
            self._seen[worker] = (counter, now)
            return "alive"
        return "silent" if now - seen[1] >= self._lease_seconds else "alive"

    def forget(self, worker: str) -> None:
        """The worker is gone: its next counter, if any, is news."""
        self._seen.pop(worker, None)
