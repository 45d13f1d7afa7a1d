"""The part of a journal that is gone through again when a run is replayed.

Replay begins with the last chapter. A run that failed and was given another try goes through what
was recorded before its failure; what came after it is not replayed, but neither is it done twice:
outcomes are kept at hand for the calls that ask for them again, and signals are kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeAlias

from outlive.model.events import (
    Answered,
    ChapterBegan,
    ChildEnded,
    ChildIntended,
    ChildSpawned,
    DeadlinePassed,
    EffectDone,
    EffectIntended,
    EffectRaised,
    Event,
    Fault,
    QuestionAsked,
    Replied,
    RunFailed,
    RunRetried,
    RunUndoing,
    SignalReceived,
    StepDone,
    StepRaised,
    TimerFired,
)
from outlive.model.ids import place_of_question

#: Events that are delivered to the flow.
_TOLD = (StepDone, StepRaised, EffectDone, EffectRaised, ChildEnded, TimerFired, Answered)

#: After these, not all that was recorded before counts.
_TURNS = frozenset({ChapterBegan, RunRetried})

_GROUP = re.compile(r"\((\d+) sub-exceptions?\)")

#: The error of a run that misses its deadline.
DEADLINE_PASSED = Fault("TimedOut", "the run's deadline passed")

#: Events of work that need not be done again.
Outcome: TypeAlias = StepDone | EffectDone | EffectRaised | Answered


@dataclass(slots=True)
class Past:
    """The part of a journal that counts."""

    #: Each with its seq.
    events: list[tuple[int, Event]] = field(default_factory=list)
    #: By step or place of a question: outcomes that were recorded after a failure.
    known: dict[str, Outcome] = field(default_factory=dict)
    #: By effect: where its first attempt was intended, and with which arguments.
    intents: dict[str, tuple[int, EffectIntended]] = field(default_factory=dict)
    #: By place: the question that was asked last there.
    asked: dict[str, QuestionAsked] = field(default_factory=dict)


def past_of(events: Sequence[Event], first: int) -> Past:
    """The events that count, of a journal whose events begin at seq ``first``."""
    begin = bool(events) and type(events[0]) is ChapterBegan
    if _TURNS.isdisjoint(map(type, events[begin:])):
        return Past(list(enumerate(events[begin:], first + begin)))
    past = Past()
    for seq, event in enumerate(events, first):
        match event:
            case ChapterBegan():
                past = Past()
            case RunRetried(since=since):
                _rewind(past, since)
            case EffectIntended(step=step, attempt=attempt):
                if attempt == 1 or step not in past.intents:
                    past.intents[step] = seq, event
                past.events.append((seq, event))
            case QuestionAsked(question=question):
                past.asked[place_of_question(question)] = event
                past.events.append((seq, event))
            case _:
                past.events.append((seq, event))
    return past


def _rewind(past: Past, since: int) -> None:
    kept: list[tuple[int, Event]] = []
    for seq, event in past.events:
        if seq < since or isinstance(event, (SignalReceived, Replied)):
            kept.append((seq, event))
        else:
            _remember(past, event)
    past.events = _look_anew(kept)


def _look_anew(events: list[tuple[int, Event]]) -> list[tuple[int, Event]]:
    """Children that were waited for may have ended while nobody listened: ask for them again."""
    ended = {event.step for _, event in events if isinstance(event, ChildEnded)}
    awaited = {e.step for _, e in events if isinstance(e, ChildIntended) and e.is_awaited}
    unheard = awaited - ended
    return [
        (seq, event)
        for seq, event in events
        if not (isinstance(event, ChildSpawned) and event.step in unheard)
    ]


def _remember(past: Past, event: Event) -> None:
    match event:
        case StepDone() | EffectDone():
            past.known[event.step] = event
        case EffectRaised(happened=happened) if happened is not False:
            # It may have happened: never again unasked.
            past.known.setdefault(event.step, event)
        case Answered():
            past.known[place_of_question(event.question)] = event
        case _:
            pass


def failure_of(events: Sequence[Event], first: int) -> tuple[int, Event] | None:
    """The event by which a run failed, and its seq; None: it did not fail, or was undone.

    The failure that it ended with, or the first of as many as a group of them holds, and the one
    that it was told of last; otherwise the deadline that passed; otherwise it failed by itself.
    """
    past = past_of(events, first).events
    if any(isinstance(event, RunUndoing) for _, event in past):
        return None
    ends = [(seq, event) for seq, event in past if isinstance(event, RunFailed)]
    if not ends:
        return None
    end = ends[-1][1].error
    if end == DEADLINE_PASSED:
        cut = [(seq, event) for seq, event in past if isinstance(event, DeadlinePassed)]
        return cut[0] if cut else ends[-1]
    count = _count_of(end)
    last = next((event for _, event in reversed(past) if isinstance(event, _TOLD)), None)
    found: list[tuple[int, Event]] = []
    for seq, event in reversed(past):
        fault = _fault_of(event)
        is_cause = fault is not None and count > 0 and _is_in(fault, end)
        count -= is_cause
        if fault is not None and (is_cause or event is last):
            found.append(_begin_of(past, seq, event))
    return min(found, key=itemgetter(0), default=ends[-1])


def _count_of(end: Fault) -> int:
    """The number of failures in it: an exception group names it in its text."""
    told = _GROUP.search(end.message) if end.type_name.endswith("ExceptionGroup") else None
    return 1 if told is None else int(told[1])


def _begin_of(past: Sequence[tuple[int, Event]], seq: int, failure: Event) -> tuple[int, Event]:
    """The places at which a failure occurs again: a child has to be looked up anew."""
    if isinstance(failure, ChildEnded):
        for begun, event in past:
            if isinstance(event, ChildSpawned) and event.step == failure.step:
                return begun, failure
    return seq, failure


def _fault_of(event: Event) -> Fault | None:
    match event:
        case StepRaised(error=error) | EffectRaised(error=error) | ChildEnded(error=error):
            return error
        case _:
            return None


def _is_in(cause: Fault, end: Fault) -> bool:
    """The one was passed on as the other, perhaps with others in a group."""
    text = cause.message or cause.type_name
    return text in end.message or end.type_name.endswith("ExceptionGroup")
