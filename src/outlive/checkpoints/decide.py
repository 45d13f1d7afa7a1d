"""Decisions: the events that are appended to a journal of checkpoints. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, get_args

import msgspec

from outlive.errors import RunIdTaken, RunNotFound, UsageError
from outlive.model.checkpoints import (
    Checkpoints,
    CheckpointsBegan,
    CheckpointsCleared,
    CheckpointsEnded,
    EndStatus,
    OfCheckpoints,
    Origin,
    RolledBack,
    Saved,
    SnapshotRestored,
    SnapshotSaved,
)
from outlive.model.ids import family_of

Decision: TypeAlias = Callable[[Checkpoints], Sequence[OfCheckpoints]]

STEP_BYTES_MAX = 1024
#: The length of an exception's text.
ERROR_CHARS_MAX = 500
#: The ways a run can end, and all its statuses.
ENDS: Sequence[EndStatus] = get_args(EndStatus)
STATUSES = ("running", *ENDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOwner:
    """The run whose checkpoints are meant, and the first event of its journal."""

    run_id: str
    now: int
    seed: bytes
    #: The user's metadata of the run, encoded.
    metadata: bytes
    #: The holder that asks; empty: anybody.
    holder: str = ""
    #: Whether saving takes the run if nobody has it.
    takes: bool = False

    def begin(self, started_at: int | None = None) -> CheckpointsBegan:
        """The first event."""
        return CheckpointsBegan(
            started_at=self.now if started_at is None else started_at,
            run_id=self.run_id,
            family=family_of(self.seed),
            metadata=self.metadata,
            seed=self.seed,
        )

    def beginning(self, fold: Checkpoints) -> list[OfCheckpoints]:
        """The first event, unless the journal has it."""
        return [] if fold.began is not None else [self.begin()]

    def check(self, fold: Checkpoints) -> None:
        """Check that the holder may continue the run.

        Raises:
            LeaseLost: somebody else continued the run since, or it was ended or deleted.
        """
        if not (self.takes and fold.is_free_for(self.holder)):
            fold.check_holder(self.run_id, self.holder)


def check_step(step_id: str) -> str:
    """Check a step id: any text, which is never used as a path."""
    if type(step_id) is not str or not step_id:
        raise UsageError(f"a step id is a non-empty text, not {step_id!r}")
    try:
        size = len(step_id.encode())
    except UnicodeEncodeError:
        raise UsageError("a step id can't hold a lone surrogate") from None
    if size > STEP_BYTES_MAX:
        raise UsageError(f"a step id has at most {STEP_BYTES_MAX} bytes, this one {size}")
    return step_id


def check_status(status: str, legal: Sequence[str]) -> None:
    """Refuse an unknown status."""
    if status not in legal:
        known = f"{', '.join(legal[:-1])} or {legal[-1]}"
        raise UsageError(f"status={status!r} is not a status; use {known}")


def text_said(name: str, said: str | BaseException) -> str:
    """A reason as text: as given, or from an exception."""
    if isinstance(said, BaseException):
        said = f"{type(said).__name__}: {said}"[:ERROR_CHARS_MAX]
    if not isinstance(said, str):
        raise UsageError(f"{name} is a text or an exception, not {said!r}")
    return said.encode(errors="backslashreplace").decode()


def begin(run: CheckpointOwner) -> Decision:
    """Begin the journal."""
    return run.beginning


def save(run: CheckpointOwner, draft: SnapshotSaved) -> Decision:
    """Append a snapshot."""

    def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
        run.check(fold)
        saved = msgspec.structs.replace(draft, at=fold.time(run.now), holder=run.holder)
        return [*run.beginning(fold), saved]

    return decide


def restore(run: CheckpointOwner, step: str | None, *, takes: bool) -> Decision:
    """Continue from the latest snapshot, or from that of a step; to take the run needs none.

    A holder that does not take the run leaves it with its current one.
    """
    if step is not None:
        check_step(step)

    def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
        found = chosen(fold, step)
        if found is None and not takes:
            return []
        at = fold.time(run.now)
        seq, name = (0, "") if found is None else (found.seq, found.event.step)
        holder = run.holder if takes else fold.holder
        return [*run.beginning(fold), SnapshotRestored(at, seq, name, holder)]

    return decide


def let_go(run: CheckpointOwner) -> Decision:
    """Release the run, if this holder has it."""

    def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
        if fold.holder != run.holder:
            return []
        latest = fold.latest
        seq, step = (0, "") if latest is None else (latest.seq, latest.event.step)
        return [SnapshotRestored(fold.time(run.now), seq, step)]

    return decide


def chosen(fold: Checkpoints, step: str | None) -> Saved | None:
    """The latest snapshot, or that of a step."""
    return fold.latest if step is None else fold.at_step(step)


def roll_back(run: CheckpointOwner, step: str, why: str | BaseException) -> Decision:
    """Roll back to a step: later snapshots no longer count."""
    said = text_said("why", why)

    def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
        run.check(fold)
        found = get_step(fold, run.run_id, step)
        if found is fold.latest:
            return []
        return [RolledBack(fold.time(run.now), found.seq, step, said)]

    return decide


def get_step(fold: Checkpoints, run_id: str, step: str | None) -> Saved:
    """The snapshot of a step that must exist.

    Raises:
        RunNotFound: the run has no checkpoints.
        UsageError: it has no checkpoint of this step.
    """
    if fold.latest is None:
        raise RunNotFound(run_id)
    found = chosen(fold, step)
    if found is None:
        steps = ", ".join(saved.event.step for saved in fold.current[-8:])
        raise UsageError(f"run {run_id} has no checkpoint of step {step!r}; the last are {steps}")
    return found


def end(run: CheckpointOwner, status: EndStatus, error: str | BaseException) -> Decision:
    """End the run."""
    check_status(status, ENDS)
    said = text_said("error", error)

    def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
        if fold.began is None:
            raise RunNotFound(run.run_id)
        run.check(fold)
        return [CheckpointsEnded(fold.time(run.now), status, said)]

    return decide


def clear(run: CheckpointOwner, is_over: Callable[[Checkpoints], bool] | None = None) -> Decision:
    """Delete all snapshots, if they may be deleted.

    With ``is_over`` the age decides, whoever holds the run: a dead holder never releases it, and a
    living one is refused at its next save.
    """

    def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
        if fold.brief is None or fold.brief.status == "cleared":
            return []
        if is_over is None:
            if fold.holder:
                fold.check_holder(run.run_id, run.holder)
        elif not is_over(fold):
            return []
        return [CheckpointsCleared(fold.time(run.now), len(fold.current))]

    return decide


def begin_fork(run: CheckpointOwner, origin: Origin, family: str) -> Decision:
    """Begin a run in another run's family, without snapshots."""

    def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
        began = fold.began
        if began is None:
            return [msgspec.structs.replace(run.begin(), family=family, origin=origin)]
        is_begun = began.origin is not None and began.origin.run_id == origin.run_id
        if not is_begun or (fold.saved and began.origin != origin):
            raise RunIdTaken(run.run_id, "it has checkpoints of its own")
        return []

    return decide


def shared(fold: Checkpoints, origin: Origin) -> list[SnapshotSaved]:
    """The snapshots that a fork shares: for each step, the one that counted at that seq."""
    line = [saved for saved in fold.line if saved.seq <= origin.seq]
    if not line or line[-1].seq != origin.seq:
        raise RunNotFound(origin.run_id)
    newest: dict[str, Saved] = {}
    for saved in line:
        newest.pop(saved.event.step, None)
        newest[saved.event.step] = saved
    return [saved.event for saved in newest.values()]


def fill_fork(run: CheckpointOwner, snapshots: Sequence[SnapshotSaved]) -> Decision:
    """Add the shared snapshots to the fork; their states stay where they are."""

    def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
        if fold.saved:
            return []
        at = fold.time(run.now)
        return [msgspec.structs.replace(each, at=at, holder=fold.holder) for each in snapshots]

    return decide
