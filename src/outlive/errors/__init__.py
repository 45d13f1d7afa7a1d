"""Everything Outlive raises, and whose fault it is.

    OutliveError
    ├── UsageError              the caller asked for something that can't be      (exit 2)
    │   ├── NotInRun            an effect or wait was used outside a run
    │   ├── InsideStep          an effect or wait was used inside a step's body
    │   ├── IoInFlow            flow code did asyncio I/O outside a step
    │   ├── NeverAwaited        a step was called in a flow and never awaited
    │   ├── AmbiguousCall       two calls in a place that nothing tells apart
    │   ├── ValueRefused        a value would not come back as it was
    │   ├── StreamFull          a stream takes no more chunks
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
    │   ├── ExchangeRefused     an agent can't exchange messages like this
    │   ├── CutRefused          a cut of agents can't be taken, found or restored like this
    │   └── AppClosed           the app was closed, or the process forked
    ├── RunError                a run or step ended badly                         (exit 1)
    │   ├── StepFailed          a step raised an error of an undeclared type
    │   ├── TimedOut            a time limit passed
    │   ├── InDoubt             nobody knows whether an effect happened
    │   ├── Waiting             the run waits for somebody, and nobody wanted to wait with it
    │   ├── KeyTaken            another step holds this idempotency key
    │   ├── NotApproved         an effect that humans must approve was called without their yes
    │   ├── NotHappened         an effect says: nothing happened, it is safe to try again
    │   ├── RunFailed           the run ended as failed
    │   ├── RunCancelled        the run ended because somebody asked it to
    │   ├── RunQuarantined      the run killed its workers too often
    │   ├── RequestRefused      the flow could not read a request
    │   ├── NoReply             the run ended before it replied to a request
    │   ├── ReplayMismatch      the code no longer does what the journal says it did
    │   └── IllegalTransition   a loop's handler asked for a state that may not follow
    └── StoreError              the store or its data is not as it should be      (exit 3)
        ├── StoreUnavailable    it can't be opened, locked or reached
        ├── StoreFailed         a write failed; nothing after it was acknowledged
        │   └── WentBack        the store has less than it acknowledged
        ├── UnsafeSettings      it would lose acknowledged events
        ├── WrongVersion        a schema, record format or codec of another release
        ├── IncompatibleCheckpoint  a checkpoint of another schema
        ├── WrongKey            data is sealed with a key that was not given
        ├── Erased              the data key of the run's family was dropped
        ├── CorruptRecord       a record is damaged, missing or out of place
        ├── BlobMissing         a part of a blob is gone or damaged
        ├── CorruptArchive      a file of archived runs is damaged
        ├── LeaseLost           another worker drives this run now
        └── LockLost            this process does not hold the lock any more

The class docstring says what happened and what to do; the message adds the facts.
"""

from __future__ import annotations

# In the order of the tree above.
# isort: off
from outlive.errors.failures import OutliveError, UsageError
from outlive.errors.usage import (
    NotInRun,
    InsideStep,
    IoInFlow,
    NeverAwaited,
    AmbiguousCall,
    ValueRefused,
    StreamFull,
    DefinitionRefused,
    UnknownStore,
    FlowNotRegistered,
    RunNotFound,
    RunIdRefused,
    RunIdTaken,
    StepNotInDoubt,
    RetryRefused,
    ForkRefused,
    RunEnded,
    QuestionNotOpen,
    AnswerRefused,
    ScheduleNotFound,
    ExchangeRefused,
    CutRefused,
    AppClosed,
)
from outlive.errors.failures import RunError
from outlive.errors.failures import (
    StepFailed,
    TimedOut,
    InDoubt,
    Waiting,
    KeyTaken,
    NotApproved,
    NotHappened,
    RunFailed,
    RunCancelled,
    RunQuarantined,
    RequestRefused,
    NoReply,
    ReplayMismatch,
    IllegalTransition,
)
from outlive.errors.failures import StoreError
from outlive.errors.failures import (
    StoreUnavailable,
    StoreFailed,
    WentBack,
    UnsafeSettings,
    WrongVersion,
    IncompatibleCheckpoint,
    WrongKey,
    Erased,
    CorruptRecord,
    BlobMissing,
    CorruptArchive,
    LeaseLost,
    LockLost,
)
# isort: on

__all__ = [
    "AmbiguousCall",
    "AnswerRefused",
    "AppClosed",
    "BlobMissing",
    "CorruptArchive",
    "CorruptRecord",
    "CutRefused",
    "DefinitionRefused",
    "Erased",
    "ExchangeRefused",
    "FlowNotRegistered",
    "ForkRefused",
    "IllegalTransition",
    "InDoubt",
    "IncompatibleCheckpoint",
    "InsideStep",
    "IoInFlow",
    "KeyTaken",
    "LeaseLost",
    "LockLost",
    "NeverAwaited",
    "NoReply",
    "NotApproved",
    "NotHappened",
    "NotInRun",
    "OutliveError",
    "QuestionNotOpen",
    "ReplayMismatch",
    "RequestRefused",
    "RetryRefused",
    "RunCancelled",
    "RunEnded",
    "RunError",
    "RunFailed",
    "RunIdRefused",
    "RunIdTaken",
    "RunNotFound",
    "RunQuarantined",
    "ScheduleNotFound",
    "StepFailed",
    "StepNotInDoubt",
    "StoreError",
    "StoreFailed",
    "StoreUnavailable",
    "StreamFull",
    "TimedOut",
    "UnknownStore",
    "UnsafeSettings",
    "UsageError",
    "ValueRefused",
    "Waiting",
    "WentBack",
    "WrongKey",
    "WrongVersion",
]
