"""Limits of queues: set, declared by workers, listed.

The limits in the store apply to all workers. A worker that declares a queue sets its limits only
where the store has none; ``set_queue`` changes them, so that an old worker that restarts changes
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from outlive.app.reader import StoreReader
from outlive.errors import UsageError
from outlive.journal.lane import run_immediate
from outlive.model.defaults import RATE_MS
from outlive.model.events import RunStarted
from outlive.model.queues import Queue, check_queue_name
from outlive.stores.types import QueueLimits, QueueState

logger = logging.getLogger("outlive")


class Queues:
    """The queues of one store."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader

    async def set_queue(self, queue: Queue, *, replace: bool = True) -> None:
        """Set a queue's limits; without ``replace`` existing ones stay, with a warning."""
        self._reader.check_open()
        if not isinstance(queue, Queue):
            raise UsageError(
                f'{queue!r} is not a Queue; write outlive.Queue("models", concurrency=10)'
            )
        limits = limits_of(queue)
        held = await self._reader.lane(
            self._reader.store.set_queue(queue.name, limits, replace=replace)
        )
        if held != limits:
            logger.warning(
                "queue %s: the store's limits hold (%s), not those declared here (%s); "
                "`outlive set-queue` or app.set_queue(...) changes them",
                *(queue.name, render_limits(held), render_limits(limits)),
            )

    async def states(self) -> Sequence[QueueState]:
        """Every queue that has limits or runs."""
        self._reader.check_open()
        return await self._reader.lane(self._reader.store.queues())

    async def declare(self, queues: Iterable[Queue | str]) -> frozenset[str]:
        """Set the limits of these queues where the store has none; their names."""
        if isinstance(queues, (str, Queue)) or not isinstance(queues, Iterable):
            raise UsageError(f"queues={queues!r}: a worker takes a list of queues; write [...]")
        given = list(queues)
        for queue in given:
            if not isinstance(queue, Queue):
                check_queue_name(queue)
        declared = [queue for queue in given if isinstance(queue, Queue)]
        for queue in declared:
            await self.set_queue(queue, replace=False)
        return frozenset(queue.name if isinstance(queue, Queue) else queue for queue in given)

    async def check_units(self, start: RunStarted) -> None:
        """Refuse a run that alone needs more units than its queue's rate allows."""
        if _units(start) > 1:
            check_units(start, await self._reader.lane(self._reader.store.find_queue(start.queue)))

    def check_units_here(self, start: RunStarted) -> None:
        """``check_units`` on this thread."""
        if _units(start) > 1:
            check_units(start, run_immediate(self._reader.store.find_queue(start.queue)))


def check_units(start: RunStarted, limits: QueueLimits | None) -> None:
    """Check that the queue's rate has enough units for the run.

    Raises:
        UsageError: the run needs more units than the rate ever has.
    """
    units = _units(start)
    if limits is not None and limits.rate is not None and units > limits.rate:
        raise UsageError(
            f"units={units} is more than queue {start.queue!r} may ever spend "
            f"({render_limits(limits)}): split the work, or raise the queue's rate"
        )


def _units(start: RunStarted) -> int:
    return 1 if start.place is None else start.place.units


def limits_of(queue: Queue) -> QueueLimits:
    """The limits of a declared queue, as stores keep them."""
    rate = queue.rate
    return QueueLimits(
        concurrency=queue.concurrency,
        per_key=queue.per_key,
        per_worker=queue.per_worker,
        rate=None if rate is None else rate.units,
        rate_ms=RATE_MS if rate is None else round(rate.seconds * 1000),
    )


def render_limits(limits: QueueLimits | None) -> str:
    """Limits as one line of text."""
    if limits is None:
        return "no limits"
    counts = [
        (limits.concurrency, "at once"),
        (limits.per_key, "per key"),
        (limits.per_worker, "per worker"),
    ]
    parts = [f"{count} {what}" for count, what in counts if count is not None]
    if limits.rate is not None:
        parts.append(f"{limits.rate} units in {limits.rate_ms / 1000:g} s")
    return ", ".join(parts) or "no limits"
