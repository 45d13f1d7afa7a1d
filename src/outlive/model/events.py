"""All events of a run: the table of contents of the system.

An event is a fact in a journal, in the past tense, with small integer tags that never change.
``at`` is milliseconds since the run's start. It never falls within a journal, except that of
``Claimed``, whose writer has not read the journal yet. Values of users are bytes that the codec
made; the model never looks into them.

Events marked *delivered* wake the flow, each at its place, in normal operation as in replay. The
others are for drivers and readers of the run.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from outlive.model.checkpoints import OfCheckpoints
from outlive.model.ids import derived_key
from outlive.model.ids import digest as digest_of
from outlive.model.logs import OfLogs
from outlive.model.queues import QueuePlace
from outlive.model.shared import Fault as Fault
from outlive.model.shared import KeyHeld as KeyHeld
from outlive.model.shared import KeyKept as KeyKept
from outlive.model.shared import Marked as Marked
from outlive.model.usage import Usage


class ChildIntended(msgspec.Struct, frozen=True, array_like=True, tag=60):
    """A child run is about to be started. Durable before the start."""

    at: int
    step: str
    child_id: str
    flow: str
    args: bytes
    digest: bytes
    #: The flow waits for its outcome, and it ends with this run.
    is_awaited: bool


class ChildSpawned(msgspec.Struct, frozen=True, array_like=True, tag=61):
    """A child was started, durably. *Delivered.*"""

    at: int
    step: str
    child_id: str


class ChildEnded(msgspec.Struct, frozen=True, array_like=True, tag=62):
    """A child that was waited for ended, or could not be started. *Delivered.*"""

    at: int
    step: str
    child_id: str
    #: How it ended; "refused": it could not be started.
    status: str
    value: bytes
    error: Fault | None


class ParentTold(msgspec.Struct, frozen=True, array_like=True, tag=63):
    """The outcome was posted to the parent; only now the run has ended for good."""

    at: int


#: How an effect's end came to be known; empty: by its own body, as nearly always.
By = Literal["", "check", "human", "holder", "driver"]


class RunStarted(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A run was requested: which flow, with which arguments."""

    flow: str
    version: str
    args: bytes
    digest: bytes
    #: Where the run's random numbers come from.
    seed: bytes
    #: The Python that wrote the first record: "3.11".
    python: str
    started_at: int
    family: str
    queue: str = "default"
    parent: str | None = None
    deadline_at: int | None = None
    tags: dict[str, str] = {}
    pins: dict[str, str] = {}
    #: The parent waits for its outcome: it is told before the run counts as ended.
    is_awaited: bool = False
    place: QueuePlace | None = None


class Claimed(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A worker took the right to drive the run."""

    at: int
    epoch: int
    worker: str
    #: The driver before it is dead for certain, so nothing it began is still running.
    certain: bool


class Parked(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The run left memory: every branch waits. Due at ``wake_at`` (ms since 1970), or by mail."""

    at: int
    wake_at: int | None
    reason: str = ""
    #: The names of signals that the flow waits for.
    signals: tuple[str, ...] = ()


class DriveBegan(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The code of a run is about to be executed whose last driver died without a new outcome.

    Durable before the execution: if this driver dies as well, that counts against the run.
    """

    at: int


class StepDone(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=10):
    """A plain step returned. *Delivered.*"""

    at: int
    step: str
    attempt: int
    args: bytes
    digest: bytes  # empty: that of the arguments
    value: bytes
    #: How long its body ran, in ms; None: an earlier release wrote it.
    took: int | None = None
    usage: tuple[Usage, ...] | None = None


class StepRaised(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """A plain step failed for good. *Delivered.*"""

    at: int
    step: str
    attempt: int
    args: bytes
    digest: bytes
    error: Fault
    took: int | None = None
    usage: tuple[Usage, ...] | None = None


class AttemptFailed(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """An attempt ended and did not count; the next may start at ``retry_at``."""

    at: int
    step: str
    attempt: int
    error: Fault
    retry_at: int  # ms since 1970
    by: By = ""
    #: Of an effect: None if nobody knows, and it is repeated because its receiver honours the key.
    happened: bool | None = False
    #: Of a human's word: whose it is, if that is known.
    who: str = ""
    usage: tuple[Usage, ...] | None = None
    #: Of a plain step: how long its body ran, in ms.
    took: int | None = None


class EffectIntended(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=20):
    """An effect is about to be attempted. Durable before the attempt."""

    at: int
    step: str
    attempt: int
    #: Empty from the second attempt on: they are those of the first.
    args: bytes
    digest: bytes  # empty: that of the arguments
    key: str  # empty: that of its place, which is run and step
    #: The attempt can't be running after this instant (ms since the run's start, as ``at``).
    not_after: int


class EffectDone(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=21):
    """An effect happened. *Delivered.*"""

    at: int
    step: str
    attempt: int
    value: bytes
    by: By = ""
    #: Of a human's word: whose it is, if that is known.
    who: str = ""
    usage: tuple[Usage, ...] | None = None


class EffectRaised(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """An effect ended badly, and the flow is told. *Delivered.*"""

    at: int
    step: str
    attempt: int
    error: Fault
    happened: bool | None  # None: nobody knows
    by: By = ""
    who: str = ""
    usage: tuple[Usage, ...] | None = None


class EffectDoubted(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """An attempt ended and nobody knows whether the effect happened; it will be settled."""

    at: int
    step: str
    attempt: int
    error: Fault
    #: Only a human can tell.
    asks: bool
    #: The attempt surely was over by then; False: it was found open by another driver.
    over: bool
    usage: tuple[Usage, ...] | None = None


class TimerFired(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """A timer fired. *Delivered.*"""

    at: int
    timer: str


class MailRead(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """Mail was read that changes nothing; ``why`` gives the reason."""

    at: int
    mail_id: str
    why: str
    #: The bytes of damaged or forged mail, set aside.
    unreadable: bytes | None = None


class SignalReceived(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """Somebody sent the run a signal, or a request that wants a reply. *Delivered.*"""

    at: int
    name: str
    signal_id: str
    value: bytes
    #: The value is JSON, from someone who does not know the flow's types.
    is_json: bool
    #: Who sent it, if that is known.
    by: str = ""


class Replied(msgspec.Struct, frozen=True, array_like=True, tag=33):
    """The flow answered a request, or refused it or a signal for its type (``error``)."""

    at: int
    signal_id: str
    value: bytes
    error: Fault | None = None


class SignalTaken(msgspec.Struct, frozen=True, array_like=True, tag=37):
    """The flow took a signal or request as a value of the type that it waited for."""

    at: int
    signal_id: str
    #: The type's name; a wait for anything leaves no such event.
    type_name: str


class QuestionAsked(msgspec.Struct, frozen=True, array_like=True, tag=34):
    """The run waits for a human, with the question and the schema of its answer."""

    at: int
    question: str
    text: str
    #: JSON schema of the answer; empty: anything.
    schema: bytes
    #: The digest of the effect's arguments that an approval is for; empty for a question.
    digest: bytes = b""
    #: The person who should answer, if the flow names one.
    by: str | None = None
    until: int | None = None  # ms since 1970, if it has a time limit of its own


class Answered(msgspec.Struct, frozen=True, array_like=True, tag=35):
    """A human answered. *Delivered.*"""

    at: int
    question: str
    value: bytes  # JSON
    by: str
    #: The mail that said so; empty in records of earlier releases.
    mail_id: str = ""


class QuestionClosed(msgspec.Struct, frozen=True, array_like=True, tag=36):
    """The flow no longer waits for an answer: its time limit passed, or it was cancelled."""

    at: int
    question: str


class RunCompleted(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """The flow returned."""

    at: int
    value: bytes


class RunFailed(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """The flow raised."""

    at: int
    error: Fault


class RunQuarantined(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """The run was claimed too often without progress."""

    at: int
    reason: str


class CancelRequested(msgspec.Struct, frozen=True, array_like=True, tag=43):
    """Somebody asked the run to stop. *Delivered.*"""

    at: int
    by: str
    #: The mail that said so; empty in records of earlier releases.
    mail_id: str = ""


class DeadlinePassed(msgspec.Struct, frozen=True, array_like=True, tag=44):
    """The run's own deadline came before its end: the flow stops here. *Delivered.*"""

    at: int


class RunUndoing(msgspec.Struct, frozen=True, array_like=True, tag=45):
    """The flow ended badly; what happened is undone before the run ends. *Delivered.*"""

    at: int
    status: Literal["completed", "failed", "cancelled"]
    error: Fault | None


class RunCancelled(msgspec.Struct, frozen=True, array_like=True, tag=46):
    """The run stopped because somebody asked it to."""

    at: int
    error: Fault


class Undoable(msgspec.Struct, frozen=True, array_like=True):
    """An effect of an earlier chapter that happened and can be undone."""

    effect: str
    #: Which of several effects of that name: its module and place there.
    where: str
    step: str
    args: bytes
    digest: bytes
    key: str | None
    end: EffectDone | EffectRaised


class ChapterBegan(msgspec.Struct, frozen=True, array_like=True, tag=47):
    """The flow started again with other arguments. Replay begins here; earlier records may go."""

    at: int
    #: Its own place and epoch: the records before it may be gone.
    seq: int
    epoch: int
    number: int
    #: As the run was started, but for the version: the chapter's is that of the code it began in.
    start: RunStarted
    #: What the flow is called with now.
    args: bytes
    #: Received and not yet taken by the flow.
    signals: list[SignalReceived] = []
    happened: list[Undoable] = []
    #: Somebody asked the run to stop while the last chapter was ending.
    is_cancelled: bool = False
    #: The newest published value of each name.
    published: dict[str, bytes] = {}
    #: By stream: its last offset.
    streams: dict[str, int] = {}
    #: What models were used for in the chapters before.
    usage: tuple[Usage, ...] | None = None


class RunRetried(msgspec.Struct, frozen=True, array_like=True, tag=48):
    """Somebody retried a failed run; events from ``since`` on are not replayed."""

    at: int
    since: int
    by: str


class Forked(msgspec.Struct, frozen=True, array_like=True, tag=49):
    """A fork began: it continues another run's journal, which it shares. *Delivered.*"""

    at: int
    #: The other run, the seq behind which the fork goes on, and the link of the record it is in.
    run_id: str
    seq: int
    link: bytes
    #: Where the shared part begins, and the link before it.
    first: int
    before: bytes
    #: As the other run was started, but for what is the fork's own; its chance is its own, too.
    start: RunStarted
    seed: bytes
    #: A step or question whose outcome is another in the fork; as JSON.
    step: str = ""
    value: bytes = b""
    #: Who made it, if that is known.
    by: str = ""


class ForkMade(msgspec.Struct, frozen=True, array_like=True, tag=53):
    """A fork was made of this run, which had ended."""

    at: int
    fork_id: str
    seq: int
    by: str = ""


class Patched(msgspec.Struct, frozen=True, array_like=True, tag=70):
    """The flow took the new branch at a place where its code was changed."""

    at: int
    place: str


class Published(msgspec.Struct, frozen=True, array_like=True, tag=90):
    """The flow or a step published values; of each name the newest counts."""

    at: int
    values: dict[str, bytes]
    #: So many calls of flow code in this chapter, to publish or to tag, are in the journal by now.
    told: int = 0


class Tagged(msgspec.Struct, frozen=True, array_like=True, tag=91):
    """The flow or a step changed the run's tags."""

    at: int
    tags: dict[str, str]
    #: As that of ``Published``.
    told: int = 0


class Streamed(msgspec.Struct, frozen=True, array_like=True, tag=92):
    """Chunks of a stream. They are final once the step that wrote them has ended."""

    at: int
    stream: str
    #: The step that wrote them; of flow code the place where it opened the stream.
    step: str
    #: From 1; each reset begins the next, so it rises after a crash, too.
    attempt: int
    #: Of the first chunk; they follow one another.
    offset: int
    chunks: list[bytes]
    in_flow: bool = False


class StreamReset(msgspec.Struct, frozen=True, array_like=True, tag=93):
    """What a step wrote into a stream is withdrawn: another attempt of it begins."""

    at: int
    stream: str
    step: str
    #: The one that begins.
    attempt: int
    #: Of the reset itself.
    offset: int


Event: TypeAlias = (
    StepDone
    | EffectIntended
    | EffectDone
    | TimerFired
    | Claimed
    | Parked
    | DriveBegan
    | RunStarted
    | StepRaised
    | AttemptFailed
    | EffectRaised
    | EffectDoubted
    | MailRead
    | SignalReceived
    | Replied
    | SignalTaken
    | QuestionAsked
    | Answered
    | QuestionClosed
    | CancelRequested
    | DeadlinePassed
    | RunUndoing
    | RunCancelled
    | RunCompleted
    | RunFailed
    | RunQuarantined
    | ChildIntended
    | ChildSpawned
    | ChildEnded
    | ParentTold
    | ChapterBegan
    | RunRetried
    | Patched
    | Forked
    | ForkMade
    | Published
    | Tagged
    | Streamed
    | StreamReset
    | KeyHeld
    | KeyKept
    | Marked
    | OfCheckpoints
    | OfLogs
)

encode_events = msgspec.msgpack.Encoder().encode
decode_events = msgspec.msgpack.Decoder(list[Event]).decode


def recorded_digest(event: StepDone | StepRaised | EffectIntended | ChildIntended) -> bytes:
    """The digest of an event's arguments; events of short arguments do not store it."""
    return event.digest or digest_of(getattr(event, "args", b""))


def recorded_key(run_id: str, intent: EffectIntended) -> str:
    """The idempotency key of an effect whose intent is in this run's journal."""
    return intent.key or derived_key(run_id, intent.step)
