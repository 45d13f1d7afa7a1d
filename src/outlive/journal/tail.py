"""Reading a journal on: what was added since the last look, verified where that one ended."""

from __future__ import annotations

from outlive.journal.reader import Chain, read_events
from outlive.model.events import Event
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
        chain = Chain(reading.head.run_id, self.seq + 1, self._link, reading.nodes)
        events = chain.follow(reading.records)
        chain.check_end(reading.head)
        return events
