"""Journals in this process's memory: the shortest store that keeps the seam's promises.

Nothing outlives the process, which is what tests and simulations want: the object *is* the disk,
so ``close`` keeps the data and the same object can be opened again by the next worker. Several
workers may share it; ``kill`` does to one of them what SIGKILL does to a real one.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import msgspec

from outlive.model.defaults import COUNTED_MAX, FIND_LIMIT, LEASE_SECONDS
from outlive.ports import Clock, Ports
from outlive.stores.liveness import Silence
from outlive.stores.plans import StartPlace, parse_cursor
from outlive.stores.queues import (
    Turns,
    crowded,
    is_gated,
)
from outlive.stores.rules import (
    MemoryQueues,
    follows,
    head_after,
    is_asked,
    is_wanted,
    repeats,
    seq_of,
)
from outlive.stores.seam import Watchable
from outlive.stores.shared import check_headers, check_together, parse_page
from outlive.stores.transactions import Transactional
from outlive.stores.types import (
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
            first = bisect_right(journal.records, after, key=seq_of)
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
        found = [
            (StartPlace(each.header.started_at, each.number), each) for each in self._asked(query)
        ]
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


def _due(journal: _Journal, standing: Mapping[str, Standing], now: int) -> bool:
    if journal.head.worker is not None:
        return standing.get(journal.head.worker, "alive") != "alive"
    wake_at = journal.header.wake_at
    return journal.waiting or (wake_at is not None and wake_at <= now)
