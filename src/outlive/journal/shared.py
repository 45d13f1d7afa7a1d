"""Shared journals: anybody may append (R11). Read, decide, commit after the last event read; on a
conflict read on and decide again.

A ``SharedJournal`` is one process's view of one journal. It keeps the fold of what it has read, so
that an append is a single commit: the commit itself checks that the fold is up to date. All other
calls read on first.

A deleted journal may begin anew under its id. Its epoch is drawn at random when it begins and
distinguishes the two: a decision about the old one is never appended to the new one.

All methods run on a lane: they call a store and never suspend themselves. Appends of a process
share commits: see ``group.py``.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from outlive.errors import OutliveError, RunIdTaken, StoreUnavailable
from outlive.journal.codec.parts import Parted, with_values
from outlive.journal.codec.restore import is_stored, read_form, read_values
from outlive.journal.codec.values import Values
from outlive.journal.headers import brief_header, first_entry, key_header
from outlive.journal.lane import aside
from outlive.journal.reader import Chain
from outlive.journal.record import LINK_START, PARTED, pack
from outlive.model.events import Event, Marked, encode_events
from outlive.model.ids import OWN_PREFIX, digest
from outlive.model.kinds import KIND_BITS
from outlive.model.logs import LogAppended, LogDropped, LogNoted
from outlive.model.shared import Brief
from outlive.stores.seam import Store
from outlive.stores.types import (
    PAGE_MAX,
    Conflict,
    Deletion,
    Entry,
    Found,
    Head,
    Header,
    Query,
    Reading,
    Statement,
)

#: The number of conflicts that an append survives.
TRIES_MAX = 100
_EPOCH_MAX = 0x7FFF_FFFF
#: Forms up to this size stay in their record: a value that is saved repeatedly needs few nodes.
_FORM_SHORT = 256

T = TypeVar("T")


class Fold(Protocol):
    """The state of a journal, folded from its events. It gets values as they stand in records."""

    def apply(self, event: Any) -> None:
        """Apply one event."""
        ...

    def brief_with(self, events: Sequence[Any]) -> Brief:
        """Return the header's summary as it will be after these events."""
        ...

    @property
    def last_value(self) -> bytes:
        """The recorded form of a value that the next one may resemble; empty: none."""
        ...

    def mark(self) -> Any:
        """What ``go_back`` needs to bring this state back; None: it can't."""
        ...

    def go_back(self, mark: Any) -> None:
        """Be as at this mark again."""
        ...


F = TypeVar("F", bound=Fold)
#: Statements that write to tables beside a journal when these events are appended to it.
Rows: TypeAlias = Callable[
    ["SharedJournal[F]", F, Sequence[Event]], Coroutine[Any, Any, Sequence[Statement]]
]


class SharedJournal(Generic[F]):
    """One journal that anybody may append to.

    Whoever calls a method that is not a coroutine, or ``read_on`` or ``draft``, holds the ``lock``.
    """

    def __init__(
        self,
        store: Store,
        journal: str,
        new: Callable[[], F],
        entropy: Callable[[int], bytes],
        rows: Rows[F] | None = None,
    ) -> None:
        self.rows = rows
        self.id, self.store = journal, store
        self._new, self._entropy = new, entropy
        self.lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Forget everything that is known of the journal."""
        self.fold: F = self._new()
        #: None: there is no journal, or it was not read yet.
        self.head: Head | None = None
        #: The link of the last record, if it was written here.
        self._own_link = b""
        self._header: Header | None = None
        self.is_read = False
        self._values: Values | None = None
        #: By recorded form: values whose parts are about to be stored.
        self.pending: dict[bytes, bytes] = {}

    async def look(self, view: Callable[[F], T]) -> T:
        """Return what this view makes of the journal as it is now; nothing mutable."""
        with self.lock:
            await self.read_on()
            return view(self.fold)

    async def append(self, decide: Callable[[F], Sequence[Event]], answer: Callable[[F], T]) -> T:
        """Append what ``decide`` returns, by a commit of its own, and return ``answer`` of the new
        state.

        ``decide`` may be called several times. A refusal is only raised with an up-to-date state.

        Raises:
            StoreUnavailable: every attempt met a conflict.
        """
        with self.lock:
            is_new = not self.is_read
            if is_new:
                await self.read_on()
            for _ in range(TRIES_MAX):
                events = self._decided(decide, is_certain=is_new)
                if events is not None and (not events or await self._commit(events)):
                    return answer(self.fold)
                await self.read_on()
                is_new = True
            raise busy(self.id)

    def _decided(
        self, decide: Callable[[F], Sequence[Event]], *, is_certain: bool
    ) -> Sequence[Event] | None:
        """None: it would do nothing or refuse, but its state may be out of date."""
        try:
            events = decide(self.fold)
        except OutliveError:
            if is_certain:
                raise
            return None
        return events if events or is_certain else None

    async def delete(self) -> bool:
        """Delete the journal as it is known here, if it has ended; False: it was continued."""
        with self.lock:
            gone = self.deletion()
            if gone is None:
                return False
            self.forget()
            (is_gone,) = await self.store.delete([gone])
            return is_gone

    def deletion(self, keep_until: int = 0) -> Deletion | None:
        """The deletion of the journal as it is known here; None: nothing is known."""
        if self.head is None:
            return None
        return Deletion(run_id=self.id, seq=self.head.seq, digest=b"", keep_until=keep_until)

    async def values(self, places: Sequence[tuple[int, bytes]]) -> list[bytes]:
        """Restore values from their recorded form, each with the seq of its event.

        Raises:
            CorruptRecord: a part of one is missing or damaged.
        """
        family = "" if self._header is None else self._header.family
        pending = dict(self.pending)  # others append meanwhile
        stored = [place for place in places if place[1] not in pending]
        found = iter(await read_values(self.store, family, self.id, stored))
        return [pending[raw] if raw in pending else next(found) for _, raw in places]

    # reading

    async def read_on(self) -> None:
        """Read what was appended since, by anybody."""
        try:
            await aside()
            reading = await self._read()
            if reading is not None:
                self._follow(reading)
        except BaseException:
            self.forget()
            raise
        self.is_read = True

    def take_reading(self, reading: Reading | None) -> None:
        """Learn a journal of which nothing was known; None: there is none."""
        self.forget()
        try:
            if reading is not None:
                self._follow(reading)
        except BaseException:
            self.forget()
            raise
        self.is_read = True

    async def _read(self) -> Reading | None:
        """Read what is new; from the start, where the journal was deleted and began anew."""
        seq = 0 if self.head is None else self.head.seq
        reading = await self.store.read(self.id, seq)
        if reading is None or not self._is_continued(reading.head):
            self.forget()
            reading = None if reading is None else await self.store.read(self.id)
        return reading

    def _is_continued(self, head: Head) -> bool:
        known = self.head
        return known is None or (head.epoch == known.epoch and head.seq >= known.seq)

    def _follow(self, reading: Reading) -> None:
        known = self.head
        seq, link = (0, LINK_START) if known is None else (known.seq, known.link)
        chain = Chain(self.id, seq + 1, link)
        events = chain.follow(reading.records)
        chain.check_end(reading.head)
        for event in events:
            self.fold.apply(event)
        self.head, self._header = reading.head, reading.header

    # appending

    async def _commit(self, events: Sequence[Event]) -> bool:
        """Whether the events were committed; then they are durable."""
        try:
            draft = await self.draft()
            draft.add(events)
            entry = draft.entry()
            if self.rows is None:
                (conflict,) = await committed(self.store, [entry])
            else:
                conflict = await self._commit_rows(entry, events, self.rows)
            if conflict is None:
                draft.take_in(entry)
        except BaseException:
            self.forget()  # nobody knows what of it is stored
            raise
        if conflict is None:
            return True
        if conflict.gone:
            raise taken(self.id)
        draft.take_back()
        return False

    async def _commit_rows(
        self, entry: Entry, events: Sequence[Event], rows: Rows[F]
    ) -> Conflict | None:
        await aside()
        transactions = self.store.transactions
        assert transactions is not None, "checked when the table was made"
        return await transactions.commit_with(entry, await rows(self, self.fold, events))

    async def draft(self) -> Draft[F]:
        """Begin a record."""
        if self._values is None:
            self._values = Values(short=_FORM_SHORT)
            header, last = self._header, self.fold.last_value
            await aside()
            form = None if header is None else await read_form(self.store, header.family, last)
            if form is not None:
                self._values.lean_on(*form)
        return Draft(self, self._values)

    def next_head(self) -> Head:
        """The head that the next record follows."""
        return self.head or Head(run_id=self.id, seq=0, epoch=self._new_epoch(), link=LINK_START)

    def _new_epoch(self) -> int:
        return 1 + int.from_bytes(self._entropy(4), "big") % _EPOCH_MAX

    def signature(self) -> bytes | None:
        """What tells the next record from one that another writer would write alike.

        A store takes the same bytes at the same place for a repeat, and another's append would be
        lost. Behind a record of one's own nothing is needed: whoever else follows it has read it.
        A first record is told by its epoch.
        """
        if self.head is None or self.head.link == self._own_link:
            return None
        return self._entropy(_SIGNATURE_BYTES)

    def new_header(self, brief: Brief) -> Header | None:
        """The header, if it is another than before."""
        header = brief_header(brief)
        return None if header == self._header else header

    def moved(self, entry: Entry) -> None:
        """An entry was committed, and its events are in the fold."""
        known = self.head or Head(run_id=self.id, seq=0, epoch=entry.epoch, link=LINK_START)
        self.head = replace(known, seq=entry.last, link=entry.link)
        self._own_link = entry.link
        self._header = entry.header or self._header

    def forget_values(self) -> None:
        """What was stored last may lean on nodes that the store did not take."""
        self._values = None


async def committed(store: Store, batch: Sequence[Entry]) -> Sequence[Conflict | None]:
    """As the store's ``commit``: at once, if it can; else aside."""
    answers = await store.commit(batch, wait=False)
    if answers is None:
        await aside()
        answers = await store.commit(batch)
    return answers


def busy(journal: str) -> StoreUnavailable:
    """The error of an append that was never first."""
    return StoreUnavailable(f"{journal} is changed by others all the time; try again")


def taken(journal: str) -> RunIdTaken:
    """The error of an append to a journal whose tombstone stands."""
    return RunIdTaken(journal, "it belonged to something that was deleted not long ago")


#: Events that tell records of several writers apart.
SIGNED = (LogAppended, LogNoted, LogDropped)
_SIGNATURE_BYTES = 8


class Draft(Generic[F]):
    """A record that is about to be appended to one journal."""

    __slots__ = ("_brief", "_is_parted", "_journal", "_mark", "_values", "_written", "is_applied",
                 "size")  # fmt: skip

    def __init__(self, journal: SharedJournal[F], values: Values) -> None:
        self._journal, self._values = journal, values
        self._written: list[Event] = []
        self._brief: Brief | None = None
        self._is_parted = False
        self._mark: Any = None
        #: Whether the fold has its events already.
        self.is_applied = False
        #: Bytes of its values.
        self.size = 0

    def add(self, events: Sequence[Event], *, applies: bool = False) -> None:
        """Add these events; with ``applies`` also to the fold, for who decides next."""
        fold = self._journal.fold
        written = [with_values(event, self._stored) for event in events]
        self._brief = fold.brief_with(written)
        self._written += written
        if applies:
            if not self.is_applied:
                self.is_applied, self._mark = True, fold.mark()
            for event in written:
                fold.apply(event)

    def _stored(self, raw: bytes) -> bytes:
        """The recorded form of a value; some have it already, taken over from another journal."""
        found = raw if is_stored(raw) else self._values.stored(raw)
        if is_stored(found):
            self._is_parted = True
            if found is not raw:
                self._journal.pending[found] = raw
        leaves = raw.leaves.values() if type(raw) is Parted else ()
        self.size += len(raw) + sum(map(len, leaves))
        return found

    def entry(self) -> Entry:
        """The entry that commits it."""
        head, brief = self._journal.next_head(), self._brief
        assert brief is not None, "something was added"
        signature = self._journal.signature()
        if signature is not None and isinstance(self._written[0], SIGNED):
            self._written[0] = replace(self._written[0], writer=signature)
        kinds = 0
        for event in self._written:
            kinds |= KIND_BITS[type(event)]
        record, link = pack(
            self._journal.id,
            prev=head.link,
            epoch=head.epoch,
            seq=head.seq + 1,
            kinds=kinds,
            body=encode_events(self._written),
            flags=PARTED if self._is_parted else 0,
        )
        return Entry(
            run_id=self._journal.id,
            after=head.seq,
            last=head.seq + len(self._written),
            epoch=head.epoch,
            record=record,
            link=link,
            header=self._journal.new_header(brief),
            nodes=self._values.take_nodes(),
        )

    def take_in(self, entry: Entry) -> None:
        """It was committed."""
        if not self.is_applied:
            for event in self._written:
                self._journal.fold.apply(event)
        self._journal.moved(entry)
        self._journal.pending.clear()

    def take_back(self) -> None:
        """It was refused, and nothing of it is stored."""
        if self.is_applied and self._mark is None:
            self._journal.forget()
            return
        if self.is_applied:
            self._journal.fold.go_back(self._mark)
        self._journal.forget_values()
        self._journal.pending.clear()


TURNS = f"{OWN_PREFIX}turn/"
FORKS = f"{OWN_PREFIX}fork/"
ORPHANS = f"{OWN_PREFIX}orphan/"
#: Up to this number marks are listed rather than read one by one.
FEW_FORKS = 100


def turn_entry(number: int, worker: str, now: int) -> Entry:
    """The mark of a worker's turn to sweep: of those who ask for it, one gets it."""
    return _entry(f"{TURNS}{number}", Marked(now, worker))


def fork_mark(parent: str, fork: str) -> str:
    """The mark that keeps a run as long as its fork exists."""
    return f"{_forks_of(parent)}{digest(fork.encode()).hex()}"


def is_marked_for(journal: str, mark: Marked, parent: str | None) -> bool:
    """Whether a mark is about that run; marks that are not a fork's are about none."""
    if journal.startswith(FORKS):
        return parent is not None and journal == fork_mark(parent, mark.by)
    return parent is None


def _forks_of(parent: str) -> str:
    return f"{FORKS}{digest(parent.encode()).hex()}/"


def fork_entry(parent: str, fork: str, now: int) -> Entry:
    """Mark a run as forked, before it is."""
    return _entry(fork_mark(parent, fork), Marked(now, fork), parent)


def orphan_entry(family: str, now: int) -> Entry:
    """Mark a family that has nodes and no run; return since when it was marked."""
    return _entry(f"{ORPHANS}{digest(family.encode()).hex()}", Marked(now, family))


def _entry(journal: str, event: Marked, parent: str | None = None) -> Entry:
    header = key_header(status="mark", ended_at=event.at, parent=parent)
    return first_entry(journal, event, header)


async def find_marks(store: Store, prefix: str, ended_by: int | None) -> AsyncIterator[Found]:
    """List the marks."""
    after = None
    while True:
        page = await store.find(Query(prefix=prefix, ended_by=ended_by), after, PAGE_MAX)
        for found in page.items:
            yield found
        after = page.next
        if after is None:
            return


async def forked_among(store: Store, run_ids: Collection[str]) -> set[str]:
    """The runs that a fork shares events with. Where forks are few, one query finds all."""
    page = await store.find(Query(prefix=FORKS), None, FEW_FORKS)
    if page.next is None:
        return {found.header.parent or "" for found in page.items}.intersection(run_ids)
    forks = {name: await store.find(Query(prefix=_forks_of(name)), None, 1) for name in run_ids}
    return {name for name, found in forks.items() if found.items}


async def drop_mark(store: Store, mark: str, keep_until: int) -> None:
    """It is not needed any more; till then nobody can make it anew."""
    await store.delete([Deletion(run_id=mark, seq=1, digest=b"", keep_until=keep_until)])
