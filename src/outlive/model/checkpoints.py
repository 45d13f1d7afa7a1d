"""What the checkpoints of a run amount to: the fold of their journal, and who may save.

Pure. Snapshots form a *line*: each is saved behind the one before, and going back cuts the line.
Of each step the last one on the line counts; what was cut off stays in ``saved``. States are as
they stand in records, so that the fold of a long journal is small.
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
    """Where a fork comes from: another run's checkpoints, as they were behind a seq."""

    run_id: str
    seq: int


class CheckpointsBegan(msgspec.Struct, frozen=True, array_like=True, tag=80):
    """The first event of a journal of checkpoints: whose they are."""

    started_at: int
    run_id: str
    family: str
    #: What the user says of the run.
    metadata: bytes
    #: What ids of its snapshots are made of: no two journals have the same.
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
    #: Who has the run to itself, if anybody.
    holder: str = ""
    #: Of an imported one: its id and its time as they were; empty: they follow from its place.
    snapshot_id: str = ""
    created_at: str = ""


class SnapshotRestored(msgspec.Struct, frozen=True, array_like=True, tag=82):
    """Somebody goes on from a snapshot (seq 0: from the beginning), and has the run from here."""

    at: int
    seq: int
    step: str
    #: Empty: whoever comes may save.
    holder: str = ""


class RolledBack(msgspec.Struct, frozen=True, array_like=True, tag=83):
    """What was saved behind this snapshot no longer counts; it stays in the journal."""

    at: int
    seq: int
    step: str
    why: str = ""


class CheckpointsEnded(msgspec.Struct, frozen=True, array_like=True, tag=84):
    """The run is over, as whoever finished it says."""

    at: int
    status: EndStatus
    error: str = ""


class CheckpointsCleared(msgspec.Struct, frozen=True, array_like=True, tag=85):
    """All snapshots were given up; the journal is about to go."""

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
    """A snapshot at its place."""

    seq: int
    event: SnapshotSaved


class Checkpoints:
    """The state of one run's checkpoints."""

    def __init__(self) -> None:
        self.began: CheckpointsBegan | None = None
        self.brief: Brief | None = None
        self.seq = self.at = 0
        #: How many snapshots were given up last, if nothing was saved since.
        self.cleared: int | None = None
        #: Who has the run to itself; empty: nobody.
        self.holder = ""
        #: Who saved or took it last; empty: nobody, or one who has nothing to itself.
        self.last = ""
        #: All that was ever saved, the last one last.
        self.saved: list[Saved] = []
        #: Those that were not taken back.
        self.line: list[Saved] = []
        self._newest: dict[str, Saved] = {}

    def apply(self, event: OfCheckpoints) -> None:
        """Let one event happen."""
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
        """The one that was saved last."""
        return self.line[-1] if self.line else None

    def at_step(self, step: str) -> Saved | None:
        """The one of this step."""
        return self._newest.get(step)

    def at_seq(self, seq: int) -> Saved | None:
        """Any that was ever saved, by its place."""
        place = bisect_right(self.saved, seq, key=lambda saved: saved.seq) - 1
        found = self.saved[place] if place >= 0 else None
        return found if found is not None and found.seq == seq else None

    def time(self, now: int) -> int:
        """This instant (ms since 1970) as the next event shall have it."""
        return 0 if self.began is None else max(self.at, now - self.began.started_at)

    def brief_with(self, events: Sequence[OfCheckpoints]) -> Brief:
        """What a header shows once these have happened, too."""
        brief = self.brief
        for event in events:
            brief = brief_after(brief, event)
        assert brief is not None, "something has happened"
        return brief

    @property
    def last_value(self) -> bytes:
        """The state that the next one may be much like, as it stands in its record."""
        return self.line[-1].event.state if self.line else b""

    def is_free_for(self, holder: str) -> bool:
        """Whether nobody has the run, and nobody else had it since this one did."""
        return not self.holder and self.last in ("", holder)

    def check_holder(self, run_id: str, holder: str) -> None:
        """Whether this one may save.

        Raises:
            LeaseLost: somebody else went on with the run since, or it was ended or deleted.
        """
        if self.holder == holder:
            return
        if self.began is None:
            raise LeaseLost(run_id, "has no checkpoints any more: they were deleted")
        if not self.holder:
            raise LeaseLost(run_id, "was ended or let go of since; resume it to go on")
        heard = datetime.fromtimestamp((self.began.started_at + self.at) / 1000, UTC)
        raise LeaseLost(
            run_id,
            f"is driven by another worker now, last heard of at {heard:%Y-%m-%dT%H:%M:%SZ}; if "
            "that one is dead, resume the run by a DurableRunner(..., exclusive=True): that takes "
            "it, and may then save it, finish it or clean it up",
        )


def brief_after(brief: Brief | None, event: OfCheckpoints) -> Brief:
    """What a header shows once this has happened."""
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
