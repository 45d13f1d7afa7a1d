"""What is appended to a journal of checkpoints, decided from what it holds. All pure."""

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
#: Of an exception's text.
ERROR_CHARS_MAX = 500
#: How a run can end, and how it can stand.
ENDS: Sequence[EndStatus] = get_args(EndStatus)
STATUSES = ("running", *ENDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOwner:
    """Whose checkpoints these are, and what a journal of them would begin with."""

    run_id: str
    now: int
    seed: bytes
    #: What the user says of the run, encoded.
    metadata: bytes
    #: Who asks; empty: anybody.
    holder: str = ""
    #: Whether it may have what nobody has, by saving it.
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
        """The first event, unless it is there."""
        return [] if fold.began is not None else [self.begin()]

    def check(self, fold: Checkpoints) -> None:
        """Whether who asks may go on with it.

        Raises:
            LeaseLost: somebody else went on with the run since, or it was ended or deleted.
        """
        if not (self.takes and fold.is_free_for(self.holder)):
            fold.check_holder(self.run_id, self.holder)


def check_step(step_id: str) -> str:
    """The id itself, if it is one: any text, which is never taken for a path."""
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
    """Refuse a status that there is not."""
    if status not in legal:
        raise UsageError(f"status={status!r} is none; it is {', '.join(legal[:-1])} or {legal[-1]}")


def text_said(name: str, said: str | BaseException) -> str:
    """What somebody says of a run in words, or by the error that it is about."""
    if isinstance(said, BaseException):
        said = f"{type(said).__name__}: {said}"[:ERROR_CHARS_MAX]
    if not isinstance(said, str):
        raise UsageError(f"{name} is a text or an exception, not {said!r}")
    return said.encode(errors="backslashreplace").decode()


def begin(run: CheckpointOwner) -> Decision:
    """The journal is there."""
    return run.beginning


def save(run: CheckpointOwner, draft: SnapshotSaved) -> Decision:
    """A snapshot is there, behind all others."""

    def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
        run.check(fold)
        saved = msgspec.structs.replace(draft, at=fold.time(run.now), holder=run.holder)
        return [*run.beginning(fold), saved]

    return decide


def restore(run: CheckpointOwner, step: str | None, *, takes: bool) -> Decision:
    """Somebody goes on from the latest, or from that of a step. Who takes the run needs none.

    Who does not take it leaves it with whoever has it.
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
    """Nobody has the run any more, if who asks has it."""

    def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
        if fold.holder != run.holder:
            return []
        latest = fold.latest
        seq, step = (0, "") if latest is None else (latest.seq, latest.event.step)
        return [SnapshotRestored(fold.time(run.now), seq, step)]

    return decide


def chosen(fold: Checkpoints, step: str | None) -> Saved | None:
    """The snapshot that is meant."""
    return fold.latest if step is None else fold.at_step(step)


def roll_back(run: CheckpointOwner, step: str, why: str | BaseException) -> Decision:
    """What was saved behind a step no longer counts."""
    said = text_said("why", why)

    def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
        run.check(fold)
        found = get_step(fold, run.run_id, step)
        if found is fold.latest:
            return []
        return [RolledBack(fold.time(run.now), found.seq, step, said)]

    return decide


def get_step(fold: Checkpoints, run_id: str, step: str | None) -> Saved:
    """The snapshot of a step that there must be.

    Raises:
        RunNotFound: the run has no checkpoints.
        UsageError: it has none of this step.
    """
    if fold.latest is None:
        raise RunNotFound(run_id)
    found = chosen(fold, step)
    if found is None:
        steps = ", ".join(saved.event.step for saved in fold.current[-8:])
        raise UsageError(f"run {run_id} has no checkpoint of step {step!r}; the last are {steps}")
    return found


def end(run: CheckpointOwner, status: EndStatus, error: str | BaseException) -> Decision:
    """The run is over."""
    check_status(status, ENDS)
    said = text_said("error", error)

    def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
        if fold.began is None:
            raise RunNotFound(run.run_id)
        run.check(fold)
        return [CheckpointsEnded(fold.time(run.now), status, said)]

    return decide


def clear(run: CheckpointOwner, is_over: Callable[[Checkpoints], bool] | None = None) -> Decision:
    """No snapshot is there any more, if they may go.

    Who says when a run is over has it for its age, whoever holds it: one that is dead never lets
    go, and one that lives is refused at its next save.
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
    """A run that shares another one's family, and has nothing yet."""

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
    """What a fork has of another run: of each step, what counted behind that seq."""
    line = [saved for saved in fold.line if saved.seq <= origin.seq]
    if not line or line[-1].seq != origin.seq:
        raise RunNotFound(origin.run_id)
    newest: dict[str, Saved] = {}
    for saved in line:
        newest.pop(saved.event.step, None)
        newest[saved.event.step] = saved
    return [saved.event for saved in newest.values()]


def fill_fork(run: CheckpointOwner, snapshots: Sequence[SnapshotSaved]) -> Decision:
    """The fork has its snapshots; their states are where they were."""

    def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
        if fold.saved:
            return []
        at = fold.time(run.now)
        return [msgspec.structs.replace(each, at=at, holder=fold.holder) for each in snapshots]

    return decide
