"""Shared journals: anybody may append (R11). Read, decide, commit after the last event read; on a
conflict read on and decide again.

A ``SharedJournal`` is one process's view of one journal. It keeps the fold of what it has read, so
that an append is a single commit: the commit itself checks that the fold is up to date. All other
calls read on first.

A deleted journal may begin anew under its id. Its epoch is drawn at random when it begins and
distinguishes the two: a decision about the old one is never appended to the new one.

All methods run on a lane: they call a store and never suspend themselves. The holder of the turn
may begin an append on a loop's own thread; slow parts of it are done on the lane.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from outlive.errors import OutliveError, RunIdTaken, StoreUnavailable
from outlive.journal.codec.parts import with_values
from outlive.journal.codec.restore import is_stored, read_form, read_values
from outlive.journal.codec.values import Values
from outlive.journal.headers import brief_header, first_entry, key_header
from outlive.journal.lane import aside
from outlive.journal.reader import Chain
from outlive.journal.record import LINK_START, PARTED, pack
from outlive.model.events import Event, Marked, encode_events
from outlive.model.ids import OWN_PREFIX, digest
from outlive.model.kinds import KIND_BITS
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


F = TypeVar("F", bound=Fold)
#: Statements that write to tables beside a journal when these events are appended to it.
Rows: TypeAlias = Callable[
    ["SharedJournal[F]", F, Sequence[Event]], Coroutine[Any, Any, Sequence[Statement]]
]


class SharedJournal(Generic[F]):
    """One journal that anybody may append to."""

    def __init__(
        self,
        store: Store,
        journal: str,
        new: Callable[[], F],
        entropy: Callable[[int], bytes],
        rows: Rows[F] | None = None,
    ) -> None:
        self._rows = rows
        self.id, self.store = journal, store
        self._new, self._entropy = new, entropy
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        """Forget everything that is known of the journal."""
        self._fold: F = self._new()
        #: None: there is no journal, or it was not read yet.
        self._head: Head | None = None
        self._header: Header | None = None
        self._is_read = False
        self._values: Values | None = None

    async def look(self, view: Callable[[F], T]) -> T:
        """Return what this view makes of the journal as it is now; nothing mutable."""
        with self._lock:
            await self._read_on()
            return view(self._fold)

    async def append(self, decide: Callable[[F], Sequence[Event]], answer: Callable[[F], T]) -> T:
        """Append what ``decide`` returns, durably, and return ``answer`` of the new state.

        ``decide`` may be called several times. A refusal is only raised with an up-to-date state.

        Raises:
            StoreUnavailable: every attempt met a conflict.
        """
        with self._lock:
            return await self._append(decide, answer)

    def take_turn(self) -> bool:
        """Take the turn if it is free: then ``append_in_turn`` must follow."""
        return self._lock.acquire(blocking=False)

    async def append_in_turn(
        self, decide: Callable[[F], Sequence[Event]], answer: Callable[[F], T]
    ) -> T:
        """Like ``append``, for the holder of the turn, which ends with it."""
        try:
            return await self._append(decide, answer)
        finally:
            self._lock.release()

    async def _append(self, decide: Callable[[F], Sequence[Event]], answer: Callable[[F], T]) -> T:
        is_new = not self._is_read
        if is_new:
            await self._read_on()
        for _ in range(TRIES_MAX):
            events = self._decided(decide, is_certain=is_new)
            if events is not None and (not events or await self._commit(events)):
                return answer(self._fold)
            await self._read_on()
            is_new = True
        raise StoreUnavailable(f"{self.id} is changed by others all the time; try again")

    def _decided(
        self, decide: Callable[[F], Sequence[Event]], *, is_certain: bool
    ) -> Sequence[Event] | None:
        """None: it would do nothing or refuse, but its state may be out of date."""
        try:
            events = decide(self._fold)
        except OutliveError:
            if is_certain:
                raise
            return None
        return events if events or is_certain else None

    async def delete(self) -> bool:
        """Delete the journal as it is known here, if it has ended; False: it was continued."""
        with self._lock:
            head = self._head
            if head is None:
                return False
            self._forget()
            gone = Deletion(run_id=self.id, seq=head.seq, digest=b"", keep_until=0)
            (is_gone,) = await self.store.delete([gone])
            return is_gone

    async def values(self, places: Sequence[tuple[int, bytes]]) -> list[bytes]:
        """Restore values from their recorded form, each with the seq of its event.

        Raises:
            CorruptRecord: a part of one is missing or damaged.
        """
        family = "" if self._header is None else self._header.family
        return await read_values(self.store, family, self.id, places)

    # reading

    async def _read_on(self) -> None:
        try:
            await aside()
            reading = await self._read()
            if reading is not None:
                self._follow(reading)
        except BaseException:
            self._forget()
            raise
        self._is_read = True

    async def _read(self) -> Reading | None:
        """Read what is new; from the start, where the journal was deleted and began anew."""
        seq = 0 if self._head is None else self._head.seq
        reading = await self.store.read(self.id, seq)
        if reading is None or not self._is_continued(reading.head):
            self._forget()
            reading = None if reading is None else await self.store.read(self.id)
        return reading

    def _is_continued(self, head: Head) -> bool:
        known = self._head
        return known is None or (head.epoch == known.epoch and head.seq >= known.seq)

    def _follow(self, reading: Reading) -> None:
        known = self._head
        seq, link = (0, LINK_START) if known is None else (known.seq, known.link)
        chain = Chain(self.id, seq + 1, link)
        events = chain.follow(reading.records)
        chain.check_end(reading.head)
        for event in events:
            self._fold.apply(event)
        self._head, self._header = reading.head, reading.header

    # appending

    async def _commit(self, events: Sequence[Event]) -> bool:
        """Whether the events were committed; then they are durable."""
        try:
            values = await self._values_at_hand()
            entry, written = self._entry(events, values)
            if self._rows is None:
                (conflict,) = await self._committed([entry])
            else:
                conflict = await self._commit_rows(entry, events, self._rows)
            if conflict is None:
                self._take_in(entry, written)
        except BaseException:
            self._forget()  # nobody knows what of it is stored
            raise
        if conflict is None:
            return True
        if conflict.gone:
            raise RunIdTaken(self.id, "it belonged to something that was deleted not long ago")
        self._values = None  # it counts on nodes that were not stored
        return False

    async def _commit_rows(
        self, entry: Entry, events: Sequence[Event], rows: Rows[F]
    ) -> Conflict | None:
        await aside()
        transactions = self.store.transactions
        assert transactions is not None, "checked when the table was made"
        return await transactions.commit_with(entry, await rows(self, self._fold, events))

    async def _committed(self, batch: Sequence[Entry]) -> Sequence[Conflict | None]:
        """As the store's ``commit``: at once, if it can; else aside."""
        answers = await self.store.commit(batch, wait=False)
        if answers is None:
            await aside()
            answers = await self.store.commit(batch)
        return answers

    async def _values_at_hand(self) -> Values:
        if self._values is None:
            self._values = Values(short=_FORM_SHORT)
            header, last = self._header, self._fold.last_value
            await aside()
            form = None if header is None else await read_form(self.store, header.family, last)
            if form is not None:
                self._values.lean_on(*form)
        return self._values

    def _entry(self, events: Sequence[Event], values: Values) -> tuple[Entry, list[Event]]:
        writing = _Writing(values)
        written = [with_values(event, writing.stored) for event in events]
        header = brief_header(self._fold.brief_with(written))
        head = self._head or Head(run_id=self.id, seq=0, epoch=self._new_epoch(), link=LINK_START)
        kinds = 0
        for event in written:
            kinds |= KIND_BITS[type(event)]
        nodes = values.take_nodes()
        record, link = pack(
            self.id,
            prev=head.link,
            epoch=head.epoch,
            seq=head.seq + 1,
            kinds=kinds,
            body=encode_events(written),
            flags=PARTED if writing.is_parted else 0,
        )
        entry = Entry(
            run_id=self.id,
            after=head.seq,
            last=head.seq + len(written),
            epoch=head.epoch,
            record=record,
            link=link,
            header=None if header == self._header else header,
            nodes=nodes,
        )
        return entry, written

    def _new_epoch(self) -> int:
        return 1 + int.from_bytes(self._entropy(4), "big") % _EPOCH_MAX

    def _take_in(self, entry: Entry, written: Sequence[Event]) -> None:
        for event in written:
            self._fold.apply(event)
        known = self._head or Head(run_id=self.id, seq=0, epoch=entry.epoch, link=LINK_START)
        self._head = replace(known, seq=entry.last, link=entry.link)
        self._header = entry.header or self._header


class _Writing:
    """The recorded form of the values of one record."""

    __slots__ = ("_values", "is_parted")

    def __init__(self, values: Values) -> None:
        self._values = values
        #: Whether any of them has parts that are nodes.
        self.is_parted = False

    def stored(self, raw: bytes) -> bytes:
        """The recorded form of a value; some have it already, taken over from another journal."""
        found = raw if is_stored(raw) else self._values.stored(raw)
        self.is_parted = self.is_parted or is_stored(found)
        return found


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
