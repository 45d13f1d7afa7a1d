"""A human settles an effect in doubt: the word is mail, the run's driver makes it an event."""

from __future__ import annotations

from outlive.errors import StepNotInDoubt
from outlive.journal.reader import read_events
from outlive.model.decide import absence_counts_from
from outlive.model.events import EffectDoubted, EffectIntended, Event, MailRead
from outlive.model.mail import Resolve, Verdict
from outlive.model.run import OpenEffect, fold
from outlive.store import Reading


def resolve_letter(
    reading: Reading, step: str, verdict: Verdict, value: bytes, now: int
) -> tuple[str, Resolve]:
    """The mail that settles this doubt, and its id: one answer per doubt.

    Raises:
        StepNotInDoubt: there is nothing to settle, or it is too early to tell.
    """
    events = read_events(reading)
    effect = fold(events).effects.get(step)
    run_id = reading.head.run_id
    if effect is None or effect.retry_at is not None:
        raise StepNotInDoubt(
            f"run {run_id} has no effect {step!r} in doubt; `outlive show` lists its doubts"
        )
    if effect.doubt is None and reading.head.worker is not None:
        raise StepNotInDoubt(f"effect {step} is being attempted right now; wait for its end")
    if verdict == "not_happened":
        check_over(effect, now)
    seq = max(position for position, event in enumerate(events, 1) if _asks_anew(event, step))
    return f"resolve/{step}/{seq}", Resolve(step, effect.attempt, verdict, value, effect.seq)


def check_over(effect: OpenEffect, now: int) -> None:
    """Nobody can say that it did not happen while a driver that only paused may still do it.

    Raises:
        StepNotInDoubt: it is too early to tell.
    """
    seconds = (absence_counts_from(effect, 0) - now) / 1000
    if seconds > 0:
        raise StepNotInDoubt(
            f"effect {effect.intent.step} may still be running for {seconds:.0f} s: its driver was "
            "silent, not dead; look again after that"
        )


def _asks_anew(event: Event, step: str) -> bool:
    """After this a further word counts: a new attempt or doubt, or a word that was refused."""
    if isinstance(event, MailRead):
        return event.mail_id.startswith(f"resolve/{step}/")
    return isinstance(event, (EffectIntended, EffectDoubted)) and event.step == step
