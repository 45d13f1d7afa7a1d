"""Everything Outlive raises, and whose fault it is.

    OutliveError
    ├── UsageError              the caller asked for something that can't be      (exit 2)
    │   ├── NotInRun            an effect or wait was used outside a run
    │   ├── InsideStep          an effect or wait was used inside a step's body
    │   ├── IoInFlow            flow code did asyncio I/O outside a step
    │   ├── ValueRefused        a value would not come back as it was
    │   ├── DefinitionRefused   a decorator was given something impossible
    │   ├── UnknownStore        no store speaks this URL
    │   ├── FlowNotRegistered   this process does not know the run's flow
    │   ├── RunNotFound         no run has this id
    │   ├── RunIdRefused        this can't be a run id
    │   ├── RunIdTaken          the id belongs to a run of another flow or other arguments
    │   ├── StepNotInDoubt      there is nothing to resolve at this step
    │   ├── RetryRefused        a run can't be tried again
    │   ├── ForkRefused         a run can't be forked there
    │   ├── RunEnded            nothing can be sent to a run that has ended
    │   ├── QuestionNotOpen     the run does not wait for this answer
    │   ├── AnswerRefused       the answer is not what the question asks for
    │   ├── ScheduleNotFound    there is no schedule of this name
    │   └── AppClosed           the app was closed, or the process forked
    ├── RunError                a run or step ended badly                         (exit 1)
    │   ├── StepFailed          a step raised an error of an undeclared type
    │   ├── TimedOut            a time limit passed
    │   ├── InDoubt             nobody knows whether an effect happened
    │   ├── KeyTaken            another step holds this idempotency key
    │   ├── NotApproved         an effect that humans must approve was called without their yes
    │   ├── NotHappened         an effect says: nothing happened, it is safe to try again
    │   ├── RunFailed           the run ended as failed
    │   ├── RunCancelled        the run ended because somebody asked it to
    │   ├── RunQuarantined      the run killed its workers too often
    │   ├── RequestRefused      the flow could not read a request
    │   ├── NoReply             the run ended before it replied to a request
    │   └── ReplayMismatch      the code no longer does what the journal says it did
    └── StoreError              the store or its data is not as it should be      (exit 3)
        ├── StoreUnavailable    it can't be opened, locked or reached
        ├── StoreFailed         a write failed; nothing after it was acknowledged
        ├── UnsafeSettings      it would lose acknowledged events
        ├── WrongVersion        a schema, record format or codec of another release
        ├── WrongKey            data is sealed with a key that was not given
        ├── Erased              the data key of the run's family was dropped
        ├── CorruptRecord       a record is damaged, missing or out of place
        ├── BlobMissing         a part of a blob is gone or damaged
        ├── CorruptArchive      a file of archived runs is damaged
        └── LeaseLost           another worker drives this run now

The class docstring says what happened and what to do; the message adds the facts.
"""

from __future__ import annotations


class OutliveError(Exception):
    """Something Outlive refuses or could not do."""

    exit_code = 1


class UsageError(OutliveError):
    """The caller asked for something that can't be; the message says what to do instead."""

    exit_code = 2


class NotInRun(UsageError):
    """An effect or wait was used outside a run; start a run, or use ``.plain(...)``."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} was called outside a run; call it from a flow started with outlive.run(), "
            f"or use {name}.plain(...) if it shall run with no record"
        )
        self.name = name


class InsideStep(UsageError):
    """An effect or wait was used inside a step's body; move it into the flow."""

    def __init__(self, name: str, step: str) -> None:
        super().__init__(
            f"{name} was called inside the body of step {step}; a step is a leaf: "
            f"call {name} from the flow, or use {name}.plain(...) inside the body"
        )
        self.name, self.step = name, step


class IoInFlow(UsageError):
    """Flow code did asyncio I/O outside a step; do it in a step."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"flow code called {what}; do this in a step: only step bodies touch the outside, "
            "so that a replay never does it again"
        )
        self.what = what


class ValueRefused(UsageError):
    """A value would not come back as it was; the path says which part of it."""

    def __init__(self, reason: str, path: str = "$") -> None:
        super().__init__(f"{path}: {reason}")
        self.reason, self.path = reason, path


class DefinitionRefused(UsageError):
    """A decorator was given something impossible; the message says what."""


class UnknownStore(UsageError):
    """No store speaks this URL; use one of those named in the message."""


class FlowNotRegistered(UsageError):
    """This process does not know the run's flow; import or pass the module that defines it."""

    def __init__(self, flow: str, known: list[str]) -> None:
        have = ", ".join(sorted(known)) or "none"
        super().__init__(
            f"flow {flow!r} is not registered in this process (known: {have}); "
            "pass the flow itself, or name its module on the command line"
        )
        self.flow = flow


class RunNotFound(UsageError):
    """No run has this id; ``outlive runs`` lists those there are."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"no run has the id {run_id!r}; `outlive runs` lists those there are")
        self.run_id = run_id


class RunIdRefused(UsageError):
    """This can't be a run id; the message says why."""


class RunIdTaken(UsageError):
    """The id belongs to a run of another flow or other arguments; choose another id."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"run id {run_id!r} is taken: {why}; choose another id")
        self.run_id = run_id


class StepNotInDoubt(UsageError):
    """There is nothing to resolve at this step (yet); ``outlive show RUN`` lists the doubts.

    It is not in doubt, it was answered before, or its attempt may still be running.
    """


class RetryRefused(UsageError):
    """A run can't be tried again: it did not fail, or what it did is undone or not known.

    The message says why; start another run.
    """

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"run {run_id} can't be tried again: {why}")
        self.run_id, self.why = run_id, why


class ForkRefused(UsageError):
    """A run can't be forked at this place; the message says why, and where it can."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"run {run_id} can't be forked so: {why}")
        self.run_id, self.why = run_id, why


class RunEnded(UsageError):
    """Nothing can be sent to a run that has ended; start another one."""

    def __init__(self, run_id: str, status: str) -> None:
        super().__init__(
            f"run {run_id} has ended ({status}): nothing can be sent to it any more; "
            "start another run, with another id"
        )
        self.run_id, self.status = run_id, status


class QuestionNotOpen(UsageError):
    """The run does not wait for this answer; ``handle.questions()`` lists what it asks.

    It was answered, closed, expired or never asked, or the run asks several things and none was
    named.
    """


class AnswerRefused(UsageError):
    """The answer is not what the question asks for; the question stays open, so answer again."""

    def __init__(self, question: str, why: str, wanted: str) -> None:
        super().__init__(
            f"question {question} refuses this answer: {why}; it stays open and wants {wanted}"
        )
        self.question, self.why = question, why


class ScheduleNotFound(UsageError):
    """There is no schedule of this name, or it was removed; ``outlive schedules`` lists them."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no schedule {name!r}; `outlive schedules` lists what there is")
        self.name = name


class AppClosed(UsageError):
    """The app was closed, or this process was forked from the one that opened it; open another."""


class RunError(OutliveError):
    """A run or a step of it ended badly."""


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
    """Nobody knows whether an effect happened, and it was declared with ``doubt="fail"``."""

    def __init__(self, step: str, key: str, why: str) -> None:
        super().__init__(f"effect {step} (key {key}) is in doubt: {why}")
        self.step, self.key, self.why = step, key, why


class KeyTaken(RunError):
    """Another step holds this idempotency key with other arguments; put more into the key."""

    def __init__(self, key: str, holder: str, wanted: str) -> None:
        super().__init__(
            f"key {key!r} is held by {holder} with other arguments; {wanted} can't have it: "
            "a key names one effect, so put what distinguishes the two into it"
        )
        self.key, self.holder, self.wanted = key, holder, wanted


class NotApproved(RunError):
    """An effect that was put to a human is called without a yes to these arguments, or twice."""

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
        self.run_id = run_id


class RequestRefused(RunError):
    """The flow could not read a request; send one of the type that it waits for, by a new id."""

    def __init__(self, run_id: str, request_id: str, why: str) -> None:
        super().__init__(
            f"run {run_id} could not read request {request_id}: {why}; "
            "send what the flow waits for, with another id"
        )
        self.run_id, self.request_id = run_id, request_id


class NoReply(RunError):
    """The run ended before it replied to a request; its outcome says why."""

    def __init__(self, run_id: str, request_id: str, status: str) -> None:
        super().__init__(
            f"run {run_id} ended ({status}) without a reply to request {request_id}; "
            f"`outlive show {run_id}` tells what happened"
        )
        self.run_id, self.request_id = run_id, request_id


class ReplayMismatch(RunError):
    """The code no longer does what the journal says it did; the message shows both sides."""

    def __init__(self, run_id: str, seq: int, *, recorded: str, code: str, remedy: str) -> None:
        super().__init__(
            f"run {run_id}, seq {seq}: the journal has {recorded}, the code {code}; {remedy}"
        )
        self.run_id, self.seq, self.recorded, self.code = run_id, seq, recorded, code


class StoreError(OutliveError):
    """The store or its data is not as it should be."""

    exit_code = 3


class StoreUnavailable(StoreError):
    """The store can't be opened, locked or reached; the message says what to look at."""


class StoreFailed(StoreError):
    """A write failed; nothing after it was acknowledged. Mend the store and start again."""


class UnsafeSettings(StoreError):
    """The store would lose acknowledged events with these settings, which the message names."""


class WrongVersion(StoreError):
    """A schema, record format or codec of another release; the message names both."""


class WrongKey(StoreError):
    """Data is sealed and no key that was given opens it; give the one that the message names."""

    def __init__(
        self,
        what: str,
        needs: list[str] | None = None,
        given: list[str] | None = None,
    ) -> None:
        needed = " or ".join(sorted(needs or []))
        has = ", ".join(given or [])
        super().__init__(
            f"{what} is sealed{f' with key {needed}' if needed else ''}; "
            f"{f'the keys given are {has}' if has else 'no key was given'}: "
            "set OUTLIVE_KEY to the key that it was written with (several: commas between them)"
        )
        self.needs, self.given = needed, has


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
    """A file of archived runs is damaged, cut, or none at all; take a copy of it."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"archive {path}: {why}")
        self.path, self.why = path, why


class LeaseLost(StoreError):
    """Another worker drives this run now; its outcome comes from the store."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} is driven by another worker now")
        self.run_id = run_id
