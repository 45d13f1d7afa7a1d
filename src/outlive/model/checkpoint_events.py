"""What can happen to the checkpoints of a run: the events of a journal of their own.

Anybody may append to it (R11), so nothing here is *delivered* and there is no driver. ``at`` is
milliseconds since the journal began and never falls, whatever clocks do: what came last is told
by its seq.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

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
