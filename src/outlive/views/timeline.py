"""A run's journal as rows: what happened, when, in which branch, how long it took.

Pure functions from events. A row keeps values as they were recorded; rendering them is the
caller's (``values.preview`` for people, ``values.as_json`` for programs).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from outlive.journal.fork import changed_in
from outlive.model import events as ev
from outlive.model.events import Event
from outlive.model.ids import digest
from outlive.model.replay import past_of
from outlive.model.run import OpenEffect, fold
from outlive.views.rows import Row, from_json, row_of, split_id

__all__ = ["Doubt", "Row", "doubts", "split_id", "timeline"]


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """An effect in doubt: nobody knows whether it happened."""

    step: str
    key: str
    attempt: int
    why: str
    #: Whether only a human can tell; otherwise it is settled automatically.
    asks: bool
    args: bytes


def timeline(run_id: str, events: Sequence[Event], first: int | None = None) -> list[Row]:
    """One row per event of a run, in order; ``first``: the seq of the first of these events.

    In the middle of a journal, what was begun before has no duration.
    """
    rows: list[Row] = []
    begun: dict[str, int] = {}
    now = 0
    for seq, event in enumerate(events, first_seq(events) if first is None else first):
        now = max(now, getattr(event, "at", 0))
        row = row_of(seq, now, event)
        match event:
            case ev.EffectIntended(step=place):
                begun[place] = now
                row = msgspec.structs.replace(row, note=f"key {ev.recorded_key(run_id, event)}")
            case ev.ChildIntended(step=place):
                begun[place] = now
            case ev.QuestionAsked(question=place):
                begun[place] = now
            case (
                ev.EffectDone()
                | ev.EffectRaised()
                | ev.EffectDoubted()
                | ev.AttemptFailed()
                | ev.ChildEnded()
            ) if event.step in begun:
                row = _timed(row, begun[event.step])
            case ev.Answered() | ev.QuestionClosed():
                row = _timed(row, begun.get(event.question))
            case _:
                pass
        rows.append(row)
    return rows


def first_seq(events: Sequence[Event]) -> int:
    """The seq of the first of these events: events before a chapter may be deleted."""
    first = events[0] if events else None
    return first.seq if isinstance(first, ev.ChapterBegan) else 1


def _timed(row: Row, since: int | None) -> Row:
    return msgspec.structs.replace(row, duration_ms=None if since is None else row.at - since)


def doubts(run_id: str, events: Iterable[Event], *, driven: bool) -> list[Doubt]:
    """The effects that are in doubt as the journal stands, in the order of their intents.

    An attempt that was begun and not ended is one, unless somebody still drives the run.
    """
    effects = fold(events).effects
    return [
        _doubt(run_id, step, effect)
        for step, effect in effects.items()
        if effect.retry_at is None and (effect.doubt is not None or not driven)
    ]


def _doubt(run_id: str, step: str, effect: OpenEffect) -> Doubt:
    fault = effect.doubt
    cut = "its driver ended before it did"
    return Doubt(
        step=step,
        key=ev.recorded_key(run_id, effect.intent),
        attempt=effect.attempt,
        why=cut if fault is None else f"{fault.type_name}: {fault.message}",
        asks=effect.asks,
        args=effect.intent.args,
    )


#: Rows that are compared beside the steps.
ARGUMENTS, OUTCOME = "arguments", "outcome"


class StepEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a step in one run."""

    args_digest: bytes = b""
    digest: bytes
    value: bytes | None = None
    error: ev.Fault | None = None


class ComparedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of both runs."""

    step: str
    a: StepEnd | None
    b: StepEnd | None

    @property
    def difference(self) -> str:
        """The kind of difference; empty: none."""
        if self.a is None or self.b is None:
            return "only in A" if self.b is None else "only in B"
        if self.a.args_digest != self.b.args_digest:
            return ARGUMENTS
        if self.a.digest == self.b.digest:
            return ""
        return ARGUMENTS if self.step == ARGUMENTS else OUTCOME


def diff(a: Sequence[Event], b: Sequence[Event]) -> list[ComparedStep]:
    """All steps of two runs, in the order of the first, then those that only the second has."""
    one, other = _places(a), _places(b)
    steps = [*one, *(step for step in other if step not in one)]
    # The outcome comes last.
    steps.sort(key=lambda step: step == OUTCOME)
    return [ComparedStep(step=step, a=one.get(step), b=other.get(step)) for step in steps]


def _places(events: Sequence[Event]) -> dict[str, StepEnd]:
    run = fold(events)
    places = {ARGUMENTS: _ended(value=run.start.args if run.chapter is None else run.chapter.args)}
    changed = changed_in(events)
    asked: dict[str, bytes] = {}
    for _, event in past_of(events, 1).events:
        match event:
            case ev.EffectIntended(step=step) | ev.ChildIntended(step=step):
                asked.setdefault(step, ev.recorded_digest(event))
            case ev.QuestionAsked(question=step):
                asked.setdefault(step, digest(event.text.encode() + event.schema))
            case ev.StepDone() | ev.StepRaised():
                args = ev.recorded_digest(event)
                places[event.step] = _end_of(event, args, is_json=event in changed)
            case ev.EffectDone() | ev.EffectRaised() | ev.ChildEnded():
                args = asked.get(event.step, b"")
                places[event.step] = _end_of(event, args, is_json=event in changed)
            case ev.Answered(question=step):
                places[step] = _ended(asked.get(step, b""), value=from_json(event.value))
            case ev.RunCompleted(value=value):
                places[OUTCOME] = _ended(value=value)
            case ev.RunFailed(error=error) | ev.RunCancelled(error=error):
                places[OUTCOME] = _ended(error=error)
            case _:
                pass
    return places


def _end_of(event: Event, args: bytes, *, is_json: bool) -> StepEnd:
    error: ev.Fault | None = getattr(event, "error", None)
    if error is not None:
        return _ended(args, error=error)
    value: bytes = getattr(event, "value", b"")
    return _ended(args, value=from_json(value) if is_json else value)


def _ended(
    args: bytes = b"", *, value: bytes | None = None, error: ev.Fault | None = None
) -> StepEnd:
    told = value or b"" if error is None else f"{error.type_name}\0{error.message}".encode()
    return StepEnd(args_digest=args, digest=digest(told), value=value, error=error)
