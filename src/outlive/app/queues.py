"""Limits of queues, for those who set them and those who look at them.

The store's limits hold, for all workers alike. Code that declares a queue sets them where there are
none; changing them is a deed of its own, so that an old worker that comes back changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from outlive.app.reader import Looking
from outlive.errors import UsageError
from outlive.journal.lane import run_immediate
from outlive.model.defaults import RATE_MS
from outlive.model.events import RunStarted
from outlive.model.queues import Queue, check_queue_name
from outlive.stores.seam import Queueing
from outlive.stores.types import QueueLimits, QueueState

logger = logging.getLogger("outlive")


class QueueVerbs(Looking):
    """Verbs about queues."""

    async def set_queue(self, queue: Queue, *, replace: bool = True) -> None:
        """Let these limits hold for all workers, from now on; what was set before is gone.

        Without ``replace`` limits that are set stay, and a warning names both if they differ.
        """
        self._check_open()
        if not isinstance(queue, Queue):
            raise UsageError(
                f'{queue!r} is no queue with limits; write outlive.Queue("models", concurrency=10)'
            )
        limits = limits_of(queue)
        held = await self._lane(self._queueing().set_queue(queue.name, limits, replace=replace))
        if held != limits:
            logger.warning(
                "queue %s: the store's limits hold (%s), not those declared here (%s); "
                "`outlive set-queue` or app.set_queue(...) changes them",
                *(queue.name, render_limits(held), render_limits(limits)),
            )

    async def queues(self) -> Sequence[QueueState]:
        """Every queue that has limits or runs: how many wait, how many are held, since when."""
        self._check_open()
        return await self._lane(self._queueing().queues())

    async def _declare(self, queues: Iterable[Queue | str]) -> frozenset[str]:
        """The names of these; limits are set where there are none."""
        if isinstance(queues, (str, Queue)) or not isinstance(queues, Iterable):
            raise UsageError(f"queues={queues!r}: a worker is given a list of them; write [...]")
        given = list(queues)
        for queue in given:
            if not isinstance(queue, Queue):
                check_queue_name(queue)
        declared = [queue for queue in given if isinstance(queue, Queue)]
        for queue in declared:
            await self.set_queue(queue, replace=False)
        return frozenset(queue.name if isinstance(queue, Queue) else queue for queue in given)

    async def _check_place(self, start: RunStarted) -> None:
        """Whoever asks for a run that alone costs more than its queue's rate is told so."""
        if _units(start) > 1:
            check_units(start, await self._lane(self._queueing().find_queue(start.queue)))

    def _check_place_here(self, start: RunStarted) -> None:
        """The same, on this thread."""
        if _units(start) > 1:
            check_units(start, run_immediate(self._queueing().find_queue(start.queue)))

    def _queueing(self) -> Queueing:
        if isinstance(self.store, Queueing):
            return self.store
        raise UsageError(
            f"{type(self.store).__name__} keeps no limits of queues; "
            "sqlite://, postgresql:// and memory:// do"
        )


def check_units(start: RunStarted, limits: QueueLimits | None) -> None:
    """The queue's rate has units for the run.

    Raises:
        UsageError: not even if nothing else were spent.
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
    """A declared queue's limits, as stores have them."""
    rate = queue.rate
    return QueueLimits(
        concurrency=queue.concurrency,
        per_key=queue.per_key,
        per_worker=queue.per_worker,
        rate=None if rate is None else rate.units,
        rate_ms=RATE_MS if rate is None else round(rate.seconds * 1000),
    )


def render_limits(limits: QueueLimits | None) -> str:
    """Limits in a line."""
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
