"""The auditor: invariants that must hold after any crash, pause or lost reply.

It reads two things only: the journals, and the receipts of the outside world. Every harness, with
real or simulated processes, passes them in and gets back the broken promises in words; an empty
list is a pass. Pure: no clock, no store, no process.

Flows under audit mark the outcome of a step with a fresh *nonce* (``fresh_nonce``). A nonce in an
effect's arguments or in a run's outcome whose step is not in the journal means that something was
sent which depended on a lost outcome.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from outlive.model.checkpoints import CheckpointsBegan
from outlive.model.events import (
    ChapterBegan,
    EffectDone,
    EffectIntended,
    EffectRaised,
    Event,
    Forked,
    KeyHeld,
    Marked,
    StepDone,
    recorded_key,
)
from outlive.model.logs import LogBegan
from outlive.model.run import fold
from outlive.testing.audit.families import check_families
from outlive.testing.audit.journal import JOURNAL_RULES, fresh_nonce, nonces_in
from outlive.testing.audit.waits import UNDO, first_seq

__all__ = [
    "JOURNAL_RULES",
    "Policy",
    "Receipt",
    "audit",
    "audit_growth",
    "audit_order",
    "effect_name",
    "fresh_nonce",
    "nonces_in",
]

#: "once": the receiver honours the key, or a check works. "at_most_once": neither.
Policy: TypeAlias = Literal["once", "at_most_once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A receipt: one thing that happened in the outside world, as recorded there."""

    run_id: str
    #: The effect's name.
    effect: str
    key: str
    args: str = ""
    nonces: tuple[str, ...] = ()
    #: ms since 1970.
    at: int = 0


def audit(
    journals: Mapping[str, Sequence[Event]],
    receipts: Sequence[Receipt],
    *,
    policies: Mapping[str, Policy],
    acknowledged: Mapping[str, int] | None = None,
    events_min: int = 1,
) -> list[str]:
    """List every broken promise in words; an empty list is a pass.

    Args:
        journals: all events of each run (and each key's journal), as read back.
        receipts: from the outside world, in its order.
        policies: by name of effect, the promise that holds for it.
        acknowledged: by run, the last seq that any driver was told is durable.
        events_min: a run with fewer events made no progress.
    """
    runs = {run_id: events for run_id, events in journals.items() if not _is_key(events)}
    # The actions of a fork may follow from its shared events: its replay is the judge.
    whole = {run_id: events for run_id, events in runs.items() if not is_fork(events)}
    broken = [
        f"run {run_id}: {words}"
        for run_id, events in whole.items()
        for rule in JOURNAL_RULES
        for words in rule(events)
    ]
    broken += _check_acknowledged(journals, acknowledged or {})
    broken += _check_progress(runs, events_min)
    broken += _check_surfaced(whole, policies)
    broken += check_families(runs)
    broken += _check_receipts(_effects_of(runs), receipts, policies)
    return broken


def audit_growth(before: Sequence[Event], after: Sequence[Event]) -> list[str]:
    """Check that a journal read earlier is the beginning of the same journal read later.

    Unless a chapter has begun since: earlier records may be gone.
    """
    gone = first_seq(after) - first_seq(before)
    if gone < 0:
        return [f"event {first_seq(after)} was gone and is back"]
    for place, event in enumerate(before):
        seq = first_seq(before) + place
        if place < gone:
            continue
        if place - gone >= len(after):
            return [f"event {seq} ({type(event).__name__}) was there and is gone"]
        if after[place - gone] != event:
            return [f"event {seq} was {event!r} and is {after[place - gone]!r}"]
    return []


def audit_order(events: Sequence[Event], seen: Sequence[str]) -> list[str]:
    """Check that a flow saw these nonces in the order in which the journal has their steps."""
    made = [nonce for event in events if isinstance(event, StepDone)
            for nonce in nonces_in(event.value)]  # fmt: skip
    position = {nonce: place for place, nonce in enumerate(made)}
    unknown = [nonce for nonce in seen if nonce not in position]
    if unknown:
        return [f"the flow saw {unknown[0]}, which no step of its journal made"]
    places = [position[nonce] for nonce in seen]
    return [] if places == sorted(places) else [f"the flow saw {seen}, the journal has {made}"]


# ---------------------------------------------------------------- all journals


def _is_key(events: Sequence[Event]) -> bool:
    return bool(events) and isinstance(events[0], (KeyHeld, Marked, CheckpointsBegan, LogBegan))


def is_fork(events: Sequence[Event]) -> bool:
    """Whether a run shares its beginning with another."""
    return bool(events) and isinstance(events[0], Forked)


def _check_acknowledged(
    journals: Mapping[str, Sequence[Event]], acknowledged: Mapping[str, int]
) -> Iterator[str]:
    """Check that what a driver was told is durable is in the journal."""
    for run_id, seq in acknowledged.items():
        events = journals.get(run_id, ())
        there = first_seq(events) - 1 + len(events)
        if there < seq:
            yield f"run {run_id}: seq {seq} was acknowledged, the journal ends at {there}"


def _check_progress(runs: Mapping[str, Sequence[Event]], events_min: int) -> Iterator[str]:
    """Check for progress: a harness in which nothing works must not pass."""
    if not runs and events_min:
        yield "there is no run at all"
    for run_id, events in runs.items():
        if len(events) < events_min:
            yield f"run {run_id}: only {len(events)} events, at least {events_min} were expected"


def _check_surfaced(
    runs: Mapping[str, Sequence[Event]], policies: Mapping[str, Policy]
) -> Iterator[str]:
    """Check that a waiting run shows every effect that only a human can settle."""
    for run_id, events in runs.items():
        try:
            run = fold(events)
        except (LookupError, AssertionError) as error:
            yield f"run {run_id}: its journal can't be folded: {error!r}"
            continue
        for step, effect in run.effects.items():
            unsafe = policies.get(effect_name(step)) == "at_most_once"
            hidden = not effect.asks and effect.retry_at is None
            if unsafe and hidden and run.status != "running":
                yield f"run {run_id}: effect {step} is unknown and nobody is asked about it"


# ---------------------------------------------------------------- journals and the world


@dataclass(frozen=True, slots=True)
class _Told:
    """The events of one effect in all journals."""

    run_id: str
    intent: EffectIntended
    end: EffectDone | EffectRaised | None
    #: All of them: a run that is retried may ask otherwise for what did not happen.
    intents: Sequence[EffectIntended] = ()


def effect_name(step: str) -> str:
    """The name of the effect in a step id; an undo has a name of its own."""
    if step.startswith(UNDO):
        return f"{UNDO}{effect_name(step.removeprefix(UNDO))}"
    return step.rpartition("/")[2].partition("#")[0]


def _effects_of(runs: Mapping[str, Sequence[Event]]) -> Mapping[str, list[_Told]]:
    """By key, every effect with an intent in the journals."""
    found: dict[str, list[_Told]] = defaultdict(list)
    for run_id, events in runs.items():
        for chapter in _chapters(events):
            # Of several ends (the run was retried) the last counts.
            ends = {e.step: e for e in chapter if isinstance(e, (EffectDone, EffectRaised))}
            intents: dict[str, list[EffectIntended]] = defaultdict(list)
            for event in chapter:
                if isinstance(event, EffectIntended):
                    intents[event.step].append(event)
            for step, again in intents.items():
                told = _Told(run_id, again[0], ends.get(step), again)
                found[recorded_key(run_id, again[0])].append(told)
    return found


def _chapters(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """Step ids begin anew with every chapter."""
    starts = [place for place, event in enumerate(events) if isinstance(event, ChapterBegan)]
    for begin, end in zip([0, *starts], [*starts, len(events)], strict=True):
        yield events[begin:end]


def _check_receipts(
    effects: Mapping[str, Sequence[_Told]],
    receipts: Sequence[Receipt],
    policies: Mapping[str, Policy],
) -> Iterator[str]:
    by_key: dict[str, list[Receipt]] = defaultdict(list)
    for receipt in receipts:
        by_key[receipt.key].append(receipt)
        yield from _check_receipt(receipt, effects.get(receipt.key, ()), policies)
    for key in {**effects, **by_key}:
        yield from _check_key(key, effects.get(key, ()), by_key[key])


def _check_receipt(
    receipt: Receipt, told: Sequence[_Told], policies: Mapping[str, Policy]
) -> Iterator[str]:
    """Check that every receipt was intended first, by that run, with those arguments."""
    who = f"run {receipt.run_id}: effect {receipt.effect} (key {receipt.key})"
    if receipt.effect not in policies:
        yield f"{who} happened, and the audit has no policy for it"
    intents = [intent for each in told if each.run_id == receipt.run_id for intent in each.intents]
    if not intents:
        yield f"{who} happened without an intent in the journal"
    intended = {nonce for intent in intents for nonce in nonces_in(intent.args)}
    for nonce in receipt.nonces:
        if intents and nonce not in intended:
            yield f"{who} happened with {nonce}, which was not intended"


def _check_key(key: str, told: Sequence[_Told], receipts: Sequence[Receipt]) -> Iterator[str]:
    """Check each key: once, as often as the journals say, with the holder's outcome."""
    ends = [each.end for each in told if each.end is not None]
    own = [end for end in ends if end.by != "holder"]
    who = f"effect {effect_name(told[0].intent.step) if told else '?'} (key {key})"
    count = len(receipts)
    done = [end for end in own if isinstance(end, EffectDone) or end.happened is True]
    absent = [end for end in own if isinstance(end, EffectRaised) and end.happened is False]
    if count > 1:
        yield f"{who} happened {count} times"
    if len(done) > 1:
        yield f"{who} is done in {len(done)} places"
    if done and count == 0:
        yield f"{who} is done in the journal and never happened"
    if absent and not done and count:
        yield f"{who} did not happen, says the journal, and it did"
    if not done and any(isinstance(end, EffectDone) and end.by == "holder" for end in ends):
        yield f"{who} took the outcome of a holder that has none"
