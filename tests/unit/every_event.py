"""One event of every kind, as a journal might hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.journal.codec.codec import Registry, codec_for
from outlive.model.checkpoints import (
    CheckpointsBegan,
    CheckpointsCleared,
    CheckpointsEnded,
    Origin,
    RolledBack,
    SnapshotRestored,
    SnapshotSaved,
)
from outlive.model.events import (
    Answered,
    AttemptFailed,
    CancelRequested,
    ChapterBegan,
    ChildEnded,
    ChildIntended,
    ChildSpawned,
    Claimed,
    DeadlinePassed,
    DriveBegan,
    EffectDone,
    EffectDoubted,
    EffectIntended,
    EffectRaised,
    Event,
    Fault,
    Forked,
    ForkMade,
    KeyHeld,
    KeyKept,
    MailRead,
    Marked,
    ParentTold,
    Parked,
    Patched,
    QuestionAsked,
    QuestionClosed,
    Replied,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunQuarantined,
    RunRetried,
    RunStarted,
    RunUndoing,
    SignalReceived,
    SignalTaken,
    StepDone,
    StepRaised,
    TimerFired,
)


def encoded(value: object, *hints: Any) -> bytes:
    return codec_for(hints, Registry()).encode(value)


FAULT = Fault("BankError", "closed")
STARTED = RunStarted(
    flow="buy",
    version="1",
    args=encoded({"order": "7"}),
    digest=b"d",
    seed=b"s",
    python="3.11",
    started_at=1_000_000,
    family="r",
)


EVERY_EVENT: Sequence[Event] = (
    STARTED,
    Claimed(0, 1, "w1", True),
    StepDone(5, "0.1/search#2", 1, encoded({}), b"", encoded(["hit"])),
    StepRaised(6, "0/plan#1", 2, encoded({}), b"", FAULT),
    AttemptFailed(7, "0/read#1", 1, FAULT, 1_000_500),
    EffectIntended(10, "0/pay#1", 1, encoded({"cents": 5}), b"", "pay:7", 60_000),
    EffectDoubted(30, "0/pay#1", 1, FAULT, True, True),
    Parked(31, None),
    Claimed(20, 2, "w2", True),
    MailRead(40, "m", "resumed"),
    EffectDone(50, "0/pay#1", 1, encoded("ok"), "human"),
    EffectIntended(60, "0/mail#1", 1, encoded({}), b"", "mail:7", 60_000),
    EffectRaised(65, "0/mail#1", 1, FAULT, None, "check"),
    TimerFired(70, "0/sleep#1"),
    Parked(71, 5_000_000),
    RunQuarantined(72, "too often"),
    RunCompleted(73, encoded("done")),
    RunFailed(74, FAULT),
    KeyHeld("r", "0/pay#1", b""),
    KeyKept(74, encoded("ok")),
    Marked(74, "w1"),
    SignalReceived(75, "go", "s1", b'{"a": 1}', True),
    Replied(76, "s1", encoded("hi")),
    SignalTaken(76, "s1", "Refund"),
    QuestionAsked(80, "0/ask#1", "How many?", b'{"type": "integer"}', b"", "ann"),
    Answered(95, "0/ask#1", b"7", "bob"),
    QuestionClosed(96, "0/ask#1"),
    ChildIntended(97, "0/call#1", "r.c", "pack", encoded({}), b"", True),
    ChildSpawned(98, "0/call#1", "r.c"),
    ChildEnded(107, "0/call#1", "r.c", "failed", b"", FAULT),
    CancelRequested(108, "ann"),
    DeadlinePassed(109),
    RunUndoing(110, "failed", FAULT),
    EffectIntended(111, "undo:0/pay#1", 1, b"", b"", "k", 60_000),
    RunCancelled(112, FAULT),
    ParentTold(113),
    Patched(114, "0/patched:new#1"),
    RunRetried(115, 9, "ann"),
    ForkMade(115, "f", 3),
    Forked(115, "p", 3, b"l" * 16, 1, bytes(16), STARTED, b"s", "0/plan#1", b"7"),
    ChapterBegan(116, 40, 1, 2, STARTED, encoded({})),
    DriveBegan(116),
    CheckpointsBegan(1_000_000, "r", "outlive/f", encoded({"agent": "a"}), b"s", Origin("q", 3)),
    SnapshotSaved(117, "fetch", encoded({"n": 1}), encoded({}), 4, "2", "h", "id", "2025"),
    SnapshotRestored(118, 2, "fetch", "h"),
    RolledBack(119, 2, "fetch", "no"),
    CheckpointsEnded(120, "failed", "no money"),
    CheckpointsCleared(121, 1),
)
