"""What travels over the seam: entries, heads, headers, mail, queries and the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec

from outlive.model.defaults import RATE_MS

#: What a commit does to the run's lease.
Lease = Literal["keep", "take", "free"]
#: What is thought of a worker: ``dead`` is certain, ``silent`` only supposed.
Standing = Literal["alive", "silent", "dead"]
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
#: Characters that a worker may say of itself.
ABOUT_CHARS_MAX = 16_000


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What can be asked of a run without reading its journal. Always rebuildable from it.

    Flow, family and start are those of the run's beginning, a version lasts for a chapter: a store
    may leave them as they are when a later header comes.
    """

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
    #: Of a run that failed: the exception's type and where it was raised.
    error: str = ""
    #: The newest published value per name, as JSON; empty: none.
    published: str = ""
    #: The questions that wait for an answer, as JSON (``journal/headers.py``); empty: none.
    questions: str = ""


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


#: What ``commit`` answers, an entry at a time: None (done) or a conflict.
Answers: TypeAlias = Sequence[Conflict | None]

#: A statement of SQL with its values, one for each "?". In place of {tables} the store puts what
#: its tables' names begin with, in place of {committed} a condition: the entry was not refused.
Statement = tuple[str, tuple[str | int | None, ...]]


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """Something posted to a run and not yet consumed."""

    mail_id: str
    body: bytes
    posted_at: int
    #: It came out of a seal that is bound to its run and id. Added by who opens; a store leaves it.
    is_sealed: bool = False
    #: Why it is not what somebody posted to this run. Added by who opens it; a store leaves it.
    refused: str = ""


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
    rate_ms: int = RATE_MS


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


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that beats, or that is silent and still holds runs."""

    worker: str
    #: Of its last beat, by the store's clock; None: it is not known any more.
    beat_at: int | None
    #: What it said of itself when it beat: text that a store keeps as it is.
    about: str = ""
    #: How many runs it holds.
    held: int = 0


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to find. Empty fields ask nothing; all that is asked must hold."""

    #: One status, or any of several.
    status: str | tuple[str, ...] | None = None
    flow: str | None = None
    version: str | None = None
    #: (name, value); ``tags`` has more of them.
    tag: tuple[str, str] | None = None
    tags: tuple[tuple[str, str], ...] = ()
    parent: str | None = None
    queue: str | None = None
    #: Who holds it.
    worker: str | None = None
    #: Only journals whose id starts with this. Runs have no prefix, keys have ``key/``.
    prefix: str | None = None
    #: The fingerprint of its error, as a header has it.
    error: str | None = None
    #: It waits for somebody's answer.
    is_asking: bool = False
    #: When it was started: at this instant or after it; before that one.
    started_since: int | None = None
    started_before: int | None = None
    #: Only what ended: at this instant or after it; before or at that one.
    ended_since: int | None = None
    ended_by: int | None = None
    #: Only runs, in the order of their starts, the newest first if so asked; pages may be short.
    #: Otherwise journals of all kinds, in the order of creation, in full pages.
    runs: bool = False
    newest: bool = False

    @property
    def statuses(self) -> tuple[str, ...]:
        """The statuses that are asked for; none: any."""
        if self.status is None:
            return ()
        return (self.status,) if isinstance(self.status, str) else self.status

    @property
    def all_tags(self) -> tuple[tuple[str, str], ...]:
        """The tags that a run must have."""
        return self.tags if self.tag is None else (self.tag, *self.tags)


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
    def error(self) -> str:
        """Of a run that failed: the exception's type, and where it was raised."""
        return self.header.error

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
    """A page of runs in the order that was asked for, and where the next one begins.

    It may be short, even empty, and yet not be the last one: only ``next`` tells.
    """

    items: Sequence[Found]
    next: str | None = None


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs there are, as far as they were counted."""

    value: int
    #: There may be more.
    is_capped: bool = False

    def __str__(self) -> str:
        return f"{self.value:,}+" if self.is_capped else f"{self.value:,}"


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Runs whose journals have grown, each as it is now, and where to look on."""

    items: Sequence[Found]
    next: str


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


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """An ended run that may go, as somebody saw it: it goes only if it still is so."""

    run_id: str
    #: Where it ended when it was looked at.
    seq: int
    #: What its tombstone says, and how long that stands.
    digest: bytes
    keep_until: int
