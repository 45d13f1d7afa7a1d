"""One event as one row for people."""

from __future__ import annotations

from typing import TypeAlias, assert_never

import msgspec

from outlive.model import events as ev
from outlive.model.checkpoints import (
    CheckpointsBegan,
    CheckpointsCleared,
    CheckpointsEnded,
    OfCheckpoints,
    RolledBack,
    SnapshotRestored,
    SnapshotSaved,
)
from outlive.model.events import Event
from outlive.model.logs import LogAppended, LogBegan, LogDropped, LogNoted, OfLogs


def of_checkpoints(event: OfCheckpoints) -> dict[str, object]:
    """Describe an event for people."""
    match event:
        case CheckpointsBegan():
            origin = event.origin
            forked = "" if origin is None else f", forked from run {origin.run_id}"
            return {
                "what": "checkpoints began",
                "args": event.metadata,
                "note": f"of run {event.run_id}{forked}",
            }
        case SnapshotSaved():
            schema = f", schema {event.schema}" if event.schema else ""
            note = f"{event.size} bytes{schema}"
            return {"what": "saved", "step": event.step, "value": event.state, "note": note}
        case SnapshotRestored():
            held = f", by {event.holder} alone" if event.holder else ""
            note = f"from seq {event.seq}{held}" if event.seq else f"from the beginning{held}"
            return {"what": "restored", "step": event.step, "note": note}
        case RolledBack():
            why = f": {event.why}" if event.why else ""
            return {"what": "rolled back", "step": event.step, "note": f"to seq {event.seq}{why}"}
        case CheckpointsEnded():
            return {"what": event.status, "note": event.error}
        case CheckpointsCleared():
            return {"what": "cleared", "note": f"{event.count} snapshots"}
        case _:
            assert_never(event)


_UNDO = "undo:"


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event, for people."""

    seq: int
    #: ms since the run's start.
    at: int
    what: str
    branch: str = ""
    step: str = ""
    attempt: int | None = None
    #: Of an attempt, question or child whose begin is in the journal.
    duration_ms: int | None = None
    args: bytes | None = None
    value: bytes | None = None
    error: ev.Fault | None = None
    note: str = ""
    #: Instant (ms since 1970) that a wait or the next attempt is due.
    due_at: int | None = None
    #: The other run that this is about.
    child: str = ""


OfStep: TypeAlias = (
    ev.StepDone
    | ev.StepRaised
    | ev.AttemptFailed
    | ev.EffectIntended
    | ev.EffectDone
    | ev.EffectRaised
    | ev.EffectDoubted
)
OfMail: TypeAlias = (
    ev.SignalReceived
    | ev.SignalTaken
    | ev.Replied
    | ev.QuestionAsked
    | ev.Answered
    | ev.QuestionClosed
    | ev.MailRead
)
OfChild: TypeAlias = ev.ChildIntended | ev.ChildSpawned | ev.ChildEnded | ev.ParentTold
OfEnd: TypeAlias = (
    ev.RunCompleted
    | ev.RunFailed
    | ev.RunCancelled
    | ev.RunQuarantined
    | ev.RunUndoing
    | ev.CancelRequested
    | ev.DeadlinePassed
)
OfRun: TypeAlias = ev.RunStarted | ev.Claimed | ev.DriveBegan | ev.Parked | ev.TimerFired
Beside: TypeAlias = ev.KeyHeld | ev.KeyKept | ev.Marked
OfTold: TypeAlias = ev.Published | ev.Tagged | ev.Streamed | ev.StreamReset
OfCode: TypeAlias = ev.ChapterBegan | ev.RunRetried | ev.Patched | ev.Forked | ev.ForkMade


def row_of(seq: int, at: int, event: Event) -> Row:
    """The row of an event at this seq and time."""
    row = Row(seq=seq, at=at, what="")
    match event:
        case ev.RunStarted() | ev.Claimed() | ev.DriveBegan() | ev.Parked() | ev.TimerFired():
            changes = _of_run(event)
        case ev.KeyHeld() | ev.KeyKept() | ev.Marked():
            changes = _beside(event)
        case (
            ev.SignalReceived()
            | ev.Replied()
            | ev.QuestionAsked()
            | ev.Answered()
            | ev.QuestionClosed()
        ):
            changes = _of_mail(event)
        case ev.MailRead() | ev.SignalTaken():
            changes = _of_mail(event)
        case ev.ChildIntended() | ev.ChildSpawned() | ev.ChildEnded() | ev.ParentTold():
            changes = _of_child(event)
        case (
            ev.RunCompleted()
            | ev.RunFailed()
            | ev.RunCancelled()
            | ev.RunQuarantined()
            | ev.RunUndoing()
        ):
            changes = _of_end(event)
        case ev.CancelRequested() | ev.DeadlinePassed():
            changes = _of_end(event)
        case ev.ChapterBegan() | ev.RunRetried() | ev.Patched() | ev.Forked() | ev.ForkMade():
            changes = _of_code(event)
        case (
            ev.StepDone()
            | ev.StepRaised()
            | ev.AttemptFailed()
            | ev.EffectIntended()
            | ev.EffectDone()
            | ev.EffectRaised()
            | ev.EffectDoubted()
        ):
            changes = _of_step(event)
        case _:
            changes = _of_others(event)
    return msgspec.structs.replace(row, **changes)


def _at(step_id: str) -> dict[str, object]:
    branch, step = split_id(step_id)
    return {"branch": branch, "step": step}


def _of_run(event: OfRun) -> dict[str, object]:
    match event:
        case ev.RunStarted():
            return {"what": "started", "args": event.args, "note": _origin(event)}
        case ev.Claimed():
            found = ", its last driver is dead" if event.certain and event.epoch > 1 else ""
            note = f"by worker {event.worker}, epoch {event.epoch}{found}"
            return {"what": "claimed", "note": note}
        case ev.DriveBegan():
            return {"what": "tried again", "note": "its last driver died with nothing new to show"}
        case ev.Parked(wake_at=wake_at, reason=reason):
            note = reason or ("" if wake_at is not None else "until there is mail")
            return {"what": "parked", "note": note, "due_at": wake_at}
        case ev.TimerFired(timer=timer):
            return {"what": "timer fired", **_at(timer)}
        case _:
            assert_never(event)


def _beside(event: Beside) -> dict[str, object]:
    match event:
        case ev.KeyHeld():
            return {"what": "key held", "note": f"by effect {event.step} of run {event.run_id}"}
        case ev.KeyKept():
            end = {"value": event.value} if event.error is None else {"error": event.error}
            return {"what": "key kept", "note": "its run is gone", **end}
        case ev.Marked():
            return {"what": "marked", "note": f"by {event.by}"}
        case _:
            assert_never(event)


def _origin(event: ev.RunStarted) -> str:
    parts = [f"flow {event.flow}, version {event.version}, Python {event.python}"]
    if event.parent is not None:
        parts.append(f"by run {event.parent}")
    parts += [f"{name} pinned to {value}" for name, value in event.pins.items()]
    return ", ".join(parts)


def _of_code(event: OfCode) -> dict[str, object]:
    match event:
        case ev.ChapterBegan():
            note = f"number {event.number}, {_origin(event.start)}"
            return {"what": "chapter", "args": event.args, "note": note}
        case ev.RunRetried():
            told = f"by {event.by}, " if event.by else ""
            return {
                "what": "retried",
                "note": f"{told}what came from seq {event.since} on is redone",
            }
        case ev.Forked():
            told = f"by {event.by}, " if event.by else ""
            note = f"{told}from run {event.run_id} at seq {event.seq}, {_origin(event.start)}"
            changed: dict[str, object] = {}
            if event.step:
                changed = {"value": from_json(event.value), **_at(event.step)}
            return {"what": "forked", "note": note, **changed}
        case ev.ForkMade():
            told = f", by {event.by}" if event.by else ""
            return {"what": "fork made", "note": f"run {event.fork_id}, at seq {event.seq}{told}"}
        case ev.Patched(place=place):
            return {"what": "patched", "note": "the new way", **_at(place)}
        case _:
            assert_never(event)


def _of_others(event: OfTold | OfCheckpoints | OfLogs) -> dict[str, object]:
    match event:
        case LogBegan() | LogAppended() | LogNoted() | LogDropped():
            return _of_log(event)
        case ev.Published() | ev.Tagged() | ev.Streamed() | ev.StreamReset():
            return _of_told(event)
        case _:
            return of_checkpoints(event)


def _of_log(event: OfLogs) -> dict[str, object]:
    match event:
        case LogBegan():
            return {"what": "log began", "note": f"log {event.log}, key {event.key}"}
        case LogAppended():
            return {"what": "appended", "value": event.value}
        case LogNoted():
            tags = ", ".join(f"{name}={value}" for name, value in event.tags.items())
            return {"what": "noted", "note": tags, "due_at": event.wake_at}
        case LogDropped():
            return {"what": "dropped", "note": f"{event.count} entries"}
        case _:
            assert_never(event)


def _of_told(event: OfTold) -> dict[str, object]:
    match event:
        case ev.Published():
            values = {name: msgspec.Raw(value) for name, value in event.values.items()}
            return {"what": "published", "value": msgspec.msgpack.encode(values)}
        case ev.Tagged():
            tags = ", ".join(f"{name}={value}" for name, value in event.tags.items())
            return {"what": "tagged", "note": tags}
        case ev.Streamed():
            chunks = [msgspec.Raw(chunk) for chunk in event.chunks]
            note = f"to {event.stream}, from offset {event.offset}"
            told = {"what": "streamed", "value": msgspec.msgpack.encode(chunks), "note": note}
        case ev.StreamReset():
            note = f"what it wrote to {event.stream} is withdrawn"
            told = {"what": "stream reset", "note": note}
        case _:
            assert_never(event)
    return {**told, **_at(event.step), "attempt": event.attempt}


def _of_mail(event: OfMail) -> dict[str, object]:
    match event:
        case ev.SignalReceived():
            value = from_json(event.value) if event.is_json else event.value
            note = f"id {event.signal_id}" + (f", by {event.by}" if event.by else "")
            return {"what": "signal", "step": event.name, "value": value, "note": note}
        case ev.SignalTaken():
            return {"what": "taken", "note": f"signal {event.signal_id} as {event.type_name}"}
        case ev.Replied():
            if event.error:
                refused = f"signal {event.signal_id} is refused"
                return {"what": "replied", "note": refused, "error": event.error}
            return {"what": "replied", "note": f"to {event.signal_id}", "value": event.value}
        case ev.QuestionAsked():
            asked = event.text if event.by is None else f"{event.text} (for {event.by})"
            return {"what": "asked", **_at(event.question), "note": asked}
        case ev.Answered():
            told = f"by {event.by}" if event.by else ""
            where = _at(event.question)
            return {"what": "answered", **where, "value": from_json(event.value), "note": told}
        case ev.QuestionClosed():
            return {"what": "closed", **_at(event.question), "note": "nobody waits any longer"}
        case ev.MailRead(unreadable=None):
            return {"what": "mail read", "note": event.why}
        case ev.MailRead():
            return {"what": "mail kept aside", "note": f"mail {event.mail_id!r} {event.why}"}
        case _:
            assert_never(event)


def _of_child(event: OfChild) -> dict[str, object]:
    match event:
        case ev.ChildIntended():
            how = "calls" if event.is_awaited else "spawns"
            note = f"{how} run {event.child_id} of flow {event.flow}"
            told: dict[str, object] = {"what": "child intended", "args": event.args, "note": note}
        case ev.ChildSpawned():
            told = {"what": "child started", "note": f"run {event.child_id}"}
        case ev.ChildEnded():
            value = None if event.error is not None else event.value
            told = {"what": f"child {event.status}", "value": value, "error": event.error}
            told["note"] = f"run {event.child_id}"
        case ev.ParentTold():
            return {"what": "parent told"}
        case _:
            assert_never(event)
    return {**told, **_at(event.step), "child": event.child_id}


def _of_end(event: OfEnd) -> dict[str, object]:
    match event:
        case ev.RunCompleted(value=value):
            return {"what": "completed", "value": value}
        case ev.RunFailed(error=error):
            return {"what": "failed", "error": error}
        case ev.RunCancelled(error=error):
            return {"what": "cancelled", "error": error}
        case ev.RunQuarantined(reason=reason):
            return {"what": "quarantined", "note": reason}
        case ev.RunUndoing(status=status, error=fault):
            note = f"what happened is undone, last first; then the run is {status}"
            return {"what": "undoing", "error": fault, "note": note}
        case ev.CancelRequested(by=by):
            return {"what": "cancel asked", "note": f"by {by}" if by else ""}
        case ev.DeadlinePassed():
            return {"what": "deadline passed", "note": "the flow stops here"}
        case _:
            assert_never(event)


def _of_step(event: OfStep) -> dict[str, object]:
    told: dict[str, object]
    match event:
        case ev.StepDone(args=args, value=value):
            told = {"what": "done", "args": args, "value": value, "duration_ms": event.took}
        case ev.StepRaised(args=args, error=error):
            told = {"what": "raised", "args": args, "error": error, "duration_ms": event.took}
        case ev.AttemptFailed():
            note = _told_by(event) or "nothing happened"
            if event.happened is None:
                note = "nobody knows whether it happened; it is repeated under the same key"
            told = {"what": "attempt failed", "error": event.error, "note": note}
            told |= {"due_at": event.retry_at, "duration_ms": event.took}
        case ev.EffectIntended():
            told = {"what": "intended", "args": event.args or None}
        case ev.EffectDone():
            told = {"what": "done", "value": event.value, "note": _told_by(event)}
        case ev.EffectRaised():
            happened = {True: "it happened", False: "nothing happened", None: "nobody knows"}
            note = ", ".join(filter(None, (happened[event.happened], _told_by(event))))
            told = {"what": "raised", "error": event.error, "note": note}
        case ev.EffectDoubted():
            note = "a human must tell" if event.asks else "it will be settled"
            told = {"what": "in doubt", "error": event.error, "note": note}
        case _:
            assert_never(event)
    return {**told, **_at(event.step), "attempt": event.attempt}


def _told_by(event: ev.AttemptFailed | ev.EffectDone | ev.EffectRaised) -> str:
    told = {
        "check": "told by its check",
        "human": f"told by {event.who or 'a human'}",
        "holder": "told by the holder of its key",
        "driver": "told by its driver",
    }
    return told.get(event.by, "")


def from_json(raw: bytes) -> bytes:
    """A person's JSON as a recorded value; anything else stays as it is."""
    try:
        return msgspec.msgpack.encode(msgspec.json.decode(raw))
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return msgspec.msgpack.encode(raw.decode(errors="replace"))


def split_id(step_id: str) -> tuple[str, str]:
    """Split a step id: ``0.1/search#2`` is in branch ``0.1``; an undo is in that of its effect."""
    undo, place = ("undo ", step_id[len(_UNDO) :]) if step_id.startswith(_UNDO) else ("", step_id)
    branch, slash, step = place.partition("/")
    return (branch, undo + step) if slash else ("", undo + place)
