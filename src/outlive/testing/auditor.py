"""The one auditor: what must hold after any crash, pause or lost reply, checked from outside.

It looks at two things only: what the journals say, and what the outside world saw (receipts).
Every harness, with real processes or simulated ones, hands them over and gets back the broken
promises in words; an empty list is a pass. Pure: no clock, no store, no process.

Flows under audit mark what came out of a step with a fresh *nonce* (``fresh_nonce``). A nonce in an
effect's arguments or in a run's outcome whose step is not in the journal means that something was
sent out which depended on a lost outcome.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from outlive.model.events import (
    AttemptFailed,
    Claimed,
    EffectDone,
    EffectDoubted,
    EffectIntended,
    EffectRaised,
    Event,
    KeyHeld,
    ParentTold,
    Parked,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    StepDone,
    StepRaised,
    TimerFired,
)
from outlive.model.run import fold

#: "once": the receiver honours the key, or a check works. "at_most_once": neither.
Policy: TypeAlias = Literal["once", "at_most_once"]

_ENDS = (RunCompleted, RunFailed, RunCancelled)
NONCE = re.compile(rb"nonce-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One thing that happened in the outside world, as the outside world wrote it down."""

    run_id: str
    #: The effect's name.
    effect: str
    key: str
    args: str = ""
    nonces: tuple[str, ...] = ()
    #: ms since 1970.
    at: int = 0


def fresh_nonce(entropy: Callable[[int], bytes]) -> str:
    """A text that no other step ever made, and that the auditor knows when it sees it."""
    return f"nonce-{entropy(8).hex()}"


def nonces_in(text: bytes | str) -> tuple[str, ...]:
    """Every nonce in a text, in order, each once."""
    raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    return tuple(dict.fromkeys(found.decode() for found in NONCE.findall(raw)))


def audit(
    journals: Mapping[str, Sequence[Event]],
    receipts: Sequence[Receipt],
    *,
    policies: Mapping[str, Policy],
    acknowledged: Mapping[str, int] | None = None,
    events_min: int = 1,
) -> list[str]:
    """Every broken promise in words; none is a pass.

    Args:
        journals: all events of each run (and each key's journal), as read back.
        receipts: what the outside world saw, in its order.
        policies: by name of effect, what may be promised of it.
        acknowledged: by run, the last seq that any driver was told is durable.
        events_min: a run with fewer events made no progress.
    """
    runs = {run_id: events for run_id, events in journals.items() if not _is_key(events)}
    broken = [
        f"run {run_id}: {words}"
        for run_id, events in runs.items()
        for rule in JOURNAL_RULES
        for words in rule(events)
    ]
    broken += _check_acknowledged(journals, acknowledged or {})
    broken += _check_progress(runs, events_min)
    broken += _check_surfaced(runs, policies)
    broken += _check_receipts(_effects_of(runs), receipts, policies)
    return broken


def audit_growth(before: Sequence[Event], after: Sequence[Event]) -> list[str]:
    """A journal that was read earlier is the beginning of the same journal read later."""
    for seq, event in enumerate(before, 1):
        if seq > len(after):
            return [f"event {seq} ({type(event).__name__}) was there and is gone"]
        if after[seq - 1] != event:
            return [f"event {seq} was {event!r} and is {after[seq - 1]!r}"]
    return []


def audit_order(events: Sequence[Event], seen: Sequence[str]) -> list[str]:
    """A flow saw these nonces in the order in which the journal has their steps."""
    made = [nonce for event in events if isinstance(event, StepDone)
            for nonce in nonces_in(event.value)]  # fmt: skip
    position = {nonce: place for place, nonce in enumerate(made)}
    unknown = [nonce for nonce in seen if nonce not in position]
    if unknown:
        return [f"the flow saw {unknown[0]}, which no step of its journal made"]
    places = [position[nonce] for nonce in seen]
    return [] if places == sorted(places) else [f"the flow saw {seen}, the journal has {made}"]


# ---------------------------------------------------------------- one journal


def _is_key(events: Sequence[Event]) -> bool:
    return bool(events) and isinstance(events[0], KeyHeld)


def _check_frame(events: Sequence[Event]) -> Iterator[str]:
    """A journal begins with its start, which comes once, and nothing follows its end."""
    if not events or not isinstance(events[0], RunStarted):
        yield "its journal does not begin with RunStarted"
    for seq, event in enumerate(events, 1):
        if isinstance(event, RunStarted) and seq > 1:
            yield f"event {seq} starts it a second time"
        if isinstance(event, _ENDS):
            # A child has ended for good when its parent was told, by whoever claimed it for that.
            after = [each for each in events[seq:] if not isinstance(each, (Claimed, ParentTold))]
            if after or (events[seq:] and not isinstance(events[-1], ParentTold)):
                yield f"event {seq + 1} ({type(events[seq]).__name__}) follows its end"


def _check_epochs(events: Sequence[Event]) -> Iterator[str]:
    """Each claim takes the next epoch: none falls, none has two workers."""
    last = 0
    for seq, event in enumerate(events, 1):
        if not isinstance(event, Claimed):
            continue
        if event.epoch != last + 1:
            yield f"event {seq} claims epoch {event.epoch} after epoch {last}"
        last = event.epoch


def _check_time(events: Sequence[Event]) -> Iterator[str]:
    """The time of events never falls; a claim bears its claimant's clock, which may be behind."""
    last = 0
    for seq, event in enumerate(events, 1):
        if isinstance(event, Claimed):
            continue
        at: int = getattr(event, "at", last)
        if at < last:
            yield f"event {seq} ({type(event).__name__}) is at {at} ms, after one at {last} ms"
        last = max(last, at)


def _check_intents(events: Sequence[Event]) -> Iterator[str]:
    """An effect's end or doubt follows an intent; a repeat follows the end of the attempt."""
    open_steps: dict[str, EffectIntended] = {}
    settled: set[str] = set()
    for seq, event in enumerate(events, 1):
        step = getattr(event, "step", "")
        match event:
            case EffectIntended():
                before = open_steps.get(step)
                if before is not None and step not in settled:
                    yield f"event {seq} attempts {step} again though it was not settled"
                if before is not None and before.key != event.key:
                    yield f"event {seq} attempts {step} with another key"
                open_steps[step] = event
                settled.discard(step)
            case EffectDone() | EffectRaised() | EffectDoubted() if step not in open_steps:
                yield f"event {seq} ({type(event).__name__}) of {step} has no intent before it"
            case AttemptFailed() if step in open_steps:
                settled.add(step)


def _check_ends(events: Sequence[Event]) -> Iterator[str]:
    """A step ends once, a timer fires once, and an ended run leaves no effect open."""
    ended: set[str] = set()
    for seq, event in enumerate(events, 1):
        if isinstance(event, (StepDone, StepRaised, EffectDone, EffectRaised)):
            name = event.step
        elif isinstance(event, TimerFired):
            name = event.timer
        else:
            continue
        if name in ended:
            yield f"event {seq} ends {name} a second time"
        ended.add(name)
    yield from _check_none_open(events)


def _check_none_open(events: Sequence[Event]) -> Iterator[str]:
    over = any(isinstance(event, _ENDS) for event in events)
    intended = {event.step for event in events if isinstance(event, EffectIntended)}
    ended = {event.step for event in events if isinstance(event, (EffectDone, EffectRaised))}
    for step in sorted(intended - ended) if over else ():
        yield f"it ended and left effect {step} open"


def _check_nonces(events: Sequence[Event]) -> Iterator[str]:
    """What goes into an effect or comes out of a run came out of a step before it."""
    made: set[str] = set()
    for seq, event in enumerate(events, 1):
        match event:
            case StepDone() | EffectDone():
                made.update(nonces_in(event.value))
            case StepRaised() | EffectRaised():
                made.update(nonces_in(event.error.message))
            case RunStarted():
                made.update(nonces_in(event.args))
            case EffectIntended():
                yield from _lost(seq, made, event.args)
            case RunCompleted():
                yield from _lost(seq, made, event.value)


def _lost(seq: int, made: set[str], sent: bytes) -> Iterator[str]:
    for nonce in nonces_in(sent):
        if nonce not in made:
            yield f"event {seq} depends on {nonce}, which no earlier step of the journal made"


def _check_fits(events: Sequence[Event]) -> Iterator[str]:
    """No driver found that code and journal differ."""
    for seq, event in enumerate(events, 1):
        if isinstance(event, Parked) and event.reason:
            yield f"event {seq} parked it: {event.reason}"


JOURNAL_RULES: tuple[Callable[[Sequence[Event]], Iterator[str]], ...] = (
    _check_frame,
    _check_epochs,
    _check_time,
    _check_intents,
    _check_ends,
    _check_nonces,
    _check_fits,
)


# ---------------------------------------------------------------- all journals


def _check_acknowledged(
    journals: Mapping[str, Sequence[Event]], acknowledged: Mapping[str, int]
) -> Iterator[str]:
    """What a driver was told is durable is there."""
    for run_id, seq in acknowledged.items():
        there = len(journals.get(run_id, ()))
        if there < seq:
            yield f"run {run_id}: seq {seq} was acknowledged, the journal ends at {there}"


def _check_progress(runs: Mapping[str, Sequence[Event]], events_min: int) -> Iterator[str]:
    """Something came of it: a harness in which nothing works must not pass."""
    if not runs and events_min:
        yield "there is no run at all"
    for run_id, events in runs.items():
        if len(events) < events_min:
            yield f"run {run_id}: only {len(events)} events, at least {events_min} were expected"


def _check_surfaced(
    runs: Mapping[str, Sequence[Event]], policies: Mapping[str, Policy]
) -> Iterator[str]:
    """A run that waits shows every effect that it can't settle by itself."""
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
    """What the journals say of one effect."""

    run_id: str
    intent: EffectIntended
    end: EffectDone | EffectRaised | None


def effect_name(step: str) -> str:
    """The name of the effect in a step id."""
    return step.rpartition("/")[2].partition("#")[0]


def _effects_of(runs: Mapping[str, Sequence[Event]]) -> Mapping[str, list[_Told]]:
    """By key, every effect that the journals have an intent of."""
    found: dict[str, list[_Told]] = defaultdict(list)
    for run_id, events in runs.items():
        ends = {e.step: e for e in events if isinstance(e, (EffectDone, EffectRaised))}
        first = {e.step: e for e in reversed(events) if isinstance(e, EffectIntended)}
        for step, intent in first.items():
            found[intent.key].append(_Told(run_id, intent, ends.get(step)))
    return found


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
    """What happened was intended first, by that run, with those arguments."""
    who = f"run {receipt.run_id}: effect {receipt.effect} (key {receipt.key})"
    if receipt.effect not in policies:
        yield f"{who} happened, and the audit has no policy for it"
    intents = [each.intent for each in told if each.run_id == receipt.run_id]
    if not intents:
        yield f"{who} happened without an intent in the journal"
    intended = {nonce for intent in intents for nonce in nonces_in(intent.args)}
    for nonce in receipt.nonces:
        if intents and nonce not in intended:
            yield f"{who} happened with {nonce}, which was not intended"


def _check_key(key: str, told: Sequence[_Told], receipts: Sequence[Receipt]) -> Iterator[str]:
    """Once per key, as often as the journals say, and a holder's word is the holder's."""
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
