"""The values inside events: where they stand, and how they change on their way to the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from outlive.model.checkpoint_events import CheckpointsBegan, SnapshotSaved
from outlive.model.events import (
    ChapterBegan,
    ChildEnded,
    ChildIntended,
    EffectDone,
    EffectIntended,
    Event,
    Forked,
    Replied,
    RunCompleted,
    RunStarted,
    SignalReceived,
    StepDone,
    StepRaised,
    Undoable,
)

Change: TypeAlias = Callable[[bytes], bytes]

_FIELDS: Final[dict[type, tuple[str, ...]]] = {
    StepDone: ("args", "value"),
    StepRaised: ("args",),
    EffectIntended: ("args",),
    EffectDone: ("value",),
    RunStarted: ("args",),
    SignalReceived: ("value",),
    Replied: ("value",),
    RunCompleted: ("value",),
    ChildIntended: ("args",),
    ChildEnded: ("value",),
    ChapterBegan: ("args",),
    Undoable: ("args",),
    CheckpointsBegan: ("metadata",),
    SnapshotSaved: ("state", "metadata"),
}


def with_values(event: Event, change: Change) -> Event:
    """The event with each value of a user's as this makes it; itself if nothing changes."""
    changed: Event = _with(event, change)
    return changed


def _with(event: Any, change: Change) -> Any:
    if type(event) is SignalReceived and event.is_json:
        return event  # from someone who does not know our codec
    changed: dict[str, Any] = {}
    for name in _FIELDS.get(type(event), ()):
        value = getattr(event, name)
        other = change(value)
        if other is not value:
            changed[name] = other
    if type(event) in (ChapterBegan, Forked):
        changed["start"] = _with(event.start, change)
    if type(event) is ChapterBegan:
        changed["signals"] = [_with(each, change) for each in event.signals]
        changed["happened"] = [_with(each, change) for each in event.happened]
    elif type(event) is Undoable:
        changed["end"] = _with(event.end, change)
    return msgspec.structs.replace(event, **changed) if changed else event
