"""Reading a journal: every record is verified, in place, before it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from outlive.errors import CorruptRecord
from outlive.journal.codec.restore import Restorer
from outlive.journal.record import LINK_START, PARTED, open_record, unpack
from outlive.model.events import Event, decode_events
from outlive.stores.types import Head, Reading, StoredRecord


def read_events(reading: Reading, *, restored: bool = True) -> list[Event]:
    """All events of a journal that was read from its start, or from its last chapter on.

    Not ``restored`` they keep the recorded form of their values.

    Raises:
        CorruptRecord: a record is damaged, missing, foreign or out of place, or the journal does
            not end where its head says.
        WrongVersion: a record was written by a newer release.
    """
    base, link = begin_of(reading)
    chain = Chain(reading.head.run_id, base, link, reading.nodes if restored else None)
    events = chain.follow(reading.records)
    chain.check_end(reading.head)
    return events


def read_first(reading: Reading, *, restored: bool = True) -> Event:
    """The first event of a journal or of its last chapter, whatever else of it was read.

    Not ``restored`` it keeps the recorded form of its values: enough to compare digests.
    """
    base, link = begin_of(reading)
    chain = Chain(reading.head.run_id, base, link, reading.nodes if restored else None)
    events = chain.follow(reading.records[:1])
    if not events:
        raise CorruptRecord(reading.head.run_id, base, "it has no first event")
    return events[0]


class Chain:
    """The position up to which a journal was read: the next seq, and the link before it."""

    def __init__(
        self, run_id: str, seq: int, link: bytes, nodes: Mapping[bytes, bytes] | None = None
    ) -> None:
        self._run_id, self._seq, self._link = run_id, seq, link
        self._restorer = None if nodes is None else Restorer(run_id, nodes)

    def follow(self, records: Sequence[StoredRecord]) -> list[Event]:
        """The events of the next records, each verified and in its place."""
        run_id, seq, link = self._run_id, self._seq, self._link
        run, first, epoch = run_id.encode(), seq, 0
        events: list[Event] = []
        for record in records:
            if record.seq != seq:
                raise CorruptRecord(run_id, seq, f"the next record begins at seq {record.seq}")
            opened = open_record(run, link, record.body, seq)
            has_parts = opened is None
            if opened is None:
                envelope = unpack(run_id, link, record.body, seq)
                opened = envelope.epoch, envelope.link, envelope.body
                has_parts = bool(envelope.flags & PARTED)
            if opened[0] < epoch:
                raise CorruptRecord(run_id, seq, f"epoch {opened[0]} follows epoch {epoch}")
            epoch, link, body = opened
            try:
                found = decode_events(body)
            except (msgspec.DecodeError, RecursionError) as error:
                raise CorruptRecord(run_id, seq, f"its events can't be read: {error}") from None
            if has_parts and self._restorer is not None:
                found = [self._restorer.event(event, at) for at, event in enumerate(found, seq)]
            events += found
            seq = first + len(events)
        self._seq, self._link = seq, link
        return events

    @property
    def last(self) -> tuple[int, bytes]:
        """The seq of the last event that was read, and the link behind it."""
        return self._seq - 1, self._link

    def check_end(self, head: Head) -> None:
        """Check that the journal ends where its head says."""
        if self._seq != head.seq + 1 or self._link != head.link:
            found = f"the journal ends at seq {self._seq - 1}, its head at {head.seq}"
            raise CorruptRecord(self._run_id, self._seq, found)


def begin_of(reading: Reading) -> tuple[int, bytes]:
    """The seq that a reading must begin at, and the link that it must follow."""
    header = reading.header
    if header.chapter > 1 and reading.records and reading.records[0].seq == header.chapter:
        return header.chapter, header.chapter_link
    return 1, LINK_START


class Tail:
    """The position of one reader in one journal."""

    def __init__(self, after: Head | None = None) -> None:
        #: The seq of the last event that was read.
        self.seq = 0 if after is None else after.seq
        self._link = b"" if after is None else after.link

    def take(self, reading: Reading) -> list[Event]:
        """The events of a reading after ``seq``.

        Raises:
            CorruptRecord: it does not continue where the last one ended, or is damaged.
        """
        events = self._go_on(reading) if self.seq else read_events(reading)
        self.seq, self._link = reading.head.seq, reading.head.link
        return events

    def _go_on(self, reading: Reading) -> list[Event]:
        chain = Chain(reading.head.run_id, self.seq + 1, self._link, reading.nodes)
        events = chain.follow(reading.records)
        chain.check_end(reading.head)
        return events
