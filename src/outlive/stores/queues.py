"""Who is next: within a queue by priority and by turns among keys, and by turns among queues.

A store collects candidates, some of each key; here they are put in order. A queue's *turn* counts
the runs it gave out. All but every eighth go by priority, and keys go round from the one that was
last served. That eighth is the one that has waited longest, whatever its priority and key: who
comes last is late but is never forgotten.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from outlive.stores.types import DEFAULT_QUEUE, Entry, Found, QueueLimits

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


#: By priority, then by key in its turn: those who wait, the oldest first.
Levels: TypeAlias = dict[int, deque[deque[Found]]]
#: Queues whose turns a process remembers.
QUEUES_MAX = 10_000


class Turns:
    """The turns of queues that have no limits, as one process knows them; and whose is next."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}
        self._rounds = 0

    def of(self, queue: str) -> Turn:
        """How far the queue has come here."""
        return self._turns.get(queue, Turn())

    def all(self) -> Mapping[str, Turn]:
        """How far all have come that are known here."""
        return self._turns

    def count(self, queue: str, taken: Sequence[Found]) -> None:
        """These were offered."""
        if len(self._turns) >= QUEUES_MAX:
            self._turns.clear()
        for run in taken:
            self._turns[queue] = self.of(queue).after(run.header.queue_key)

    def arrange(
        self, due: Iterable[Found], loads: Mapping[str, Load], worker: str, limit: int
    ) -> list[Found]:
        """What a worker is offered of these: at most so many, none beyond the limits of its queue.

        What the gone held comes first: it takes what is taken already.
        """
        orphans: list[Found] = []
        free: dict[str, list[Found]] = {}
        for run in sorted(due, key=_since):
            if run.head.worker is None:
                free.setdefault(run.header.queue, []).append(run)
            elif len(orphans) < limit and _takes(loads.get(run.header.queue), run, worker):
                orphans.append(run)
        room = limit - len(orphans)
        groups = [
            some if queue == DEFAULT_QUEUE else self._chosen(queue, some, loads, worker, room)
            for queue, some in free.items()
        ]
        return [*orphans, *self._shuffle(groups, room)]

    def _chosen(
        self, queue: str, some: list[Found], loads: Mapping[str, Load], worker: str, room: int
    ) -> list[Found]:
        load = loads.get(queue)
        if load is not None:
            return choose(some, load, load.turn, worker, room)
        chosen = choose(some, Load(limits=QueueLimits()), self.of(queue), worker, room)
        self.count(queue, chosen)
        return chosen

    def _shuffle(self, groups: Sequence[Sequence[Found]], limit: int) -> list[Found]:
        """One of each group in turn, another group first every time; no more than the limit."""
        there = [list(group) for group in groups if group]
        if not there:
            return []
        self._rounds += 1
        start = self._rounds % len(there)
        lanes = deque(deque(group) for group in [*there[start:], *there[:start]])
        taken: list[Found] = []
        while lanes and len(taken) < limit:
            lane = lanes.popleft()
            taken.append(lane.popleft())
            if lane:
                lanes.append(lane)
        return taken


def _takes(load: Load | None, run: Found, worker: str) -> bool:
    if load is not None and not load.admits(run, worker):
        return False
    if load is not None:
        load.add(run, worker)
    return True


def choose(
    candidates: Iterable[Found], load: Load, turn: Turn, worker: str, room: int
) -> list[Found]:
    """The runs of one queue that a worker may take, in order, as far as limits and room allow."""
    levels = _lanes(candidates, turn.key)
    chosen: list[Found] = []
    while levels and len(chosen) < room:
        run = _oldest(levels, load, worker) if turn.is_of_the_oldest else None
        run = run or _next(levels, load, worker)
        if run is None:
            break
        turn = turn.after(run.header.queue_key)
        load.add(run, worker)
        chosen.append(run)
    return chosen


def _lanes(candidates: Iterable[Found], after: str) -> Levels:
    """By priority, a lane for each key: the keys in a round that begins behind the last one."""
    levels: dict[int, dict[str, list[Found]]] = {}
    for run in {run.head.run_id: run for run in candidates}.values():
        lanes = levels.setdefault(run.header.priority, {})
        lanes.setdefault(run.header.queue_key, []).append(run)
    return {
        priority: deque(
            deque(sorted(lanes[key], key=_since))
            for key in sorted(lanes, key=lambda key: (key <= after, key))
        )
        for priority, lanes in levels.items()
    }


def _since(run: Found) -> int:
    return run.header.wake_at or 0


def _oldest(levels: Levels, load: Load, worker: str) -> Found | None:
    """The one that has waited longest, of those that may be taken."""
    lanes = [lane for level in levels.values() for lane in level if lane]
    for lane in sorted(lanes, key=lambda lane: _since(lane[0])):
        if load.admits(lane[0], worker):
            return lane.popleft()
    return None


def _next(levels: Levels, load: Load, worker: str) -> Found | None:
    for level in sorted(levels):
        lanes = levels[level]
        for _ in range(len(lanes)):
            lane = lanes.popleft()
            run = _first_admitted(lane, load, worker)
            if lane:
                lanes.append(lane)
            if run is not None:
                return run
        if not lanes:
            del levels[level]
    return None


def _first_admitted(lane: deque[Found], load: Load, worker: str) -> Found | None:
    """The first of a key that may be taken; what may not now is passed over."""
    while lane:
        run = lane.popleft()
        if load.admits(run, worker):
            return run
    return None
