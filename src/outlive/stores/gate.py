"""The gate of a queue: whether one more run of it may be held, by what is held already.

Pure arithmetic for stores that decide in Python, inside the transaction of the commit. Counts are
taken from the runs themselves, so they can't be wrong for long, whoever died; only what a rate has
spent is kept: by slices of time, so that a queue costs a handful of rows however many runs begin.

A slice counts until all of it is out of sight, and for one slice more: so long may a commit take
from when it was counted until others see it. So no stretch of time ever sees more than its limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from outlive.store import DEFAULT_QUEUE, Entry, Found, QueueLimits

#: Slices of time that a rate's stretch is made of.
SLICES = 20
#: One run of so many is the one that has waited longest.
FAIR_TURNS = 8


def slice_ms(limits: QueueLimits) -> int:
    """How long a slice is."""
    return -(-limits.rate_ms // SLICES)


def slice_at(limits: QueueLimits, now: int) -> int:
    """When the slice of this instant began."""
    return now - now % slice_ms(limits)


def first_slice_at(limits: QueueLimits, now: int) -> int:
    """When the first slice began that still counts."""
    return slice_at(limits, now) - (SLICES + 1) * slice_ms(limits)


def spent_at(limits: QueueLimits, slices: Mapping[int, int], now: int) -> int:
    """The units that count now. What was spent after now is not yet seen: the clock was set."""
    return sum(
        units
        for at, units in slices.items()
        if first_slice_at(limits, now) <= at <= slice_at(limits, now)
    )


def is_gated(entry: Entry) -> bool:
    """Whether an entry may take something of a queue."""
    is_kept = entry.header is None or entry.header.ended_at is None
    is_queued = entry.header is None or entry.header.queue != DEFAULT_QUEUE
    return entry.lease == "take" and is_kept and is_queued


@dataclass(frozen=True, slots=True)
class Turn:
    """How far a queue has come: how many runs it gave out, and the key of the last."""

    number: int = 0
    key: str = ""

    @property
    def is_of_the_oldest(self) -> bool:
        """The next one goes to whoever has waited longest."""
        return self.number % FAIR_TURNS == FAIR_TURNS - 1

    def after(self, key: str) -> Turn:
        """The turn after a run of this key; the oldest does not change whose turn it is."""
        return Turn(self.number + 1, self.key if self.is_of_the_oldest else key)


@dataclass(slots=True, kw_only=True)
class Load:
    """What is taken of a queue that has limits."""

    limits: QueueLimits
    turn: Turn = Turn()
    held: int = 0
    by_key: Counter[str] = field(default_factory=Counter)
    by_worker: Counter[str] = field(default_factory=Counter)
    spent: int = 0
    #: Runs of it may be due that nobody holds.
    is_waited: bool = False
    #: A run that the rate has no units for is next: none may pass it that the same worker drives.
    is_spent: bool = False

    def admits(self, run: Found, worker: str) -> bool:
        """Whether the worker may take this run now."""
        limits, header = self.limits, run.header
        if _reaches(self.by_worker[worker], limits.per_worker):
            return False
        if run.head.worker is not None:
            return True  # it goes from one who is gone to another
        if _reaches(self.held, limits.concurrency) or self.is_full(header.queue_key):
            return False
        return run.head.epoch > 0 or self._affords(self.cost(header.units))

    def cost(self, units: int) -> int:
        """What a run takes of the rate: one that exceeds it alone takes all of it."""
        return units if self.limits.rate is None else min(units, self.limits.rate)

    def is_full(self, key: str) -> bool:
        """Whether no more of this key may be held."""
        return key != "" and _reaches(self.by_key[key], self.limits.per_key)

    def _affords(self, cost: int) -> bool:
        rate = self.limits.rate
        if rate is not None and (self.is_spent or self.spent + cost > rate):
            self.is_spent = True
            return False
        return True

    def add(self, run: Found, worker: str) -> None:
        """The worker takes it."""
        self.by_worker[worker] += 1
        if run.head.worker is not None:
            self.by_worker[run.head.worker] -= 1
            return
        self.held += 1
        self.by_key[run.header.queue_key] += 1
        if run.head.epoch == 0:
            self.spent += self.cost(run.header.units)

    def is_crowded(self, worker: str) -> bool:
        """Whether some who want to be held have no place."""
        return self.room(worker, 1) == 0 or any(self.is_full(key) for key in [*self.by_key])

    def room(self, worker: str, most: int) -> int:
        """How many more may be held by this worker at once, ``most`` if that is less."""
        limits = self.limits
        left = [most]
        if limits.concurrency is not None:
            left.append(limits.concurrency - self.held)
        if limits.per_worker is not None:
            left.append(limits.per_worker - self.by_worker[worker])
        return max(0, min(left))


def crowded(loads: Mapping[str, Load], worker: str) -> list[str]:
    """The queues in which others may wait for what this worker holds."""
    return [
        queue
        for queue, load in loads.items()
        if load.is_waited and load.by_worker[worker] and load.is_crowded(worker)
    ]


def _reaches(count: int, limit: int | None) -> bool:
    return limit is not None and count >= limit
