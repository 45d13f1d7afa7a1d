"""The checkpoints of a run: the fold of their journal, and the rule who may save.

Pure. Snapshots form a *line*: each is saved after the one before, and a rollback cuts the line.
Of each step the last one on the line counts; what was cut off stays in ``saved``. States stay in
the form that records have, so that the fold of a long journal is small.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias, assert_never

import msgspec

from outlive.errors import LeaseLost
from outlive.model.shared import Brief

#: How a checkpointed run can end.
EndStatus: TypeAlias = Literal["succeeded", "failed", "canceled"]


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """The origin of a fork: another run's checkpoints up to a seq."""

    run_id: str
    seq: int


class CheckpointsBegan(msgspec.Struct, frozen=True, array_like=True, tag=80):
    """The first event of a journal of checkpoints: whose they are."""

    started_at: int
    run_id: str
    family: str
    #: The user's metadata of the run.
    metadata: bytes
    #: The seed of its snapshot ids: no two journals have the same.
    seed: bytes
    origin: Origin | None = None


class SnapshotSaved(msgspec.Struct, frozen=True, array_like=True, tag=81):
    """The state at a step was saved; an earlier one of the same step no longer counts."""

    at: int
    step: str
    state: bytes
    metadata: bytes
    #: Bytes of the whole state as JSON, however little of it was new.
    size: int
    #: The version of the state's own schema; empty: nobody said.
    schema: str = ""
    #: The holder that has the run to itself, if there is one.
    holder: str = ""
    #: Of an imported snapshot: its original id and time; empty: they follow from its place.
    snapshot_id: str = ""
    created_at: str = ""


class SnapshotRestored(msgspec.Struct, frozen=True, array_like=True, tag=82):
    """A holder continues from a snapshot (seq 0: from the beginning) and has the run since then."""

    at: int
    seq: int
    step: str
    #: Empty: anybody may save.
    holder: str = ""


class RolledBack(msgspec.Struct, frozen=True, array_like=True, tag=83):
    """Snapshots after this one no longer count; they stay in the journal."""

    at: int
    seq: int
    step: str
    why: str = ""


class CheckpointsEnded(msgspec.Struct, frozen=True, array_like=True, tag=84):
    """The run ended, as its owner says."""

    at: int
    status: EndStatus
    error: str = ""


class CheckpointsCleared(msgspec.Struct, frozen=True, array_like=True, tag=85):
    """All snapshots were deleted; the journal is about to be."""

    at: int
    count: int


OfCheckpoints: TypeAlias = (
    CheckpointsBegan
    | SnapshotSaved
    | SnapshotRestored
    | RolledBack
    | CheckpointsEnded
    | CheckpointsCleared
)


class Saved(msgspec.Struct, frozen=True):
    """A snapshot and its seq."""

    seq: int
    event: SnapshotSaved


class Checkpoints:
    """The state of one run's checkpoints."""

    def __init__(self) -> None:
        self.began: CheckpointsBegan | None = None
        self.brief: Brief | None = None
        self.seq = self.at = 0
        #: The number of snapshots that were deleted last, if none was saved since.
        self.cleared: int | None = None
        #: The holder that has the run to itself; empty: nobody.
        self.holder = ""
        #: The holder that saved or took it last; empty: nobody, or one without exclusive hold.
        self.last = ""
        #: All snapshots that were ever saved, the last one last.
        self.saved: list[Saved] = []
        #: Snapshots that were not rolled back.
        self.line: list[Saved] = []
        self._newest: dict[str, Saved] = {}

    def apply(self, event: OfCheckpoints) -> None:
        """Apply one event."""
        self.seq += 1
        self.brief = brief_after(self.brief, event)
        if not isinstance(event, CheckpointsBegan):
            self.at = max(self.at, event.at)
        match event:
            case CheckpointsBegan():
                self.began = event
            case SnapshotSaved(holder=holder):
                self.holder = self.last = holder
                self._save(Saved(self.seq, event))
            case SnapshotRestored(holder=holder):
                self.holder, self.last = holder, holder or self.last
            case RolledBack(seq=seq):
                self._cut(seq)
            case CheckpointsEnded():
                self.holder = ""
            case CheckpointsCleared(count=count):
                self.holder = self.last = ""
                self.saved, self.line, self._newest = [], [], {}
                self.cleared = count
            case _:
                assert_never(event)

    def _save(self, saved: Saved) -> None:
        self.cleared = None
        self.saved.append(saved)
        self._count(saved)

    def _count(self, saved: Saved) -> None:
        self.line.append(saved)
        self._newest.pop(saved.event.step, None)  # so that it comes last
        self._newest[saved.event.step] = saved

    def _cut(self, seq: int) -> None:
        kept = self.line[: bisect_right(self.line, seq, key=lambda saved: saved.seq)]
        self.line, self._newest = [], {}
        for saved in kept:
            self._count(saved)

    @property
    def current(self) -> Sequence[Saved]:
        """One per step, in the order in which they were saved."""
        return list(self._newest.values())

    @property
    def latest(self) -> Saved | None:
        """The snapshot that was saved last."""
        return self.line[-1] if self.line else None

    def at_step(self, step: str) -> Saved | None:
        """The snapshot of this step."""
        return self._newest.get(step)

    def at_seq(self, seq: int) -> Saved | None:
        """Any snapshot that was ever saved, by its seq."""
        place = bisect_right(self.saved, seq, key=lambda saved: saved.seq) - 1
        found = self.saved[place] if place >= 0 else None
        return found if found is not None and found.seq == seq else None

    def time(self, now: int) -> int:
        """This instant (ms since 1970) as the time of the next event."""
        return 0 if self.began is None else max(self.at, now - self.began.started_at)

    def brief_with(self, events: Sequence[OfCheckpoints]) -> Brief:
        """Return the header's summary as it will be after these events."""
        brief = self.brief
        for event in events:
            brief = brief_after(brief, event)
        assert brief is not None, "something has happened"
        return brief

    @property
    def last_value(self) -> bytes:
        """The recorded form of a state that the next one may resemble."""
        return self.line[-1].event.state if self.line else b""

    def mark(self) -> None:
        """It is read again instead."""

    def go_back(self, mark: None) -> None:
        """As above."""

    def is_free_for(self, holder: str) -> bool:
        """Whether nobody has the run, and nobody else had it since this holder did."""
        return not self.holder and self.last in ("", holder)

    def check_holder(self, run_id: str, holder: str) -> None:
        """Check that this holder may save.

        Raises:
            LeaseLost: somebody else continued the run since, or it was ended or deleted.
        """
        if self.holder == holder:
            return
        if self.began is None:
            raise LeaseLost(run_id, "has no checkpoints any more: they were deleted")
        if not self.holder:
            raise LeaseLost(run_id, "was ended or released since; resume it to continue")
        heard = datetime.fromtimestamp((self.began.started_at + self.at) / 1000, UTC)
        raise LeaseLost(
            run_id,
            f"is driven by another worker now, last heard of at {heard:%Y-%m-%dT%H:%M:%SZ}; if "
            "that one is dead, resume the run by a DurableRunner(..., exclusive=True): that takes "
            "it, and may then save it, finish it or clean it up",
        )


def brief_after(brief: Brief | None, event: OfCheckpoints) -> Brief:
    """Return the header's summary as it will be after this event."""
    if isinstance(event, CheckpointsBegan):
        return Brief(started_at=event.started_at, family=event.family, status="running")
    assert brief is not None, "a journal of checkpoints begins with CheckpointsBegan"
    match event:
        case SnapshotSaved() | SnapshotRestored() | RolledBack():
            return brief if brief.status == "running" else _running(brief)
        case CheckpointsEnded(status=status, at=at):
            return msgspec.structs.replace(brief, status=status, ended_at=brief.started_at + at)
        case CheckpointsCleared(at=at):
            return msgspec.structs.replace(brief, status="cleared", ended_at=brief.started_at + at)
        case _:
            assert_never(event)


def _running(brief: Brief) -> Brief:
    return msgspec.structs.replace(brief, status="running", ended_at=None)
