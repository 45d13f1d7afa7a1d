"""The seam: what Outlive asks of storage. A dozen verbs, and it never reads a record.

A store keeps *journals*: an ordered pile of opaque records per run, with one *head* (last seq,
epoch, link of the last record, lease holder, mail counters) and a small queryable *header*.
Beside them mail, nodes (content-addressed bytes of a family) and tombstones.

The life of a journal, in the verbs below:

1. ``commit`` an entry with ``after=0`` creates it. A driven run's first entry also takes the lease.
2. Its driver commits entries that follow the head's seq *and* carry the head's epoch. One atomic
   check, at one place: that is the fence.
3. Others ``post`` mail; the driver turns it into events and names it ``consumed`` in the commit.
4. The driver ``beat``s. When it is dead, or was silent for a lease, ``claim`` offers its runs.
   An offer is no lease yet: it is taken by committing an entry with ``lease=TAKE`` and the next
   epoch after the offer's seq, so that claiming is itself an append.
5. An entry with ``lease=FREE`` hands the run back (it waits, or it ended).

Where a queue has limits (``Queueing``), the commit that takes a lease is also where they are kept:
an entry that would exceed one is refused, and the head stays as it was.

Verbs are coroutines. Stores on local files never really suspend; those on a network do.
Failures: a commit that can't be made durable raises ``StoreFailed`` and acknowledges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal, Protocol, runtime_checkable

import msgspec

from outlive.ports import Clock, Ports

#: What a commit does to the run's lease.
Lease = Literal["keep", "take", "free"]
#: How ``post`` answers.
Posted = Literal["posted", "already", "ended", "moved", "unknown"]

#: Where to read from: the begin of the run's last chapter, as its header has it.
LAST_CHAPTER = -1

#: The status under which ``find`` lists a run whose header can't be read.
DAMAGED = "damaged"

#: The queue of runs that name none. It has no limits.
DEFAULT_QUEUE = "default"

#: Bounds of the seam, named in one place.
RECORD_BYTES_MAX = 256 * 1024 * 1024
MAIL_BYTES_MAX = 16 * 1024 * 1024
PAGE_MAX = 1000


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What can be asked of a run without reading its journal. Always rebuildable from it."""

    flow: str
    version: str
    format: int
    status: str
    family: str
    started_at: int  # ms since 1970 UTC, like every instant at the seam
    #: Due at this time when nobody holds the lease; None: only mail makes it due.
    wake_at: int | None = None
    #: Set when the run ended: nothing is due any more and mail is refused.
    ended_at: int | None = None
    queue: str = DEFAULT_QUEUE
    queue_key: str = ""
    #: Lower goes first.
    priority: int = 0
    #: What the run's first claim costs where a rate is limited.
    units: int = 1
    parent: str | None = None
    tags: Mapping[str, str] = {}
    reason: str = ""
    #: The seq at which the run's last chapter begins, and the link before it: who replays the run
    #: reads from there. 0: from the start.
    chapter: int = 0
    chapter_link: bytes = b""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Where a journal ends and who may extend it."""

    run_id: str
    seq: int
    epoch: int
    link: bytes
    #: The worker that holds the lease, if any.
    worker: str | None = None
    posted: int = 0
    consumed: int = 0


class Node(msgspec.Struct, frozen=True):
    """Content-addressed bytes of a family."""

    address: bytes
    body: bytes


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One run's part of a commit: all or nothing."""

    run_id: str
    #: The head's seq that this entry must follow; 0 creates the journal.
    after: int
    #: The seq of the record's last event: the head's seq afterwards.
    last: int
    #: Must equal the head's epoch; with ``lease="take"`` it must be the next one.
    epoch: int
    record: bytes
    #: The record's link hash: the head's link afterwards.
    link: bytes
    #: None leaves the header as it is.
    header: Header | None = None
    lease: Lease = "keep"
    #: Who takes the lease, with ``lease="take"``.
    worker: str | None = None
    consumed: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    #: Of an entry that creates a journal: a run whose family it joins, and which must be there.
    joins: str | None = None


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that was refused, and what the store has instead (seq 0: nothing, as yet)."""

    seq: int
    epoch: int
    #: The id belonged to a run that was deleted; its tombstone stands.
    gone: bool = False


#: A statement of SQL with its values.
Statement = tuple[str, tuple[str | int | None, ...]]


@runtime_checkable
class Tabling(Protocol):
    """A store that can write rows of a table together with an entry: all of it or nothing."""

    async def commit_with(
        self, entry: Entry | None, statements: Sequence[Statement]
    ) -> Conflict | None:
        """Commit an entry, if it is not refused, with these statements."""
        ...


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """Something posted to a run and not yet consumed."""

    mail_id: str
    body: bytes
    posted_at: int
    #: It came out of a seal that is bound to its run and id. Added by who opens; a store leaves it.
    is_sealed: bool = False


class Posting(msgspec.Struct, frozen=True):
    """Mail on its way: to which run, under which id, what."""

    run_id: str
    mail_id: str
    body: bytes


class StoredRecord(msgspec.Struct, frozen=True):
    """A record as it came back: the seq of its first event, and its bytes."""

    seq: int
    body: bytes


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A journal from one point on, with its head, header and waiting mail, read at one instant."""

    head: Head
    header: Header
    records: Sequence[StoredRecord]
    mail: Sequence[Mail]
    #: By address: what the values of these records need. Added by who reads; a store leaves it.
    nodes: Mapping[bytes, bytes] = {}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is able and willing to drive."""

    #: flow -> versions; the empty mapping wants nothing.
    flows: Mapping[str, frozenset[str]]
    #: Newest record format that this worker reads.
    format: int
    #: Only these runs (None: any).
    run_ids: frozenset[str] | None = None
    #: Only runs of these queues (None: any).
    queues: frozenset[str] | None = None
    #: Of these flows also what is in no queue, whatever the queues are.
    unqueued: frozenset[str] = frozenset()

    def takes_unqueued(self, flow: str) -> bool:
        """Whether runs of this flow are wanted that are in no queue."""
        return self.queues is None or DEFAULT_QUEUE in self.queues or flow in self.unqueued


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A run that may be claimed by committing ``Claimed`` after this head."""

    head: Head
    header: Header
    #: The last holder's death is certain (its lock is free), not just supposed (it was silent).
    certain: bool


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to ``claim``."""

    offers: Sequence[Offer]
    #: Runs that this worker holds and that have mail waiting.
    mail: Sequence[str]
    #: The store's time at the look, and the earliest after it at which a wanted run gets due.
    now: int
    next_at: int | None = None
    #: Queues of which this worker holds runs, and in which others wait for their places.
    crowded: Sequence[str] = ()


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a queue may be held at once, and how fast it may begin. None: any."""

    concurrency: int | None = None
    #: Of those with the same key; runs without a key are not counted.
    per_key: int | None = None
    per_worker: int | None = None
    #: Units that first claims may spend within any ``rate_ms``.
    rate: int | None = None
    rate_ms: int = 60_000


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one instant."""

    name: str
    #: None: nobody ever set any.
    limits: QueueLimits | None
    #: Runs that are due and that nobody holds; those that workers hold.
    waiting: int
    held: int
    #: Units of the rate that are spent.
    spent: int = 0
    #: Since when the one that waits longest does.
    oldest_at: int | None = None


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to find. Empty fields ask nothing."""

    status: str | None = None
    flow: str | None = None
    #: (name, value)
    tag: tuple[str, str] | None = None
    #: Only journals whose id starts with this. Runs have no prefix, keys have ``key/``.
    prefix: str | None = None
    #: Only what ended, before or at this instant.
    ended_by: int | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a page, told from its header; ``head`` and ``header`` are what is stored."""

    head: Head
    header: Header

    @property
    def id(self) -> str:
        """The run's id."""
        return self.head.run_id

    @property
    def flow(self) -> str:
        """The name of its flow."""
        return self.header.flow

    @property
    def version(self) -> str:
        """The version of its flow."""
        return self.header.version

    @property
    def status(self) -> str:
        """Where it stands."""
        return self.header.status

    @property
    def reason(self) -> str:
        """Why it stands there, if there is something to say."""
        return self.header.reason

    @property
    def tags(self) -> Mapping[str, str]:
        """Its tags."""
        return self.header.tags

    @property
    def parent(self) -> str | None:
        """The run that called it."""
        return self.header.parent

    @property
    def worker(self) -> str | None:
        """Who drives it, if anybody does."""
        return self.head.worker

    @property
    def queue(self) -> str:
        """The queue in which it waits for a worker."""
        return self.header.queue

    @property
    def started_at(self) -> datetime:
        """When it was started."""
        return instant(self.header.started_at)

    @property
    def ended_at(self) -> datetime | None:
        """When it ended; None: it is under way."""
        return None if self.header.ended_at is None else instant(self.header.ended_at)

    @property
    def wake_at(self) -> datetime | None:
        """When it is due; None: it has ended, or only mail wakes it."""
        return None if self.header.wake_at is None else instant(self.header.wake_at)


def instant(milliseconds: int) -> datetime:
    """An instant of a header; what no calendar has is its end."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.max.replace(tzinfo=UTC)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs in the order in which they were created, and where the next one begins."""

    items: Sequence[Found]
    next: str | None = None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What a store says of itself."""

    store: str
    facts: Mapping[str, str]
    problems: Sequence[str] = ()


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a store acknowledged and does not have: what a process found out first."""

    #: The server's timeline on which it is missing.
    timeline: int
    run_id: str
    #: Up to where the run was stored, and where it ends now.
    known: int
    found: int


class Store(Protocol):
    """A pile of append-only journals. Never interprets a record."""

    @property
    def clock(self) -> Clock | None:
        """The clock by which all who share the store go; None: that of this machine.

        A server's clock is learned from answers that it gives anyway, to ``beat`` and ``claim``.
        """
        ...

    async def commit(self, batch: Sequence[Entry]) -> Sequence[Conflict | None]:
        """Make every entry durable with one flush; answer for each: None (done) or a conflict.

        All or nothing per entry; an entry that conflicts does not disturb the others. Entries of
        one run in one batch follow one another. A repeat of an entry that was done (same run,
        seq and record) is done again as long as the head still has its epoch.

        Raises:
            StoreFailed: nothing of the batch may be taken as durable.
        """
        ...

    async def read(
        self, run_id: str, after: int = 0, *, limit: int | None = None
    ) -> Reading | None:
        """Records whose first event comes after seq ``after``, and mail; None if no such run.

        ``LAST_CHAPTER`` reads from the record with which the run's last chapter begins; with a
        ``limit``, that many records at most.
        """
        ...

    async def post(self, run_id: str, mail_id: str, body: bytes) -> Posted:
        """Leave mail for a run, durably, unless mail of that id was posted ever before."""
        ...

    async def put_blob(self, family: str, node: Node) -> None:
        """Keep a node before any record names it (only streams need this)."""
        ...

    async def get_blobs(self, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """The nodes that there are among these."""
        ...

    async def drop_blobs(self, family: str, addresses: Sequence[bytes]) -> None:
        """Forget these nodes, whoever names them; those that are not there are no error."""
        ...

    async def find(self, query: Query, after: str | None = None, limit: int = 100) -> Page:
        """A page of runs, stable under concurrent writes: none twice, none skipped."""
        ...

    async def claim(self, worker: str, wanted: Wanted, limit: int) -> Claims:
        """Runs that are due and that no living worker holds, and own runs with mail."""
        ...

    async def beat(self, worker: str) -> int:
        """Say that this worker lives; return the store's time in ms. The first beat enlists it."""
        ...

    async def release(self, worker: str) -> None:
        """The worker is going: free every lease it holds and forget it."""
        ...

    async def delete(self, run_id: str, *, seq: int, digest: bytes, keep_until: int) -> bool:
        """Delete an ended run that still ends at ``seq``; leave a tombstone. False: it moved on."""
        ...

    async def health(self) -> Health:
        """Settings read back from the store, and what is wrong with them."""
        ...

    async def close(self) -> None:
        """Let go of files and connections. Closing twice is fine."""
        ...


@runtime_checkable
class Watchable(Protocol):
    """A store that can wake a worker, so that it need not wait for its next look."""

    def watch(self, worker: str, callback: Callable[[], object]) -> Callable[[], object]:
        """Call back, on any thread, when there may be something for this worker: mail, or due runs.

        A hint that may come late, in vain or never: who gets none still looks from time to time.
        Returns what ends it.
        """
        ...


@runtime_checkable
class Recoverable(Protocol):
    """A store that a failover or a restored backup may set back behind what it acknowledged."""

    async def loss(self) -> Loss | None:
        """What is known to be missing; nothing is driven until somebody accepts that."""
        ...

    async def accept_loss(self, timeline: int) -> bool:
        """Let the fleet go on without what is missing on this timeline; False: nothing is."""
        ...


@runtime_checkable
class Prompt(Protocol):
    """A store that keeps nobody waiting for longer than a moment, if asked to."""

    async def commit_at_once(self, batch: Sequence[Entry]) -> Sequence[Conflict | None] | None:
        """As ``commit``; None if that would take longer: somebody writes, or an answer is late.

        Then nobody knows what became of it until the same batch is given to ``commit``.
        """
        ...


@runtime_checkable
class Mailroom(Protocol):
    """A store that handles much mail at once better than one by one."""

    async def post_all(self, batch: Sequence[Posting]) -> Sequence[Posted]:
        """Each as ``post`` would, in this order, all with one flush."""
        ...

    async def mail_of(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mail]]:
        """What each of these runs has waiting, in the order of its posting; runs without: none."""
        ...


@runtime_checkable
class Queueing(Protocol):
    """A store that keeps limits of queues, in the commits that take leases.

    A run that waits takes nothing of its queue, one whose holder is gone still does. Offers of
    ``claim`` are fair: of one queue by priority, then by turns among its keys, but one of eight
    is the run that has waited longest; by turns among queues.
    """

    async def set_queue(self, name: str, limits: QueueLimits, *, replace: bool) -> QueueLimits:
        """Limits for all workers, from now on; unless ``replace``, only where none are set yet.

        What is held already stays held. Answers with the limits that hold.
        """
        ...

    async def find_queue(self, name: str) -> QueueLimits | None:
        """The limits of a queue, if any are set."""
        ...

    async def queues(self) -> Sequence[QueueState]:
        """Every queue that has limits or runs, by name; not the default one."""
        ...


def timed_by(store: Store, ports: Ports) -> Ports:
    """These ports, with the clock of the store's server if it has one."""
    return ports if store.clock is None else replace(ports, clock=store.clock)


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """An ended run that may go, as somebody saw it: it goes only if it still is so."""

    run_id: str
    #: Where it ended when it was looked at.
    seq: int
    #: What its tombstone says, and how long that stands.
    digest: bytes
    keep_until: int


@runtime_checkable
class Clearing(Protocol):
    """A store that handles many journals at once better than one by one."""

    async def read_all(self, run_ids: Sequence[str]) -> Mapping[str, Reading]:
        """These journals from their start, without mail; those that are not there are left out."""
        ...

    async def delete_all(self, batch: Sequence[Deletion]) -> Sequence[bool]:
        """Each as ``delete`` would, all or none of them durable, with one flush.

        One that moved on is answered False and does not disturb the others.
        """
        ...


async def read_all(store: Store, run_ids: Sequence[str]) -> Mapping[str, Reading]:
    """As ``Clearing`` has it, from any store."""
    if isinstance(store, Clearing):
        return await store.read_all(run_ids)
    readings = [await store.read(run_id) for run_id in run_ids]
    return {each.head.run_id: each for each in readings if each is not None}


async def delete_all(store: Store, batch: Sequence[Deletion]) -> Sequence[bool]:
    """As ``Clearing`` has it, from any store: at least each by itself is all or nothing."""
    if isinstance(store, Clearing):
        return await store.delete_all(batch)
    return [
        await store.delete(
            each.run_id, seq=each.seq, digest=each.digest, keep_until=each.keep_until
        )
        for each in batch
    ]


@runtime_checkable
class Collecting(Protocol):
    """A store whose nodes can be looked through by family."""

    async def families(self, after: str, limit: int) -> Sequence[str]:
        """Families that have nodes, in an order of their own: the next ones behind ``after``."""
        ...

    async def without_runs(self, families: Sequence[str]) -> Sequence[str]:
        """Those of these families that no run belongs to."""
        ...

    async def drop_family(self, family: str) -> bool:
        """Forget all nodes of a family; False, and nothing is forgotten, if it has a run."""
        ...
