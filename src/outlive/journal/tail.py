"""Reading a journal on: what was added since the last look, verified where that one ended."""

from __future__ import annotations

import msgspec

from outlive.errors import CorruptRecord
from outlive.journal.reader import read_events
from outlive.journal.record import unpack
from outlive.model.events import Event, decode_events
from outlive.store import Head, Reading


class Tail:
    """How far one reader has come in one journal."""

    def __init__(self, after: Head | None = None) -> None:
        #: The seq of the last event that was read.
        self.seq = 0 if after is None else after.seq
        self._link = b"" if after is None else after.link

    def take(self, reading: Reading) -> list[Event]:
        """The events of a reading after ``seq``.

        Raises:
            CorruptRecord: it does not go on where the last one ended, or is damaged.
        """
        events = self._go_on(reading) if self.seq else read_events(reading)
        self.seq, self._link = reading.head.seq, reading.head.link
        return events

    def _go_on(self, reading: Reading) -> list[Event]:
        run_id, seq, link = reading.head.run_id, self.seq, self._link
        events: list[Event] = []
        for record in reading.records:
            if record.seq != seq + 1:
                raise CorruptRecord(run_id, seq + 1, f"the next record begins at seq {record.seq}")
            envelope = unpack(run_id, link, record.body, record.seq)
            link = envelope.link
            found = _decode(run_id, record.seq, envelope.body)
            events += found
            seq += len(found)
        if seq != reading.head.seq or link != reading.head.link:
            found_end = f"the journal ends at seq {seq}, its head at {reading.head.seq}"
            raise CorruptRecord(run_id, seq + 1, found_end)
        return events


def _decode(run_id: str, seq: int, body: bytes) -> list[Event]:
    try:
        return decode_events(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CorruptRecord(run_id, seq, f"its events can't be read: {error}") from None
