"""The kinds of events in a record, as bits that can be read without decoding it."""

from __future__ import annotations

from typing import get_args

from outlive.model import events as ev
from outlive.model.checkpoints import (
    CheckpointsBegan,
    CheckpointsCleared,
    CheckpointsEnded,
    RolledBack,
    SnapshotRestored,
    SnapshotSaved,
)
from outlive.model.events import Event
from outlive.model.logs import LogAppended, LogBegan, LogDropped, LogNoted

KINDS: tuple[type[Event], ...] = get_args(Event)

#: One bit per group of kinds, readable in a record's envelope.
KIND_BITS: dict[type, int] = {
    ev.RunStarted: 1,
    ev.Claimed: 2,
    ev.Parked: 2,
    ev.DriveBegan: 2,
    ev.StepDone: 4,
    ev.StepRaised: 4,
    ev.AttemptFailed: 4,
    ev.EffectIntended: 8,
    ev.EffectDone: 16,
    ev.EffectRaised: 16,
    ev.EffectDoubted: 16,
    ev.TimerFired: 32,
    ev.MailRead: 64,
    ev.SignalReceived: 64,
    ev.SignalTaken: 64,
    ev.Replied: 64,
    ev.QuestionAsked: 64,
    ev.Answered: 64,
    ev.QuestionClosed: 64,
    ev.RunCompleted: 128,
    ev.RunFailed: 128,
    ev.RunQuarantined: 128,
    ev.CancelRequested: 64,
    ev.DeadlinePassed: 32,
    ev.RunUndoing: 128,
    ev.RunCancelled: 128,
    ev.KeyHeld: 1,
    ev.KeyKept: 1,
    ev.Marked: 1,
    ev.ChildIntended: 8,
    ev.ChildSpawned: 16,
    ev.ChildEnded: 16,
    ev.ParentTold: 64,
    ev.ChapterBegan: 1,
    ev.RunRetried: 128,
    ev.Patched: 2,
    ev.Forked: 1,
    ev.ForkMade: 128,
    ev.Published: 2,
    ev.Tagged: 2,
    ev.Streamed: 2,
    ev.StreamReset: 2,
    CheckpointsBegan: 1,
    SnapshotSaved: 4,
    SnapshotRestored: 2,
    RolledBack: 2,
    CheckpointsEnded: 128,
    CheckpointsCleared: 128,
    LogBegan: 1,
    LogAppended: 4,
    LogNoted: 2,
    LogDropped: 128,
}
