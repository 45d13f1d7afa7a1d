"""A tape of everything that a store was given, and the store as it was at any point of it.

A cut is what a kill of everybody leaves behind: every deed up to it, none after it, workers that
are certainly dead, and an outside world that may or may not have seen what was just being done.
Records are cut between their events, too: when the keeper takes what was appended is chance.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outlive.journal.headers import header_of
from outlive.journal.lane import run_immediate
from outlive.journal.reader import read_events
from outlive.journal.record import LINK_START, pack
from outlive.model.events import (
    Answered,
    CancelRequested,
    ChapterBegan,
    ChildEnded,
    Claimed,
    Event,
    KeyHeld,
    MailRead,
    Parked,
    SignalReceived,
    encode_events,
)
from outlive.model.kinds import KIND_BITS
from outlive.model.run import Run, apply
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Entry, Posted, Posting
from outlive.testing.suite.entries import post_one
from tests.harness.world import world

Kept = tuple[dict[str, str], dict[str, str]]
#: Events that consume mail, each one letter.
FROM_MAIL = (SignalReceived, Answered, CancelRequested, MailRead)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One thing that was written: an event of a run, or a letter to it."""

    run_id: str
    event: Event | None = None
    #: The letter that the event consumed, or that was posted.
    mail_id: str = ""
    body: bytes = b""
    at: int = 0
    #: What had happened outside before it was written, and by when it was acknowledged.
    before: Kept = ({}, {})
    after: Kept = ({}, {})


class TapedStore(MemoryStore):
    """A store that remembers how it came to be."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.tape: list[Deed] = []
        self._turn = threading.RLock()

    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
        with self._turn:
            before = world.snapshot()
            answers = await super().commit(batch, wait=wait)
            at, after = self._clock.now_ms(), world.snapshot()
            for entry, conflict in zip(batch, answers, strict=True):
                if conflict is None:
                    for event, mail_id in self._events(entry):
                        self.tape.append(
                            Deed(
                                run_id=entry.run_id,
                                event=event,
                                mail_id=mail_id,
                                at=at,
                                before=before,
                                after=after,
                            )
                        )
            return answers

    def _events(self, entry: Entry) -> list[tuple[Event, str]]:
        reading = run_immediate(self.read(entry.run_id))
        assert reading is not None
        events = read_events(reading)[entry.after : entry.last]
        letters = list(entry.consumed)
        told = [_takes_letter(event, letters) for event in events]
        return list(zip(events, told, strict=True))

    async def post(self, batch: Sequence[Posting]) -> Sequence[Posted]:
        return [await self._post_one(each) for each in batch]

    async def _post_one(self, letter: Posting) -> Posted:
        with self._turn:
            before = world.snapshot()
            (answer,) = await super().post([letter])
            if answer == "posted":
                self.tape.append(
                    Deed(
                        run_id=letter.run_id,
                        mail_id=letter.mail_id,
                        body=letter.body,
                        at=self._clock.now_ms(),
                        before=before,
                        after=world.snapshot(),
                    )
                )
            return answer


def _takes_letter(event: Event, letters: list[str]) -> str:
    """The letter that this event consumed, if any: they stand in the order of their events."""
    if not letters:
        return ""
    is_news = isinstance(event, ChildEnded) and letters[0].startswith(f"child/{event.child_id}/")
    is_word = letters[0].startswith("resolve/") and getattr(event, "by", "") == "human"
    return letters.pop(0) if isinstance(event, FROM_MAIL) or is_news or is_word else ""


class _Journal:
    def __init__(self) -> None:
        self.run, self.link, self.chapter_link = Run(), LINK_START, b""


def rebuild(tape: Sequence[Deed]) -> MemoryStore:
    """The store as these deeds left it; whoever held a lease there is dead."""
    store = MemoryStore(lease_seconds=80_000)
    journals: dict[str, _Journal] = {}
    for deed in tape:
        store._clock = _Stopped(deed.at)
        if deed.event is None:
            assert "posted" == run_immediate(post_one(store, deed.run_id, deed.mail_id, deed.body))
        else:
            entry = _entry(journals.setdefault(deed.run_id, _Journal()), deed, deed.event)
            answer = run_immediate(store.commit([entry]))
            assert [None] == answer, (deed, answer)
    return store


def _entry(journal: _Journal, deed: Deed, event: Event) -> Entry:
    run, after = journal.run, journal.run.seq
    apply(run, event)
    if isinstance(event, ChapterBegan):
        journal.chapter_link = journal.link
    record, journal.link = pack(
        deed.run_id,
        prev=journal.link,
        epoch=run.epoch,
        seq=run.seq,
        kinds=KIND_BITS[type(event)],
        body=encode_events([event]),
    )
    takes = isinstance(event, Claimed)
    frees = isinstance(event, (Parked, KeyHeld)) or not run.is_held
    return Entry(
        run_id=deed.run_id,
        after=after,
        last=run.seq,
        epoch=run.epoch,
        record=record,
        link=journal.link,
        header=header_of(run, journal.chapter_link),
        lease="take" if takes else "free" if frees else "keep",
        worker=event.worker if isinstance(event, Claimed) else None,
        consumed=(deed.mail_id,) if deed.mail_id else (),
    )


@dataclass(frozen=True, slots=True)
class _Stopped:
    at: int

    def now_ms(self) -> int:
        return self.at

    def monotonic(self) -> float:
        return 0.0
