"""Journals in this process's memory: the shortest store that keeps the seam's promises.

Nothing outlives the process, which is what tests and simulations want: the object *is* the disk,
so ``close`` keeps the data and the same object can be opened again by the next worker. Several
workers may share it; ``kill`` does to one of them what SIGKILL does to a real one.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import msgspec

from outlive.model.defaults import COUNTED_MAX, FIND_LIMIT, LEASE_SECONDS
from outlive.ports import Clock, Ports
from outlive.stores.liveness import Silence
from outlive.stores.plans import Cursor, parse_cursor
from outlive.stores.queues import (
    Load,
    Turn,
    Turns,
    crowded,
    first_slice_at,
    is_gated,
    slice_at,
    spent_at,
)
from outlive.stores.seam import Watchable
from outlive.stores.shared import check_headers, check_together, has_tags, parse_page
from outlive.stores.transactions import Transactional
from outlive.stores.types import (
    DEFAULT_QUEUE,
    LAST_CHAPTER,
    PAGE_MAX,
    Answers,
    Changes,
    Claims,
    Conflict,
    Count,
    Deletion,
    Entry,
    Found,
    Head,
    Header,
    Health,
    Mail,
    Node,
    Offer,
    Page,
    Posted,
    Posting,
    Query,
    QueueLimits,
    QueueState,
    Reading,
    Standing,
    StoredRecord,
    Wanted,
    WorkerState,
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


@dataclass(slots=True, kw_only=True)
class _Journal:
    number: int
    #: The number of its last record among those of all journals.
    moved: int = 0
    head: Head
    header: Header
    records: list[StoredRecord] = field(default_factory=list)
    #: None: consumed, but its id is remembered.
    mail: dict[str, Mail | None] = field(default_factory=dict)

    @property
    def found(self) -> Found:
        return Found(head=self.head, header=self.header)

    @property
    def waiting(self) -> bool:
        return self.head.posted != self.head.consumed

    def unread(self) -> list[Mail]:
        return [mail for mail in self.mail.values() if mail is not None]


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
    at = bisect_right(records, entry.after, key=_seq)
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


class MemoryStore:
    """A store whose disk is this object. Safe to use from several threads."""

    clock: Clock | None = None
    threads: int | None = None
    watchable: Watchable | None = None
    transactions: Transactional | None = None

    def __init__(self, *, ports: Ports | None = None, lease_seconds: float = LEASE_SECONDS) -> None:
        self._clock = (ports or Ports()).clock
        self._lock = threading.Lock()
        self._journals: dict[str, _Journal] = {}
        self._tombstones: dict[str, Deletion] = {}
        self._nodes: dict[str, dict[bytes, bytes]] = {}
        self._beats: dict[str, int] = {}
        #: By worker: when it beat last, and what it said of itself.
        self._about: dict[str, tuple[int, str]] = {}
        self._silence = Silence(self._clock, lease_seconds)
        self._created = self._moved = 0
        self._queues, self._turns = MemoryQueues(), Turns()

    # ------------------------------------------------------------------ journals

    @overload
    async def commit(self, batch: Sequence[Entry]) -> Answers: ...
    @overload
    async def commit(self, batch: Sequence[Entry], *, wait: bool) -> Answers | None: ...
    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Answers | None:
        check_headers(batch)
        with self._lock:
            refused: set[str] = set()
            answers: list[Conflict | None] = []
            for entry in batch:
                done = entry.run_id not in refused and self._commit_one(entry)
                answers.append(None if done else self._conflict(entry.run_id))
                if not done:
                    refused.add(entry.run_id)
            return answers

    async def commit_together(self, batch: Sequence[Entry]) -> Answers:
        check_together(batch)
        with self._lock:
            answers = [None if self._fits(x) else self._conflict(x.run_id) for x in batch]
            if not any(answers):
                for entry in batch:
                    self._commit_one(entry)
            return answers

    def _fits(self, entry: Entry) -> bool:
        """Whether it would be committed, or was before."""
        journal = self._journals.get(entry.run_id)
        if journal is None:
            return entry.after == 0 and self._is_free(entry)
        fits = follows(journal.head, entry)
        return fits or repeats(journal.head, journal.records, entry)

    def _is_free(self, entry: Entry) -> bool:
        """Whether a journal of that id may begin."""
        if entry.header is None or self._tombstone(entry.run_id) is not None:
            return False
        return entry.joins is None or entry.joins in self._journals

    def _commit_one(self, entry: Entry) -> bool:
        journal = self._journals.get(entry.run_id)
        if journal is None:
            return entry.after == 0 and self._create(entry)
        if follows(journal.head, entry):
            if is_gated(entry) and not self._passes(journal, entry.worker or ""):
                return False
            self._extend(journal, entry)
            return True
        return repeats(journal.head, journal.records, entry)

    def _passes(self, journal: _Journal, worker: str) -> bool:
        """Its queue has a place for the run, which is taken."""
        queue = journal.header.queue
        held = [other.found for other in self._journals.values() if other.head.worker is not None]
        return self._queues.take(queue, journal.found, worker, held, self._clock.now_ms())

    def _create(self, entry: Entry) -> bool:
        if entry.header is None or not self._is_free(entry):
            return False
        self._created += 1
        head = Head(run_id=entry.run_id, seq=0, epoch=0, link=b"")
        journal = _Journal(number=self._created, head=head, header=entry.header)
        self._extend(journal, entry)
        self._journals[entry.run_id] = journal
        return True

    def _extend(self, journal: _Journal, entry: Entry) -> None:
        consumed = 0
        for mail_id in entry.consumed:
            if journal.mail.get(mail_id) is not None:
                journal.mail[mail_id] = None
                consumed += 1
        self._moved += 1
        journal.moved = self._moved
        journal.records.append(StoredRecord(entry.after + 1, entry.record))
        journal.head = head_after(journal.head, entry, consumed)
        journal.header = entry.header or journal.header
        for node in entry.nodes:
            self._put(journal.header.family, node)

    def _conflict(self, run_id: str) -> Conflict:
        journal = self._journals.get(run_id)
        if journal is not None:
            return Conflict(seq=journal.head.seq, epoch=journal.head.epoch)
        gone = self._tombstone(run_id)
        return Conflict(seq=gone.seq if gone else 0, epoch=0, gone=gone is not None)

    def _tombstone(self, run_id: str) -> Deletion | None:
        stone = self._tombstones.get(run_id)
        return stone if stone and stone.keep_until > self._clock.now_ms() else None

    async def read(
        self, run_id: str, after: int = 0, *, limit: int | None = None
    ) -> Reading | None:
        with self._lock:
            journal = self._journals.get(run_id)
            if journal is None:
                return None
            if after == LAST_CHAPTER:
                after = max(0, journal.header.chapter - 1)
            first = bisect_right(journal.records, after, key=_seq)
            return Reading(
                head=journal.head,
                header=journal.header,
                records=journal.records[first:][:limit],
                mail=journal.unread(),
            )

    async def find(self, query: Query, after: str | None = None, limit: int = FIND_LIMIT) -> Page:
        size = max(1, min(limit, PAGE_MAX))
        if query.runs:
            return self._find_runs(query, after, size)
        begin = parse_page(after)
        found = [journal for journal in self._asked(query) if journal.number > begin]
        page = found[:size]
        following = str(page[-1].number) if len(found) > size else None
        return Page(items=[journal.found for journal in page], next=following)

    def _asked(self, query: Query) -> list[_Journal]:
        with self._lock:
            return [
                journal
                for journal in self._journals.values()
                if query.worker in (None, journal.head.worker)
                and is_asked(query, journal.head.run_id, journal.header)
            ]

    def _find_runs(self, query: Query, after: str | None, size: int) -> Page:
        begin = parse_cursor(after)
        found = [(Cursor(each.header.started_at, each.number), each) for each in self._asked(query)]
        found.sort(key=lambda each: each[0], reverse=query.newest)
        if begin is not None:
            found = [x for x in found if (x[0] < begin if query.newest else x[0] > begin)]
        page = found[:size]
        following = str(page[-1][0]) if len(found) > size else None
        return Page(items=[journal.found for _, journal in page], next=following)

    async def count(self, query: Query, most: int = COUNTED_MAX) -> Count:
        found = len(self._asked(msgspec.structs.replace(query, runs=True)))
        return Count(value=min(found, most), is_capped=found > most)

    async def changes(self, after: str | None = None, limit: int = FIND_LIMIT) -> Changes:
        if after is None:
            return Changes(items=(), next=str(self._moved))
        begin, size = parse_page(after), max(1, min(limit, PAGE_MAX))
        with self._lock:
            found = [each for each in self._journals.values() if each.moved > begin]
            found = sorted(found, key=lambda each: each.moved)[:size]
        following = found[-1].moved if found else begin
        return Changes(items=[x.found for x in found if x.header.flow], next=str(following))

    async def delete(self, batch: Sequence[Deletion]) -> Sequence[bool]:
        with self._lock:
            families: set[str] = set()
            answers = [self._delete(each, families) for each in batch]
            families -= {journal.header.family for journal in self._journals.values()}
            for family in families:
                self._nodes.pop(family, None)
            return answers

    def _delete(self, seen: Deletion, families: set[str]) -> bool:
        journal = self._journals.get(seen.run_id)
        if journal is None:
            stone = self._tombstones.get(seen.run_id)
            return stone is not None and (stone.seq, stone.digest) == (seen.seq, seen.digest)
        if journal.head.seq != seen.seq or journal.header.ended_at is None:
            return False
        del self._journals[seen.run_id]
        self._tombstones[seen.run_id] = seen
        families.add(journal.header.family)
        return True

    async def read_all(self, run_ids: Sequence[str]) -> Mapping[str, Reading]:
        there = [each for run_id in run_ids if (each := await self.read(run_id)) is not None]
        return {each.head.run_id: msgspec.structs.replace(each, mail=()) for each in there}

    # ------------------------------------------------------------------ mail and nodes

    async def post(self, batch: Sequence[Posting]) -> Sequence[Posted]:
        with self._lock:
            return [self._post(each.run_id, each.mail_id, each.body) for each in batch]

    def _post(self, run_id: str, mail_id: str, body: bytes) -> Posted:
        journal = self._journals.get(run_id)
        if journal is None:
            return "ended" if self._tombstone(run_id) else "unknown"
        if mail_id in journal.mail:
            return "already"
        if journal.header.ended_at is not None:
            return "ended"
        now = self._clock.now_ms()
        journal.mail[mail_id] = Mail(mail_id=mail_id, body=bytes(body), posted_at=now)
        journal.head = msgspec.structs.replace(journal.head, posted=journal.head.posted + 1)
        return "posted"

    async def mail_of(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mail]]:
        with self._lock:
            found = {run_id: self._journals.get(run_id) for run_id in run_ids}
            return {x: journal.unread() if journal else [] for x, journal in found.items()}

    async def put_blob(self, family: str, node: Node) -> None:
        with self._lock:
            self._put(family, node)

    def _put(self, family: str, node: Node) -> None:
        self._nodes.setdefault(family, {}).setdefault(node.address, node.body)

    async def get_blobs(self, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
        with self._lock:
            nodes = self._nodes.get(family, {})
            return {address: nodes[address] for address in addresses if address in nodes}

    async def drop_blobs(self, family: str, addresses: Sequence[bytes]) -> None:
        with self._lock:
            nodes = self._nodes.get(family, {})
            for address in addresses:
                nodes.pop(address, None)

    async def families(self, after: str, limit: int) -> Sequence[str]:
        with self._lock:
            return sorted(name for name in self._nodes if name > after)[:limit]

    async def without_runs(self, families: Sequence[str]) -> Sequence[str]:
        with self._lock:
            alive = {journal.header.family for journal in self._journals.values()}
            return [name for name in families if name not in alive]

    async def drop_family(self, family: str) -> bool:
        with self._lock:
            is_alive = any(each.header.family == family for each in self._journals.values())
            if not is_alive:
                self._nodes.pop(family, None)
            return not is_alive

    # ------------------------------------------------------------------ leases

    async def claim(self, worker: str, wanted: Wanted, limit: int) -> Claims:
        now = self._clock.now_ms()
        with self._lock:
            live = [j for j in self._journals.values() if j.header.ended_at is None]
            waking = [
                j.header.wake_at
                for j in live
                if j.head.worker is None
                and is_wanted(wanted, j.head.run_id, j.header)
                and j.header.wake_at is not None
            ]
            due, standing = self._due(worker, live, wanted)
            held = [j.found for j in live if j.head.worker is not None]
            loads = self._queues.loads({run.header.queue for run in due}, held, now)
            return Claims(
                crowded=crowded(loads, worker),
                offers=[
                    Offer(
                        head=run.head,
                        header=run.header,
                        certain=run.head.worker is None or standing[run.head.worker] == "dead",
                    )
                    for run in self._turns.arrange(due, loads, worker, max(0, limit))
                ],
                mail=[j.head.run_id for j in live if j.head.worker == worker and j.waiting],
                now=now,
                next_at=min((at for at in waking if at > now), default=None),
            )

    def _due(
        self, worker: str, live: Sequence[_Journal], wanted: Wanted
    ) -> tuple[list[Found], dict[str, Standing]]:
        """What may be claimed, but for limits; and what is thought of the holders."""
        now = self._clock.now_ms()
        holders = {j.head.worker for j in live} - {worker, None}
        standing = {holder: self._judge(holder) for holder in holders if holder is not None}
        return [
            j.found
            for j in live
            if is_wanted(wanted, j.head.run_id, j.header) and _due(j, standing, now)
        ], standing

    def _judge(self, holder: str) -> Standing:
        counter = self._beats.get(holder)
        return "dead" if counter is None else self._silence.judge(holder, counter)

    async def standing(self, holder: str | None) -> Standing:
        with self._lock:
            return "dead" if holder is None else self._judge(holder)

    async def beat(self, worker: str, about: str = "") -> int:
        with self._lock:
            self._beats[worker] = self._beats.get(worker, 0) + 1
            now = self._clock.now_ms()
            self._about[worker] = now, about
            return now

    async def workers(self) -> Sequence[WorkerState]:
        with self._lock:
            held = Counter(each.head.worker for each in self._journals.values())
            names = {*self._about, *(name for name in held if name is not None)}
            return [
                WorkerState(worker=name, beat_at=beat_at, about=about, held=held[name])
                for name in sorted(names)
                for beat_at, about in (self._about.get(name, (None, "")),)
            ]

    async def release(self, worker: str) -> None:
        with self._lock:
            for journal in self._journals.values():
                if journal.head.worker == worker:
                    journal.head = msgspec.structs.replace(journal.head, worker=None)
            self._forget(worker)

    def kill(self, worker: str) -> None:
        """What the kernel does for a worker that dies: its lock is free, its leases still stand."""
        with self._lock:
            self._forget(worker)

    def _forget(self, worker: str) -> None:
        self._beats.pop(worker, None)
        self._about.pop(worker, None)
        self._silence.forget(worker)

    # ------------------------------------------------------------------ queues

    async def set_queue(self, name: str, limits: QueueLimits, *, replace: bool) -> QueueLimits:
        with self._lock:
            return self._queues.set(name, limits, self._clock.now_ms(), replace=replace)

    async def find_queue(self, name: str) -> QueueLimits | None:
        with self._lock:
            return self._queues.find(name)

    async def queues(self) -> Sequence[QueueState]:
        now = self._clock.now_ms()
        with self._lock:
            live = [j for j in self._journals.values() if j.header.ended_at is None]
            waiting = [j.found for j in live if j.head.worker is None and _due(j, {}, now)]
            held = [j.found for j in live if j.head.worker is not None]
            return self._queues.states(waiting, held, now)

    # ------------------------------------------------------------------ the store itself

    async def health(self) -> Health:
        with self._lock:
            facts = {"runs": str(len(self._journals)), "durable": "no: gone with the process"}
            return Health(store="memory", facts=facts)

    async def loss(self) -> None:
        return None

    async def accept_loss(self, timeline: int) -> bool:
        return False

    async def close(self) -> None:
        """Keeps the data: the object is the disk."""


def _seq(record: StoredRecord) -> int:
    return record.seq


def _due(journal: _Journal, standing: Mapping[str, Standing], now: int) -> bool:
    if journal.head.worker is not None:
        return standing.get(journal.head.worker, "alive") != "alive"
    wake_at = journal.header.wake_at
    return journal.waiting or (wake_at is not None and wake_at <= now)
