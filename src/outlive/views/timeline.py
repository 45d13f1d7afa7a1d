"""A run's journal as rows: what happened, when, in which branch, how long it took.

Pure functions from events. A row keeps values as they were recorded; rendering them is the
caller's (``values.preview`` for people, ``values.as_json`` for programs).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec

from outlive.model.events import (
    AttemptFailed,
    Claimed,
    EffectDone,
    EffectDoubted,
    EffectIntended,
    EffectRaised,
    Event,
    Fault,
    KeyHeld,
    MailRead,
    Parked,
    RunCompleted,
    RunFailed,
    RunQuarantined,
    RunStarted,
    StepDone,
    StepRaised,
    TimerFired,
)
from outlive.model.run import OpenEffect, fold


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event, for people."""

    seq: int
    #: ms since the run's start.
    at: int
    what: str
    branch: str = ""
    step: str = ""
    attempt: int | None = None
    #: Of an attempt whose begin is in the journal.
    duration_ms: int | None = None
    args: bytes | None = None
    value: bytes | None = None
    error: Fault | None = None
    note: str = ""
    #: Instant (ms since 1970) that a wait or the next attempt is due.
    due_at: int | None = None


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """An effect of which nobody knows whether it happened."""

    step: str
    key: str
    attempt: int
    why: str
    #: Only a human can tell; otherwise it is settled by itself.
    asks: bool
    args: bytes


def timeline(events: Sequence[Event]) -> list[Row]:
    """A row per event, in order."""
    rows: list[Row] = []
    begun: dict[str, int] = {}
    now = 0
    for seq, event in enumerate(events, 1):
        now = max(now, getattr(event, "at", 0))
        row = _row(seq, now, event)
        if isinstance(event, EffectIntended):
            begun[event.step] = now
        elif isinstance(event, (EffectDone, EffectRaised, EffectDoubted, AttemptFailed)):
            since = begun.get(event.step)
            took = None if since is None else now - since
            row = msgspec.structs.replace(row, duration_ms=took)
        rows.append(row)
    return rows


def _row(seq: int, at: int, event: Event) -> Row:
    match event:
        case RunStarted() | Claimed() | Parked() | MailRead() | KeyHeld():
            return _of_run(seq, at, event)
        case RunCompleted(value=value):
            return Row(seq=seq, at=at, what="completed", value=value)
        case RunFailed(error=error):
            return Row(seq=seq, at=at, what="failed", error=error)
        case RunQuarantined(reason=reason):
            return Row(seq=seq, at=at, what="quarantined", note=reason)
        case TimerFired(timer=timer):
            branch, step = split_id(timer)
            return Row(seq=seq, at=at, what="timer fired", branch=branch, step=step)
        case _:
            return _of_step(seq, at, event)


def _of_run(seq: int, at: int, event: RunStarted | Claimed | Parked | MailRead | KeyHeld) -> Row:
    match event:
        case RunStarted():
            note = f"flow {event.flow}, version {event.version}, Python {event.python}"
            return Row(seq=seq, at=at, what="started", args=event.args, note=note)
        case Claimed():
            found = ", its last driver is dead" if event.certain and event.epoch > 1 else ""
            note = f"by worker {event.worker}, epoch {event.epoch}{found}"
            return Row(seq=seq, at=at, what="claimed", note=note)
        case Parked(wake_at=wake_at, reason=reason):
            note = reason or ("" if wake_at is not None else "until there is mail")
            return Row(seq=seq, at=at, what="parked", note=note, due_at=wake_at)
        case MailRead(why=why):
            return Row(seq=seq, at=at, what="mail read", note=why)
        case KeyHeld():
            note = f"by effect {event.step} of run {event.run_id}"
            return Row(seq=seq, at=at, what="key held", note=note)
        case _:
            assert_never(event)


def _of_step(
    seq: int,
    at: int,
    event: StepDone
    | StepRaised
    | AttemptFailed
    | EffectIntended
    | EffectDone
    | EffectRaised
    | EffectDoubted,
) -> Row:
    branch, step = split_id(event.step)
    row = Row(seq=seq, at=at, what="", branch=branch, step=step, attempt=event.attempt)
    changes: dict[str, object]
    match event:
        case StepDone(args=args, value=value):
            changes = {"what": "done", "args": args, "value": value}
        case StepRaised(args=args, error=error):
            changes = {"what": "raised", "args": args, "error": error}
        case AttemptFailed():
            note = _told_by(event.by) or "nothing happened"
            changes = {"what": "attempt failed", "error": event.error, "note": note}
            changes["due_at"] = event.retry_at
        case EffectIntended():
            note = f"key {event.key}"
            changes = {"what": "intended", "args": event.args or None, "note": note}
        case EffectDone():
            changes = {"what": "done", "value": event.value, "note": _told_by(event.by)}
        case EffectRaised():
            happened = {True: "it happened", False: "nothing happened", None: "nobody knows"}
            note = ", ".join(filter(None, (happened[event.happened], _told_by(event.by))))
            changes = {"what": "raised", "error": event.error, "note": note}
        case EffectDoubted():
            note = "a human must tell" if event.asks else "it will be settled"
            changes = {"what": "in doubt", "error": event.error, "note": note}
        case _:
            assert_never(event)
    return msgspec.structs.replace(row, **changes)


def _told_by(by: str) -> str:
    told = {
        "check": "told by its check",
        "human": "told by a human",
        "holder": "told by the holder of its key",
        "driver": "told by its driver",
    }
    return told.get(by, "")


def split_id(step_id: str) -> tuple[str, str]:
    """Branch and place in it: ``0.1/search#2`` is in branch ``0.1``."""
    branch, slash, step = step_id.partition("/")
    return (branch, step) if slash else ("", step_id)


def doubts(events: Iterable[Event], *, driven: bool) -> list[Doubt]:
    """The effects that are in doubt as the journal stands, in the order of their intents.

    An attempt that was begun and not ended is one, unless somebody still drives the run.
    """
    effects = fold(events).effects
    return [
        _doubt(step, effect)
        for step, effect in effects.items()
        if effect.retry_at is None and (effect.doubt is not None or not driven)
    ]


def _doubt(step: str, effect: OpenEffect) -> Doubt:
    fault = effect.doubt
    cut = "its driver ended before it did"
    return Doubt(
        step=step,
        key=effect.intent.key,
        attempt=effect.attempt,
        why=cut if fault is None else f"{fault.type_name}: {fault.message}",
        asks=effect.asks,
        args=effect.intent.args,
    )
