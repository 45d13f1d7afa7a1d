"""A run's journal as rows: what happened, when, in which branch, how long it took.

Pure functions from events. A row keeps values as they were recorded; rendering them is the
caller's (``values.preview`` for people, ``values.as_json`` for programs).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from outlive.model.events import (
    Answered,
    AttemptFailed,
    ChapterBegan,
    ChildEnded,
    ChildIntended,
    EffectDone,
    EffectDoubted,
    EffectIntended,
    EffectRaised,
    Event,
    QuestionAsked,
    QuestionClosed,
)
from outlive.model.ids import recorded_key
from outlive.model.run import OpenEffect, fold
from outlive.views.rows import Row, row_of, split_id

__all__ = ["Doubt", "Row", "doubts", "split_id", "timeline"]


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """An effect of which nobody knows whether it happened."""

    step: str
    key: str
    attempt: int
    why: str
    #: Only a human can tell; otherwise it is settled by itself.
    asks: bool
    args: bytes


def timeline(run_id: str, events: Sequence[Event]) -> list[Row]:
    """A row per event of that run, in order."""
    rows: list[Row] = []
    begun: dict[str, int] = {}
    now = 0
    for seq, event in enumerate(events, first_seq(events)):
        now = max(now, getattr(event, "at", 0))
        row = row_of(seq, now, event)
        match event:
            case EffectIntended(step=place):
                begun[place] = now
                row = msgspec.structs.replace(row, note=f"key {recorded_key(run_id, event)}")
            case ChildIntended(step=place):
                begun[place] = now
            case QuestionAsked(question=place):
                begun[place] = now
            case EffectDone() | EffectRaised() | EffectDoubted() | AttemptFailed() | ChildEnded():
                row = _timed(row, begun.get(event.step))
            case Answered() | QuestionClosed():
                row = _timed(row, begun.get(event.question))
            case _:
                pass
        rows.append(row)
    return rows


def first_seq(events: Sequence[Event]) -> int:
    """Where the first of these events stands: what came before a chapter may be gone."""
    first = events[0] if events else None
    return first.seq if isinstance(first, ChapterBegan) else 1


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
        key=recorded_key(run_id, effect.intent),
        attempt=effect.attempt,
        why=cut if fault is None else f"{fault.type_name}: {fault.message}",
        asks=effect.asks,
        args=effect.intent.args,
    )
