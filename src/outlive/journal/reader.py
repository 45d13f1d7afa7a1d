"""Reading a journal back: every record verified, in place, before anything is believed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outlive.errors import CorruptRecord
from outlive.journal.record import LINK_START, unpack
from outlive.model.events import Event, decode_events
from outlive.store import Reading


def read_events(reading: Reading) -> list[Event]:
    """All events of a journal that was read from its start, or from its last chapter on.

    Raises:
        CorruptRecord: a record is damaged, missing, foreign or out of place, or the journal does
            not end where its head says.
        WrongVersion: a record was written by a newer release.
    """
    head = reading.head
    run_id = head.run_id
    events: list[Event] = []
    base, link = begin_of(reading)
    epoch = 0
    for record in reading.records:
        seq = base + len(events)
        if record.seq != seq:
            raise CorruptRecord(run_id, seq, f"the next record begins at seq {record.seq}")
        envelope = unpack(run_id, link, record.body, seq)
        if envelope.epoch < epoch:
            raise CorruptRecord(run_id, seq, f"epoch {envelope.epoch} follows epoch {epoch}")
        link, epoch = envelope.link, envelope.epoch
        events += _decode(run_id, seq, envelope.body)
    last = base + len(events) - 1
    if last != head.seq or link != head.link:
        found = f"the journal ends at seq {last}, its head at {head.seq}"
        raise CorruptRecord(run_id, last + 1, found)
    return events


def begin_of(reading: Reading) -> tuple[int, bytes]:
    """The seq that a reading must begin at, and the link that it must follow."""
    header = reading.header
    if header.chapter > 1 and reading.records and reading.records[0].seq == header.chapter:
        return header.chapter, header.chapter_link
    return 1, LINK_START


def _decode(run_id: str, seq: int, body: bytes) -> Sequence[Event]:
    try:
        return decode_events(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CorruptRecord(run_id, seq, f"its events can't be read: {error}") from None
