"""Verification of a journal: every record, every link, the head, the header.

Unlike a driver, which refuses a journal at its first fault, this continues after one and finds the
others. After a damaged record the chain can't be followed, so the next record is checked on its
own (its digest, its seq) and the chain is continued from there.

It can't detect a journal that was cut back together with its head. Only somebody who recorded the
head's link elsewhere can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from outlive.envelope import disclose_outcome
from outlive.errors import CorruptRecord, StoreError
from outlive.journal.codec.restore import Restorer
from outlive.journal.headers import UNKNOWN_QUESTIONS, header_of
from outlive.journal.mail import Unreadable, mail_ids, read_letter
from outlive.journal.reader import begin_of
from outlive.journal.record import (
    ENVELOPE_BYTES,
    PARTED,
    Envelope,
    unpack,
    unpack_unlinked,
)
from outlive.journal.shared import is_marked_for
from outlive.model.events import (
    ChapterBegan,
    Claimed,
    EffectIntended,
    Event,
    MailRead,
    decode_events,
)
from outlive.model.run import Run, fold
from outlive.stores.transactions import KeptOutcome
from outlive.stores.types import Header, Reading, StoredRecord

_LINK_BYTES = 16


#: What headers have that an earlier release wrote, whatever the journal says.
_OF_EARLIER_RELEASES = (("error", ""), ("questions", UNKNOWN_QUESTIONS))


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A deviation from what was written."""

    #: None: the store itself.
    run: str | None
    #: None: it can't be told.
    seq: int | None
    why: str


@dataclass(slots=True)
class Checked:
    """The content of a journal, and the damage found in it."""

    #: Events before the first damage.
    events: list[Event] = field(default_factory=list)
    records: int = 0
    damage: list[Damage] = field(default_factory=list)
    #: Damaged mail: it waits and can't be read, or was set aside.
    mail: list[Damage] = field(default_factory=list)

    @property
    def all(self) -> list[Damage]:
        """All damage."""
        return self.damage + self.mail


def check_journal(reading: Reading) -> Checked:
    """Check a journal that was read as far back as it goes."""
    return _Check(reading).result


class _Check:
    """One walk over one journal."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._run_id = reading.head.run_id
        self._restorer = Restorer(self._run_id, reading.nodes)
        self.result = Checked(records=len(reading.records))
        self._seq, self._link = begin_of(reading)
        self._epoch = 0
        #: The link before the last chapter.
        self._chapter_link = b"" if self._seq == 1 else self._link
        #: Whether the last record was whole and in its place.
        self._follows = True
        for record in reading.records:
            self._record(record)
        if self._follows:
            self._end()
        if not self.result.damage:
            self._header(fold_or_none(self.result.events))
        self._mail()

    def _report_mail(self, seq: int, why: str) -> None:
        self.result.mail.append(Damage(run=self._run_id, seq=seq, why=why))

    def _report(self, seq: int, why: str) -> None:
        self.result.damage.append(Damage(run=self._run_id, seq=seq, why=why))

    def _record(self, record: StoredRecord) -> None:
        if record.seq < self._seq:
            self._report(record.seq, "out of order: there is a record at this place already")
            return
        if record.seq != self._seq and self._follows:
            self._missing(record.seq)
        try:
            envelope = self._open(record)
            events = decode_events(envelope.body)
            if envelope.flags & PARTED:
                events = [
                    self._restorer.event(event, seq) for seq, event in enumerate(events, record.seq)
                ]
        except (StoreError, msgspec.MsgspecError, RecursionError) as error:
            self._damaged(record, error)
            return
        if envelope.epoch < self._epoch:
            self._report(record.seq, f"epoch {envelope.epoch} follows epoch {self._epoch}")
        if not self.result.damage:
            self.result.events += events
        if events and isinstance(events[0], ChapterBegan):
            self._chapter_link = self._link
        self._link, self._epoch = envelope.link, envelope.epoch
        self._seq, self._follows = record.seq + len(events), True

    def _missing(self, found: int) -> None:
        self._report(self._seq, f"missing: the next record begins at seq {found}")
        self._follows = False

    def _open(self, record: StoredRecord) -> Envelope:
        body = record.body
        if not isinstance(body, bytes):
            raise CorruptRecord(self._run_id, record.seq, "it is not bytes")
        try:
            return unpack(self._run_id, self._link, body, record.seq)
        except CorruptRecord:
            if self._follows or len(body) < ENVELOPE_BYTES:
                raise
        return unpack_unlinked(self._run_id, body, record.seq)

    def _damaged(self, record: StoredRecord, error: Exception) -> None:
        why = error.why if isinstance(error, CorruptRecord) else str(error)
        self._report(record.seq, why)
        self._link = _stored_link(record.body)
        self._seq, self._follows = record.seq + 1, False

    def _end(self) -> None:
        """Check that the journal ends where its head says."""
        head = self._reading.head
        last = self._seq - 1
        if last != head.seq:
            what = "records are missing" if last < head.seq else "records are too many"
            why = f"{what}: the journal ends at seq {last}, its head at {head.seq}"
            self._report(min(last, head.seq) + 1, why)
        elif self._link != head.link:
            self._report(max(1, last), "its link is not the head's")
        elif self._epoch != head.epoch:
            self._report(last, f"its epoch is {self._epoch}, the head's {head.epoch}")

    def _header(self, run: Run | None) -> None:
        """Compare the run's header in the store with its journal."""
        if run is None:
            self._report(1, "its events contradict one another")
            return
        self._lease()
        told, shown = self._told(run), self._reading.header
        wrong = [
            f"{name} is {getattr(shown, name)!r}, the journal says {getattr(told, name)!r}"
            for name in Header.__struct_fields__
            if getattr(told, name) != getattr(shown, name)
            and (name, getattr(shown, name)) not in _OF_EARLIER_RELEASES
        ]
        if wrong:
            self._report(self._reading.head.seq, f"its header is wrong: {'; '.join(wrong)}")

    def _lease(self) -> None:
        """Check that the holder of the run has claimed it."""
        claims = [event.worker for event in self.result.events if isinstance(event, Claimed)]
        holder = self._reading.head.worker
        if holder is not None and claims and claims[-1] != holder:
            why = f"its lease is held by worker {holder!r}, who did not claim it"
            self._report(self._reading.head.seq, f"{why}: worker {claims[-1]!r} did")

    def _told(self, run: Run) -> Header:
        told = header_of(run, self._chapter_link)
        if run.marked is None:
            return told
        # A mark's run is in its id, which can be compared, but not read.
        shown = self._reading.header.parent
        fits = is_marked_for(self._run_id, run.marked, shown)
        return msgspec.structs.replace(told, parent=shown if fits else "another, by its id")

    def _mail(self) -> None:
        """Check the mail: complete and readable."""
        head, waiting = self._reading.head, self._reading.mail
        if head.posted - head.consumed != len(waiting):
            counts = f"{head.posted} posted, {head.consumed} consumed, {len(waiting)} waiting"
            self._report_mail(head.seq, f"its mail is not complete: {counts}")
        read = set(mail_ids(self.result.events))
        for mail in waiting:
            letter = read_letter(self._run_id, mail)
            if isinstance(letter, Unreadable):
                self._report_mail(head.seq, f"mail {mail.mail_id!r} can't be read: {letter.why}")
            elif mail.mail_id in read:
                self._report_mail(
                    head.seq, f"mail {mail.mail_id!r} was read before: it was put back"
                )
        for seq, event in enumerate(self.result.events, begin_of(self._reading)[0]):
            if isinstance(event, MailRead) and event.unreadable is not None:
                self._report_mail(seq, f"mail {event.mail_id!r} was kept aside: {event.why}")


def check_outcomes(
    reading: Reading, events: Sequence[Event], kept: Sequence[KeptOutcome]
) -> list[Damage]:
    """Check outcomes of transactional steps that wait beside a journal."""
    run_id, begin = reading.head.run_id, begin_of(reading)[0]
    intents = {
        (event.step, seq)
        for seq, event in enumerate(events, begin)
        if isinstance(event, EffectIntended)
    }
    damage: list[Damage] = []
    for each in kept:
        found = disclose_outcome(run_id, each.step, each.body)
        if found is None:
            why = f"the outcome of {each.step} beside it can't be read: damaged, moved or forged"
        elif found[0] and (each.step, found[0]) not in intents:  # 0: before attempts were in it
            why = f"the outcome of {each.step} beside it is of no attempt that its journal has"
        else:
            continue
        damage.append(Damage(run=run_id, seq=None, why=why))
    return damage


def _stored_link(body: object) -> bytes:
    """The link that a damaged record says it has."""
    return body[ENVELOPE_BYTES - _LINK_BYTES : ENVELOPE_BYTES] if isinstance(body, bytes) else b""


def fold_or_none(events: list[Event]) -> Run | None:
    """The state, unless the events contradict one another."""
    try:
        return fold(events)
    except (AssertionError, LookupError):
        return None
