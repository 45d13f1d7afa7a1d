"""Limits of queues for the store in memory: which are set, what of a rate is spent, whose turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from outlive.store import DEFAULT_QUEUE, Found, QueueLimits, QueueState
from outlive.stores.gate import Load, Turn, first_slice_at, slice_at, spent_at


class MemoryQueues:
    """What the store knows of its queues beside their runs."""

    def __init__(self) -> None:
        self._limits: dict[str, QueueLimits] = {}
        #: By queue and the begin of a slice of time: units.
        self._spent: dict[str, dict[int, int]] = {}
        self._turns: dict[str, Turn] = {}

    def set(self, name: str, limits: QueueLimits, now: int, *, replace: bool) -> QueueLimits:
        """Put limits in force; answer with those that are."""
        before = self._limits.get(name)
        if before is not None and not replace:
            return before
        self._limits[name] = limits
        if before is not None and before.rate_ms != limits.rate_ms:
            # In slices of another length: as if all of it were spent now.
            spent = sum(self._spent.get(name, {}).values())
            self._spent[name] = {slice_at(limits, now): spent}
        return limits

    def find(self, name: str) -> QueueLimits | None:
        """The limits of a queue, if any are set."""
        return self._limits.get(name)

    def loads(self, queues: Iterable[str], held: Sequence[Found], now: int) -> dict[str, Load]:
        """What is taken of these queues, as far as they have limits."""
        return {queue: self._load(queue, held, now) for queue in queues if queue in self._limits}

    def _load(self, queue: str, held: Sequence[Found], now: int) -> Load:
        here = [run for run in held if run.header.queue == queue]
        limits = self._limits[queue]
        return Load(
            limits=limits,
            turn=self._turns.get(queue, Turn()),
            held=len(here),
            by_key=Counter(run.header.queue_key for run in here),
            by_worker=Counter(run.head.worker or "" for run in here),
            spent=spent_at(limits, self._spent.get(queue, {}), now),
            is_waited=True,
        )

    def take(self, queue: str, run: Found, worker: str, held: Sequence[Found], now: int) -> bool:
        """Whether the worker may take the run; then it counts as taken."""
        if queue not in self._limits:
            return True
        self._mend_clock(queue, now)
        load = self._load(queue, held, now)
        if not load.admits(run, worker):
            return False
        if run.head.worker is None:
            self._turns[queue] = load.turn.after(run.header.queue_key)
            if run.head.epoch == 0 and load.limits.rate is not None:
                self._spend(queue, load.cost(run.header.units), now)
        return True

    def _spend(self, queue: str, units: int, now: int) -> None:
        limits = self._limits[queue]
        kept = first_slice_at(limits, now)
        slices = {at: each for at, each in self._spent.get(queue, {}).items() if at >= kept}
        here = slice_at(limits, now)
        self._spent[queue] = slices | {here: slices.get(here, 0) + units}

    def _mend_clock(self, queue: str, now: int) -> None:
        """What was spent before the clock was set back counts as spent now."""
        here = slice_at(self._limits[queue], now)
        slices = self._spent.get(queue, {})
        ahead = sum(units for at, units in slices.items() if at > here)
        if ahead:
            past = {at: units for at, units in slices.items() if at <= here}
            self._spent[queue] = past | {here: past.get(here, 0) + ahead}

    def states(
        self, waiting: Collection[Found], held: Sequence[Found], now: int
    ) -> list[QueueState]:
        """All queues that have limits or runs."""
        names = {*self._limits, *(run.header.queue for run in (*waiting, *held))} - {DEFAULT_QUEUE}
        return [self._state(name, waiting, held, now) for name in sorted(names)]

    def _state(
        self, name: str, waiting: Collection[Found], held: Sequence[Found], now: int
    ) -> QueueState:
        limits = self._limits.get(name)
        here = [run for run in waiting if run.header.queue == name]
        return QueueState(
            name=name,
            limits=limits,
            waiting=len(here),
            held=sum(run.header.queue == name for run in held),
            spent=0 if limits is None else spent_at(limits, self._spent.get(name, {}), now),
            oldest_at=min((run.header.wake_at or now for run in here), default=None),
        )
