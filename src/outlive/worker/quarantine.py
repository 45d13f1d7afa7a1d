"""Quarantine: a run that killed its drivers is left alone until somebody says what to do with it.

Two words count. A nudge (somebody resumed it) gives it new chances. A cancel gives it one more, so
that it may end as other runs do, doubts settled and effects undone; if its driver dies of that,
too, it is ended without its code. All other mail waits unread: it is no reason to kill a worker,
and it must not be lost, for the run may be cured. So a quarantined run with such mail is offered by
the store again and again, and each worker looks at it once per letter and claims nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Literal, TypeAlias

from outlive.journal.mail import read_letter
from outlive.model.decide import CLAIMS_MAX
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
from outlive.store import Mail, Offer

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
