"""Failures of runs and steps."""

from __future__ import annotations


class OutliveError(Exception):
    """Something Outlive refuses or could not do."""

    exit_code = 1


class UsageError(OutliveError):
    """The caller asked for something that can't be; the message says what to do instead."""

    exit_code = 2


class RunError(OutliveError):
    """A run or a step of it ended badly."""


class StoreError(OutliveError):
    """The store or its data is not as it should be."""

    exit_code = 3


class StepFailed(RunError):
    """A step raised an error of a type that its decorator does not declare (``raises=``).

    ``type_name`` and ``message`` say which.
    """

    def __init__(self, type_name: str, message: str) -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name)
        self.type_name, self.message = type_name, message


class TimedOut(RunError, TimeoutError):
    """A time limit passed; also a ``TimeoutError``."""


class InDoubt(RunError):
    """Nobody knows whether an effect happened: find out, then ``outlive resolve RUN STEP``.

    A flow gets it for an effect with ``doubt="fail"``, and whoever waits for a run with
    ``on_wait="raise"`` for one that a human has to settle; then ``run_id`` says which run's.
    """

    def __init__(self, step: str, key: str, why: str) -> None:
        super().__init__(f"effect {step} (key {key}) is in doubt: {why}")
        self.step, self.key, self.why = step, key, why
        self.run_id = ""

    def of_run(self, run_id: str, said: str) -> InDoubt:
        """The same error for a caller that waits for that run."""
        self.run_id, self.args = run_id, (said,)
        return self


class Waiting(RunError):
    """The run waits for somebody, and its caller passed ``on_wait="raise"``.

    ``kind`` is question, signal, mismatch, stopped or unattended; ``step`` says which question or
    signal, ``why`` what was recorded about it, ``command`` what to type. The run itself waits on.
    """

    def __init__(  # noqa: PLR0913  # facts, each by its name
        self,
        said: str,
        run_id: str,
        flow: str,
        kind: str,
        step: str = "",
        why: str = "",
        command: str = "",
    ) -> None:
        super().__init__(said)
        self.said, self.run_id, self.flow, self.kind = said, run_id, flow, kind
        self.step, self.why, self.command = step, why, command


class KeyTaken(RunError):
    """Another step holds this idempotency key with other arguments; put more into the key."""

    def __init__(self, key: str, holder: str, wanted: str) -> None:
        super().__init__(
            f"key {key!r} is held by {holder} with other arguments; {wanted} can't have it: "
            "a key names one effect, so put what distinguishes the two into it"
        )
        self.key, self.holder, self.wanted = key, holder, wanted


class NotApproved(RunError):
    """An effect that needs a human's yes was called without one for these arguments, or twice."""

    def __init__(self, effect: str, step: str) -> None:
        super().__init__(
            f"{step} needs a human's yes to exactly these arguments, and each yes counts once: "
            f"call `await outlive.approve({effect}, ...)` with the arguments of this call first"
        )
        self.effect, self.step = effect, step


class NotHappened(RunError):
    """Raise it in an effect's body to say: nothing happened, it is safe to try again."""


class RunFailed(RunError):
    """The run ended as failed; the message holds the flow's error, and so does ``__cause__``."""

    def __init__(self, run_id: str, type_name: str, message: str) -> None:
        super().__init__(f"run {run_id} failed: {type_name}: {message}")
        self.run_id, self.type_name, self.message = run_id, type_name, message


class RunCancelled(RunError):
    """The run stopped because somebody asked it to."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} was cancelled")
        self.run_id = run_id


class RunQuarantined(RunError):
    """The run killed its workers too often; look at it, then ``outlive resume RUN``."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(f"run {run_id} is quarantined: {reason}; look at it, then resume it")
        self.run_id, self.reason = run_id, reason


class RequestRefused(RunError):
    """The flow could not read a request; send one of the type that it waits for, by a new id."""

    def __init__(self, run_id: str, request_id: str, why: str) -> None:
        super().__init__(
            f"run {run_id} could not read request {request_id}: {why}; "
            "send what the flow waits for, with another id"
        )
        self.run_id, self.request_id, self.why = run_id, request_id, why


class NoReply(RunError):
    """The run ended before it replied to a request; its outcome says why."""

    def __init__(self, run_id: str, request_id: str, status: str, reason: str = "") -> None:
        ended = f"{status}: {reason}" if reason else status
        super().__init__(
            f"run {run_id} ended ({ended}) without a reply to request {request_id}; "
            f"`outlive show {run_id}` tells what happened"
        )
        self.run_id, self.request_id = run_id, request_id
        self.status, self.reason = status, reason


class ReplayMismatch(RunError):
    """The code no longer does what the journal says it did; the message shows both sides."""

    def __init__(self, run_id: str, seq: int, *, recorded: str, code: str, remedy: str) -> None:
        super().__init__(
            f"run {run_id}, seq {seq}: the journal has {recorded}, the code {code}; {remedy}"
        )
        self.run_id, self.seq = run_id, seq
        self.recorded, self.code, self.remedy = recorded, code, remedy


class IllegalTransition(RunError):
    """A handler asked for a state that may not follow; return a legal one, or add the move."""

    def __init__(self, machine: str, state: str, target: str, legal: list[str]) -> None:
        super().__init__(
            f"{machine}: its handler of {state} returned {target}, which may not follow; "
            f"legal is {', '.join(legal)}: return one of these, or add the move to `moves`"
        )
        self.machine, self.state, self.target, self.legal = machine, state, target, legal


class StoreUnavailable(StoreError):
    """The store can't be opened, locked or reached; the message says what to look at."""


class StoreFailed(StoreError):
    """A write failed; nothing after it was acknowledged. Repair the store and start again."""


class WentBack(StoreFailed):
    """The store has less than it acknowledged; bring the newer data back, or accept the loss.

    A standby that was behind took over, or a backup was restored. Nothing is driven until
    somebody says `outlive accept-loss`: to go on would do again what was done.
    """

    exit_code = 4

    def __init__(self, place: str, run_id: str, known: int, found: int, timeline: int) -> None:
        super().__init__(
            f"{place} went back: run {run_id} was stored up to {known} and now ends at {found}; "
            "a standby that was behind took over, or a backup was restored. Nothing is driven "
            "from there: bring the newer data back, or accept that what is missing is done again: "
            f"`outlive accept-loss --timeline {timeline}`"
        )
        self.place, self.run_id, self.timeline = place, run_id, timeline
        self.known, self.found = known, found


class UnsafeSettings(StoreError):
    """The store would lose acknowledged events with these settings, which the message names."""


class WrongVersion(StoreError):
    """A schema (also of a checkpointed state), record format or codec of another version."""


class IncompatibleCheckpoint(StoreError):
    """A loop's snapshot has another schema than this code, and no upcaster converts it."""

    def __init__(self, found: object, wanted: object = None, what: str = "the checkpoint") -> None:
        reads = "this code reads another" if wanted is None else f"this code reads {wanted}"
        if isinstance(found, bool) or not isinstance(found, int):
            remedy = f"give it one that is a whole number, not a {type(found).__name__}"
        else:
            remedy = f"give an upcaster from version {found}"
        super().__init__(
            f"{what} has version {found}, {reads}; {remedy}, or use the code that wrote it"
        )
        self.found, self.wanted, self.what = found, wanted, what


class WrongKey(StoreError):
    """Data is sealed and none of the given keys opens it; give the one that the message names."""

    def __init__(
        self,
        what: str,
        needs: list[str] | None = None,
        given: list[str] | None = None,
    ) -> None:
        self.what, self.needs, self.given = what, sorted(needs or []), list(given or [])
        needed, has = " or ".join(self.needs), ", ".join(self.given)
        super().__init__(
            f"{what} is sealed{f' with key {needed}' if needed else ''}; "
            f"{f'the keys given are {has}' if has else 'no key was given'}: "
            "set OUTLIVE_KEY to the key that it was written with (several: commas between them)"
        )


class Erased(StoreError):
    """The data key of the run's family was dropped; nothing brings back what it sealed."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run {run_id} was erased: its family's data key is gone, and with it what was sealed"
        )
        self.run_id = run_id


class CorruptRecord(StoreError):
    """A record is damaged, missing or out of place; restore that run from a backup."""

    def __init__(self, run_id: str, seq: int, why: str) -> None:
        super().__init__(f"run {run_id}, seq {seq}: {why}; `outlive verify` lists all damage")
        self.run_id, self.seq, self.why = run_id, seq, why


class BlobMissing(StoreError):
    """A part of a blob is gone or damaged: its family was deleted, or restore it from a backup."""


class CorruptArchive(StoreError):
    """A file of archived runs is damaged, cut, or not an archive; use a copy of it."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"archive {path}: {why}")
        self.path, self.why = path, why


class LeaseLost(StoreError):
    """Another worker drives this run now; its outcome comes from the store."""

    def __init__(self, run_id: str, why: str = "is driven by another worker now") -> None:
        super().__init__(f"run {run_id} {why}")
        self.run_id, self.why = run_id, why


class LockLost(StoreError):
    """This process does not hold the lock any more: what it guards may be another's by now."""

    def __init__(self, resource: str, why: str) -> None:
        super().__init__(f"lock {resource!r} was lost: {why}")
        self.resource, self.why = resource, why
