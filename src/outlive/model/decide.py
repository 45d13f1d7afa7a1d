"""Decisions: the events that may follow, given the state of a run. Pure."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from outlive.model.events import AttemptFailed, EffectDone, EffectRaised, Fault, MailRead
from outlive.model.mail import Resolve
from outlive.model.retry import Retry
from outlive.model.run import OpenEffect

#: The claims in a row without a new durable outcome after which a run is quarantined.
CLAIMS_MAX = 5
#: From this claim on, a worker drives at most one such run at a time. Not from the second on: one
#: death of a worker must not make all its runs wait for one another.
PROBATION_FROM = 3

#: The name of the fault of an attempt that was cut off: it says nothing about the effect.
DRIVER_ENDED = "DriverEnded"

Doubt: TypeAlias = Literal["check", "retry", "ask", "fail"]


class RetryAt(msgspec.Struct, frozen=True):
    """Retry at this instant (ms since 1970)."""

    at: int


class GiveUp(msgspec.Struct, frozen=True):
    """There is no further attempt."""


def decide_failure(
    retry: Retry, attempt: int, error: BaseException, *, now: int, chance: float
) -> RetryAt | GiveUp:
    """Decide whether a failed attempt is followed by another, and when."""
    if attempt >= retry.attempts or not isinstance(error, retry.only):
        return GiveUp()
    return RetryAt(now + round(retry.delay_seconds(attempt, chance) * 1000))


def absence_counts_from(effect: OpenEffect, settle_after_ms: int) -> int:
    """The instant from which "it did not happen" is trusted: attempt and receiver are done.

    An attempt is over when its end was recorded, when its driver was found dead for certain, or
    when its time limit has passed.
    """
    over_at = effect.not_after if effect.over_at is None else min(effect.over_at, effect.not_after)
    return over_at + settle_after_ms


def decide_resolve(
    effect: OpenEffect | None, letter: Resolve, mail_id: str, *, at: int, now: int
) -> AttemptFailed | EffectDone | EffectRaised | MailRead:
    """Decide the events that follow from a human's verdict on a doubt."""
    if effect is None or effect.retry_at is not None:
        return MailRead(at, mail_id, f"effect {letter.step} is not in doubt")
    if letter.attempt not in (0, effect.attempt) or letter.intent not in (0, effect.seq):
        return MailRead(at, mail_id, f"attempt {letter.attempt} of {letter.step} is over")
    if letter.verdict == "not_happened" and now < absence_counts_from(effect, 0):
        return MailRead(at, mail_id, f"{letter.step} may still be running; look again later")
    step, attempt = letter.step, effect.attempt
    match letter.verdict:
        case "happened":
            return EffectDone(at, step, attempt, letter.value, "human", letter.by)
        case "not_happened":
            told = Fault(DRIVER_ENDED, "a human said that it did not happen")
            return AttemptFailed(at, step, attempt, told, now, "human", who=letter.by)
        case "fail":
            fault = effect.doubt or Fault(DRIVER_ENDED, "its driver ended before it did")
            return EffectRaised(at, step, attempt, fault, None, "human", letter.by)


def next_attempt(effect: OpenEffect) -> int:
    """The number of the next attempt; one that was cut off does not count."""
    cut = effect.error is not None and effect.error.type_name == DRIVER_ENDED
    return effect.attempt if cut else effect.attempt + 1
