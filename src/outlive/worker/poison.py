"""Probation: a run that may be killing its drivers is driven with no other suspect beside it.

A worker that dies takes all its runs with it, and nobody saw which of them did it. A run whose
drivers died several times in a row, with nothing to show for it, is a suspect; a worker drives one
suspect at a time. The guilty one goes on killing until it is quarantined; the innocent get their
turn, bring something about, and are suspects no more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Literal, TypeAlias

from outlive.journal.mail import read_letter
from outlive.model.decide import CLAIMS_MAX, PROBATION_FROM
from outlive.model.events import (
    CancelRequested,
    Claimed,
    DriveBegan,
    EffectRaised,
    Event,
    Fault,
    MailRead,
    Parked,
    RunCancelled,
    RunQuarantined,
)
from outlive.model.mail import Cancel, Nudge
from outlive.model.run import Run
from outlive.stores.types import Mail, Offer
from outlive.worker.chapters import Chapter, portions

#: How often a worker looks whether the next suspect may have its turn.
LOOK_SECONDS = 0.05


class Probation:
    """Which of the offered runs may be claimed now."""

    def __init__(self, read: Callable[[Sequence[str]], Awaitable[dict[str, Chapter]]]) -> None:
        self._read = read
        #: By run: the seq at which it was read, and its claims in a row without an outcome.
        self._seen: dict[str, tuple[int, int]] = {}
        #: What was read of those that were admitted last.
        self.chapters: dict[str, Chapter] = {}
        #: Suspects that were offered and wait for their turn.
        self.waiting = 0
        #: There were more than may be read at once.
        self.has_more = False

    async def admit(self, offers: Sequence[Offer], *, has_suspect: bool) -> list[Offer]:
        """All that are above suspicion, and one suspect unless there is one here already."""
        # Only a death counts: a run that nobody holds was handed over, or never held.
        orphans = [offer for offer in offers if offer.head.worker is not None]
        known = {offer.head.run_id for offer in orphans if self._knows(offer)}
        await self._look([offer for offer in orphans if offer.head.run_id not in known])
        admitted = []
        seen, self.waiting = {}, 0
        for offer in offers:
            run_id = offer.head.run_id
            if offer.head.worker is None:
                admitted.append(offer)
                continue
            if run_id not in known and run_id not in self.chapters:
                continue
            seen[run_id] = self._seen[run_id]
            is_suspect = seen[run_id][1] + 1 >= PROBATION_FROM
            if is_suspect and has_suspect:
                self.waiting += 1
                self.chapters.pop(run_id, None)
                continue
            has_suspect |= is_suspect
            admitted.append(offer)
        self._seen = seen
        return admitted

    def _knows(self, offer: Offer) -> bool:
        known = self._seen.get(offer.head.run_id)
        return known is not None and known[0] == offer.head.seq

    async def _look(self, offers: Sequence[Offer]) -> None:
        """Read some of these; a run that moved on since it was offered is somebody else's."""
        portion = next(portions(offers), [])
        self.has_more = len(portion) < len(offers)
        found = await self._read([offer.head.run_id for offer in portion]) if portion else {}
        self.chapters = {}
        for offer in portion:
            chapter = found.get(offer.head.run_id)
            if chapter is not None and chapter.ends_at(offer):
                self.chapters[offer.head.run_id] = chapter
                self._seen[offer.head.run_id] = (offer.head.seq, chapter.run.barren)


#: "try": drive it, and write down first that it is tried.
Verdict: TypeAlias = Literal["drive", "try", "quarantine", "end"]

#: What a driver may write without the run getting anywhere.
_BARREN = (Claimed, DriveBegan, Parked, MailRead, RunQuarantined)


def frees(run_id: str, mail: Sequence[Mail]) -> bool:
    """Somebody said what to do with a quarantined run."""
    return any(isinstance(read_letter(run_id, each), (Nudge, Cancel)) for each in mail)


def judge(run_id: str, run: Run, events: Sequence[Event], mail: Sequence[Mail]) -> Verdict:
    """What to do with a run that was just claimed."""
    is_hopeless = run.barren > CLAIMS_MAX
    is_cancelled = _is_cancelled(run_id, events, mail)
    is_last_chance = is_cancelled and _was_here(events)
    if is_hopeless:
        return "end" if is_cancelled else "quarantine"
    if is_last_chance and run.barren > 1:
        return "end"
    return "try" if run.is_claimed_again or is_last_chance else "drive"


def _was_here(events: Sequence[Event]) -> bool:
    """It was in quarantine, and nothing new has become durable since."""
    since = takewhile(lambda each: isinstance(each, (*_BARREN, CancelRequested)), reversed(events))
    return any(isinstance(event, RunQuarantined) for event in since)


def _is_cancelled(run_id: str, events: Sequence[Event], mail: Sequence[Mail]) -> bool:
    last = next((event for event in reversed(events) if not isinstance(event, _BARREN)), None)
    posted = any(isinstance(read_letter(run_id, each), Cancel) for each in mail)
    return posted or isinstance(last, CancelRequested)


def put_aside(run_id: str, run: Run, mail: Sequence[Mail]) -> list[tuple[Event, str | None]]:
    """The events of a quarantine, with the mail that each consumes."""
    reason = f"claimed {run.barren - 1} times in a row and tried without one new outcome"
    # A nudge from before has had its effect; unread, it would set the run free at once.
    nudges = [each.mail_id for each in mail if isinstance(read_letter(run_id, each), Nudge)]
    read: list[tuple[Event, str | None]] = [(MailRead(run.at, m, reason), m) for m in nudges]
    return [*read, (RunQuarantined(run.at, reason), None)]


def end_without_code(run_id: str, run: Run, mail: Sequence[Mail]) -> list[tuple[Event, str | None]]:
    """The events that end a cancelled run whose code can't be run, and say what was left."""
    events: list[tuple[Event, str | None]] = []
    for each in mail:
        letter = read_letter(run_id, each)
        if isinstance(letter, Cancel):
            events.append((CancelRequested(run.at, letter.by, each.mail_id), each.mail_id))
    left = [step for step, effect in run.effects.items() if effect.retry_at is None]
    for step, effect in run.effects.items():
        unknown = Fault("RunQuarantined", "the run was cancelled while nobody could drive it")
        happened = False if effect.retry_at is not None and not effect.maybe else None
        ended = EffectRaised(run.at, step, effect.attempt, unknown, happened, "driver")
        events.append((ended, None))
    doubts = f"; nobody knows whether these happened: {', '.join(left)}" if left else ""
    told = f"cancelled in quarantine: its code kills its workers, so nothing was undone{doubts}"
    events.append((RunCancelled(run.at, Fault("RunQuarantined", told)), None))
    return events


class Quarantine:
    """Which of the offered runs are in quarantine, with nothing said that frees them."""

    def __init__(self, mail_of: Callable[[str], Awaitable[Sequence[Mail]]]) -> None:
        self._mail_of = mail_of
        #: By run: the head's seq and posted mail when it was looked at.
        self._seen: dict[str, tuple[int, int]] = {}

    @property
    def waiting(self) -> int:
        """How many runs are offered in vain."""
        return len(self._seen)

    async def admit(self, offers: Sequence[Offer]) -> list[Offer]:
        """All others, and those that somebody freed."""
        admitted = []
        for offer in offers:
            run_id = offer.head.run_id
            state = (offer.head.seq, offer.head.posted)
            if offer.header.status == "quarantined":
                if self._seen.get(run_id) == state:
                    continue
                if not frees(run_id, await self._mail_of(run_id)):
                    self._seen[run_id] = state
                    continue
            self._seen.pop(run_id, None)
            admitted.append(offer)
        return admitted
