"""The seam's rules over plain objects: who is asked for, the fence, the limits of queues."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec

from outlive.stores.queues import Load, Turn, first_slice_at, slice_at, spent_at
from outlive.stores.shared import has_tags
from outlive.stores.types import (
    DEFAULT_QUEUE,
    Entry,
    Found,
    Head,
    Header,
    Query,
    QueueLimits,
    QueueState,
    StoredRecord,
    Wanted,
)


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


def is_asked(query: Query, run_id: str, header: Header) -> bool:
    """Whether a query asks for this run."""
    return (
        (not query.statuses or header.status in query.statuses)
        and query.flow in (None, header.flow)
        and query.version in (None, header.version)
        and query.parent in (None, header.parent)
        and query.queue in (None, header.queue)
        and (not query.error or header.error == query.error)
        and (not query.is_asking or header.questions != "")
        and has_tags(query, header.tags)
        and run_id.startswith(query.prefix or "")
        and _is_within(query.started_since, header.started_at, query.started_before, is_open=True)
        and _is_within(query.ended_since, header.ended_at, query.ended_by, is_open=False)
        and (not query.runs or header.flow != "")
    )


def _is_within(since: int | None, at: int | None, until: int | None, *, is_open: bool) -> bool:
    """Whether an instant is between two; ``is_open``: the last one is not among them."""
    if since is None and until is None:
        return True
    if at is None or (since is not None and at < since):
        return False
    return until is None or at < until or (at == until and not is_open)


def is_wanted(wanted: Wanted, run_id: str, header: Header) -> bool:
    """Whether a worker is able and willing to drive this run."""
    return (
        header.version in wanted.flows.get(header.flow, ())
        and header.format <= wanted.format
        and (wanted.run_ids is None or run_id in wanted.run_ids)
        and _is_in_queues(wanted, header)
    )


def _is_in_queues(wanted: Wanted, header: Header) -> bool:
    if header.queue == DEFAULT_QUEUE:
        return wanted.takes_unqueued(header.flow)
    return wanted.queues is None or header.queue in wanted.queues


def follows(head: Head, entry: Entry) -> bool:
    """The fence: the entry continues this very head, in its epoch (or takes the next one)."""
    epoch = entry.epoch - 1 if entry.lease == "take" else entry.epoch
    return head.seq == entry.after and head.epoch == epoch


def repeats(head: Head, records: Sequence[StoredRecord], entry: Entry) -> bool:
    """The entry was done before, and nobody took the run over since."""
    if head.epoch != entry.epoch or head.seq < entry.last:
        return False
    if entry.lease == "take" and head.worker not in (None, entry.worker):
        return False
    at = bisect_right(records, entry.after, key=seq_of)
    found = records[at] if at < len(records) else None
    return found == StoredRecord(entry.after + 1, entry.record)


def head_after(head: Head, entry: Entry, consumed: int) -> Head:
    """The head once the entry is in."""
    ended = entry.header is not None and entry.header.ended_at is not None
    worker = entry.worker if entry.lease == "take" else head.worker
    return msgspec.structs.replace(
        head,
        seq=entry.last,
        epoch=entry.epoch,
        link=entry.link,
        worker=None if ended or entry.lease == "free" else worker,
        consumed=head.consumed + consumed,
    )


def seq_of(record: StoredRecord) -> int:
    """By what records are ordered."""
    return record.seq
