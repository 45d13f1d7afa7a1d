"""The state of a run: the fold of its journal.

``Run`` keeps only what is open (effects not settled, attempts to come) and what people ask for;
closed steps leave nothing behind, so the fold of a long journal is small. ``apply`` is the only
place where an event changes it; it reads no clock and touches nothing outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, assert_never, get_args

import msgspec

from outlive.model.checkpoints import OfCheckpoints, brief_after
from outlive.model.defaults import PUBLISHED_NAMES_MAX
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
    Published,
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
    Streamed,
    StreamReset,
    Tagged,
    TimerFired,
)
from outlive.model.logs import (
    LogAppended,
    LogBegan,
    LogDropped,
    LogNoted,
    OfLogs,
    log_brief_after,
)
from outlive.model.shared import Brief
from outlive.model.usage import Usage, add_usage


class OpenEffect(msgspec.Struct):
    """An effect whose intent is in the journal and whose end is not."""

    intent: EffectIntended
    #: The newest attempt that was begun.
    attempt: int
    not_after: int
    #: Of the driver that began the newest attempt.
    epoch: int
    #: Set while an attempt's end is unknown: when it surely was over (ms since 1970), if known.
    over_at: int | None = None
    doubt: Fault | None = None
    asks: bool = False
    #: Set between attempts: when the next may start.
    retry_at: int | None = None
    error: Fault | None = None
    #: An earlier attempt may have happened; it was repeated because the receiver honours the key.
    maybe: bool = False
    #: The seq of the newest attempt's intent.
    seq: int = 0


@dataclass(slots=True)
class Backoff:
    """A plain step between two attempts."""

    attempt: int
    retry_at: int
    error: Fault


Status: TypeAlias = Literal[
    "pending",
    "running",
    "waiting",
    "in_doubt",
    "undoing",
    "completed",
    "failed",
    "cancelled",
    "quarantined",
]
STATUSES: tuple[str, ...] = get_args(Status)
#: Nothing happens to a run after these.
ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled"})


@dataclass(slots=True)
class Run:
    """The state of a run."""

    started: RunStarted | None = None
    status: Status = "pending"
    seq: int = 0
    epoch: int = 0
    #: ms since the run's start of the newest event.
    at: int = 0
    #: ms since 1970; 0 is "at once", None "only by mail".
    wake_at: int | None = 0
    ended_at: int | None = None
    reason: str = ""
    #: While it is parked: the signals that it waits for, as far as is known.
    signals: tuple[str, ...] = ()
    #: Claims in a row, the last one included, in which something of the run was tried and nothing
    #: new became durable.
    barren: int = 0
    #: Its code was about to be run in the last claim, which was not the first of these.
    is_tried: bool = False
    #: Nothing new became durable between the last claim and the one before it.
    is_claimed_again: bool = False
    effects: dict[str, OpenEffect] = field(default_factory=dict)
    backoffs: dict[str, Backoff] = field(default_factory=dict)
    #: Asked and not answered.
    questions: dict[str, QuestionAsked] = field(default_factory=dict)
    value: bytes | None = None
    error: Fault | None = None
    holder: KeyHeld | None = None
    kept: KeyKept | None = None
    marked: Marked | None = None
    #: Children begun and not ended, and which of them were started.
    children: dict[str, ChildIntended] = field(default_factory=dict)
    children_started: set[str] = field(default_factory=set)
    is_undoing: bool = False
    #: The beginning of the last chapter; None: the first one goes on.
    chapter: ChapterBegan | None = None
    #: Places at which the flow took the new way.
    patches: set[str] = field(default_factory=set)
    #: It left memory and waits; nobody holds its lease.
    is_parked: bool = False
    #: The outcome is there; the parent has to be told before the run counts as ended.
    tells_parent: bool = False
    #: The seq of its last end, and the number of retries.
    end_seq: int = 0
    tries: int = 0
    #: The newest published value of each name, the newest last.
    published: dict[str, bytes] = field(default_factory=dict)
    #: Calls of flow code to publish or to tag, in this chapter.
    told: int = 0
    #: By stream: its last offset, and the bytes that were written in this chapter.
    streams: dict[str, int] = field(default_factory=dict)
    stream_bytes: dict[str, int] = field(default_factory=dict)
    #: By model: what it was used for in all chapters.
    usage: dict[str, Usage] = field(default_factory=dict)
    #: Something that a header shows has changed since it was last made.
    header_is_stale: bool = True
    #: Of a journal that is no run's: what its header shows.
    brief: Brief | None = None

    @property
    def start(self) -> RunStarted:
        """The first event; there is one in every journal of a run."""
        assert self.started is not None, "the journal does not begin with RunStarted"
        return self.started

    @property
    def shown_status(self) -> Status:
        """The status shown to people: a doubt that waits for them comes first."""
        asks = any(effect.asks for effect in self.effects.values())
        under_way = self.status in ("running", "waiting", "undoing")
        return "in_doubt" if asks and under_way else self.status

    @property
    def is_held(self) -> bool:
        """Its driver keeps the lease."""
        is_driven = self.status in ("pending", "running", "undoing") and not self.is_parked
        return self.tells_parent or is_driven


def fold(events: Iterable[Event]) -> Run:
    """Fold events into a state."""
    run = Run()
    # Most of a long journal are steps that were done and effects that ended at once: they leave
    # nothing behind but their place and time.
    intent: EffectIntended | None = None
    anything: Iterable[Any] = events  # kinds are told by their exact type
    for event in anything:
        kind = type(event)
        if intent is not None:
            ended, intent = intent, None
            if kind is EffectDone and event.step == ended.step and event.usage is None:
                run.seq += 2
                run.at, run.barren = event.at, 0
                continue
            apply(run, ended)
        if kind is StepDone and not run.backoffs and event.usage is None:
            run.seq += 1
            run.at, run.barren = event.at, 0
        elif kind is EffectIntended and event.step not in run.effects:
            intent = event
        else:
            apply(run, event)
    if intent is not None:
        apply(run, intent)
    return run


def apply(run: Run, event: Event) -> None:
    """Apply one event to the state."""
    run.seq += 1
    match event:
        # The most frequent ones first: they are tried one after the other.
        case EffectIntended():
            run.at = event.at
            _begin_attempt(run, event)
        case EffectDone() | EffectRaised():
            run.at, run.barren = event.at, 0
            closed = run.effects.pop(event.step, None)
            run.header_is_stale |= closed is not None and closed.asks
            if event.usage is not None:
                add_usage(run.usage, event.usage)
        case StepDone() | StepRaised():
            run.at, run.barren = event.at, 0
            run.backoffs.pop(event.step, None)
            if event.usage is not None:
                add_usage(run.usage, event.usage)
        case TimerFired() | SignalReceived() | CancelRequested() | DeadlinePassed():
            run.at, run.barren = event.at, 0
        case Claimed():
            _claim(run, event)
        case Parked():
            _park(run, event)
        case DriveBegan():
            _try(run, event)
        case RunStarted():
            run.started, run.wake_at, run.header_is_stale = event, event.started_at, True
        case AttemptFailed() | EffectDoubted():
            _leave_open(run, event)
        case MailRead() | Replied() | SignalTaken() | ForkMade():
            run.at = event.at
        case QuestionAsked() | Answered() | QuestionClosed():
            run.at = event.at
            _ask(run, event)
        case RunUndoing() | RunQuarantined() | ParentTold() | ChapterBegan() | RunRetried():
            run.at = event.at
            run.header_is_stale = True
            _turn(run, event)
        case RunCompleted() | RunFailed() | RunCancelled():
            _end(run, event)
        case ChildIntended() | ChildSpawned() | ChildEnded():
            run.at = event.at
            _keep_child(run, event)
        case Patched() | Published() | Tagged() | Streamed() | StreamReset():
            _tell(run, event)
        case KeyHeld() | KeyKept() | Marked() | Forked():
            _note_beside(run, event)
        case _:
            _note_shared(run, event)


def _note_shared(run: Run, event: OfCheckpoints | OfLogs) -> None:
    """A journal beside those of runs: only what its header shows is of interest here."""
    match event:
        case LogBegan() | LogAppended() | LogNoted() | LogDropped():
            run.brief = log_brief_after(run.brief, event)
        case _:
            run.brief = brief_after(run.brief, event)
    run.at = getattr(event, "at", run.at)


def _note_beside(run: Run, event: KeyHeld | KeyKept | Marked | Forked) -> None:
    match event:
        case KeyHeld():
            run.holder = event
        case KeyKept():
            run.kept = event
        case Forked():
            _part_ways(run, event)
        case Marked():
            run.marked = event


def _tell(run: Run, event: Patched | Published | Tagged | Streamed | StreamReset) -> None:
    """What it tells those who watch is no progress: a step that streams may kill its worker."""
    run.at = event.at
    match event:
        case Patched():
            run.patches.add(event.place)
        case Published():
            publish(run.published, event.values)
            run.told, run.header_is_stale = event.told, True
        case Tagged():
            tags = {**run.start.tags, **event.tags}
            run.started = msgspec.structs.replace(run.start, tags=tags)
            run.told, run.header_is_stale = event.told, True
        case Streamed(stream=stream, chunks=chunks):
            run.streams[stream] = event.offset + len(chunks) - 1
            size = sum(map(len, chunks))
            run.stream_bytes[stream] = run.stream_bytes.get(stream, 0) + size
        case StreamReset():
            run.streams[event.stream] = event.offset
        case _:
            assert_never(event)


def publish(published: dict[str, bytes], values: Mapping[str, bytes]) -> None:
    """Publish these values; of too many names the oldest are dropped."""
    for name, value in values.items():
        published.pop(name, None)
        published[name] = value
    while len(published) > PUBLISHED_NAMES_MAX:
        del published[next(iter(published))]


def _ask(run: Run, event: QuestionAsked | Answered | QuestionClosed) -> None:
    run.header_is_stale = True
    if isinstance(event, QuestionAsked):
        run.questions[event.question] = event
    else:
        run.barren = 0
        run.questions.pop(event.question, None)


def _turn(
    run: Run, event: RunUndoing | RunQuarantined | ParentTold | ChapterBegan | RunRetried
) -> None:
    match event:
        case ChapterBegan():
            _begin_chapter(run, event)
        case RunRetried():
            _begin_again(run)
        case RunUndoing():
            run.status, run.is_undoing = "undoing", True
        case RunQuarantined(reason=reason):
            run.status, run.wake_at, run.reason = "quarantined", None, reason
            # Whoever resumes it by hand gives it new chances.
            run.barren = 0
        case ParentTold():
            run.tells_parent, run.wake_at = False, None
            run.ended_at = run.start.started_at + run.at
        case _:
            assert_never(event)


def _begin_chapter(run: Run, event: ChapterBegan) -> None:
    """Nothing of the last chapter is open; this may be the first event that there is."""
    run.seq, run.epoch, run.chapter, run.started = event.seq, event.epoch, event, event.start
    run.barren = run.tries = 0
    if run.status == "pending":
        run.status = "running"
    run.published, run.streams = dict(event.published), dict(event.streams)
    if event.usage is not None:
        run.usage = {each.model: each for each in event.usage}
    run.stream_bytes.clear()
    run.told = 0
    run.patches.clear()
    run.backoffs.clear()
    run.questions.clear()
    run.children.clear()
    run.children_started.clear()


def _part_ways(run: Run, event: Forked) -> None:
    """A fork goes on from here as a run of its own; of the prefix only what the flow did counts.

    Without its prefix, this is the first event that there is.
    """
    chapter = run.chapter
    if chapter is not None:
        chapter = msgspec.structs.replace(
            chapter, seq=0, epoch=0, start=event.start, happened=[], is_cancelled=False
        )
    fresh = Run(
        started=event.start,
        seq=1,
        at=event.at,
        chapter=chapter,
        patches=run.patches,
        questions=run.questions,
        backoffs=run.backoffs,
    )
    for name in Run.__slots__:
        setattr(run, name, getattr(fresh, name))


def _begin_again(run: Run) -> None:
    """A failed run is due once more; what it had open was closed when it ended."""
    run.status, run.wake_at, run.ended_at, run.error = "pending", 0, None, None
    run.is_parked = run.is_undoing = False
    run.barren = 0
    # They may have ended while nobody listened.
    run.children_started.clear()
    run.tries += 1
    deadline_at = run.start.deadline_at
    if deadline_at is not None and run.start.started_at + run.at >= deadline_at:
        # A deadline that passed has had its say.
        run.started = msgspec.structs.replace(run.start, deadline_at=None)


def _keep_child(run: Run, event: ChildIntended | ChildSpawned | ChildEnded) -> None:
    """A child is kept as long as the flow may wait for it."""
    match event:
        case ChildIntended():
            run.children[event.step] = event
        case ChildSpawned(step=step) if step in run.children and run.children[step].is_awaited:
            run.barren = 0
            run.children_started.add(step)
        case ChildSpawned() | ChildEnded():
            run.barren = 0
            run.children.pop(event.step, None)
            run.children_started.discard(event.step)
        case _:
            assert_never(event)


def _begin_attempt(run: Run, event: EffectIntended) -> None:
    known = run.effects.get(event.step)
    intent = event if known is None else known.intent
    not_after = run.start.started_at + event.not_after
    effect = OpenEffect(intent, event.attempt, not_after, run.epoch)
    if known is not None:
        effect.maybe = known.maybe
    effect.seq = run.seq
    run.effects[event.step] = effect


def _leave_open(run: Run, event: AttemptFailed | EffectDoubted) -> None:
    """An attempt ended, and its step or effect did not."""
    run.at = event.at
    add_usage(run.usage, event.usage or ())
    if isinstance(event, AttemptFailed):
        _back_off(run, event)
    else:
        _doubt(run, event)


def _back_off(run: Run, event: AttemptFailed) -> None:
    run.barren = 0
    effect = run.effects.get(event.step)
    if effect is None:
        run.backoffs[event.step] = Backoff(event.attempt, event.retry_at, event.error)
        return
    run.header_is_stale |= effect.asks
    # Earlier releases did not say it of an attempt that was repeated unasked.
    is_unknown = event.happened is None or (event.by == "driver" and effect.doubt is not None)
    effect.maybe = effect.maybe or is_unknown
    effect.retry_at, effect.error = event.retry_at, event.error
    effect.doubt, effect.asks, effect.over_at = None, False, None


def _doubt(run: Run, event: EffectDoubted) -> None:
    effect = run.effects[event.step]
    effect.doubt, effect.asks = event.error, event.asks
    run.header_is_stale |= event.asks
    if event.over and effect.over_at is None:
        effect.over_at = run.start.started_at + event.at


def _claim(run: Run, event: Claimed) -> None:
    run.at = max(run.at, event.at)
    if run.tells_parent or run.status in ENDED:
        run.epoch = event.epoch
        run.header_is_stale = True
        return
    if event.certain and run.effects:
        _note_death(run)
    run.epoch = event.epoch
    run.is_claimed_again = run.barren > 0
    run.barren = max(1, run.barren + run.is_tried)
    run.is_tried = False
    run.status = "undoing" if run.is_undoing else "running"
    run.is_parked = False
    run.wake_at, run.reason, run.signals = 0, "", ()
    run.header_is_stale = True


def _try(run: Run, event: DriveBegan) -> None:
    run.at, run.is_tried = event.at, True
    # The driver before it is taken to have tried as well: nobody wrote that down.
    run.barren = max(run.barren, 2)


def _note_death(run: Run) -> None:
    """The last driver is dead for certain: what it began is over; an older zombie's may not be."""
    for effect in run.effects.values():
        if effect.epoch == run.epoch and effect.over_at is None:
            effect.over_at = run.start.started_at + run.at


def _park(run: Run, event: Parked) -> None:
    if run.status in ENDED:
        return  # its header said that it was under way, and was put right
    run.at, run.wake_at, run.reason = event.at, event.wake_at, event.reason
    run.signals = event.signals
    # Whoever parks is alive: only workers that died count against a run.
    run.barren = 0
    run.is_parked = True
    doubted = any(effect.asks for effect in run.effects.values())
    run.status = "in_doubt" if doubted else "undoing" if run.is_undoing else "waiting"
    run.header_is_stale = True


def _end(run: Run, event: RunCompleted | RunFailed | RunCancelled) -> None:
    run.at, run.barren, run.end_seq = event.at, 0, run.seq
    match event:
        case RunCompleted(value=value):
            run.status, run.value = "completed", value
        case RunFailed(error=error):
            run.status, run.error = "failed", error
        case RunCancelled(error=error):
            run.status, run.error = "cancelled", error
    start = run.start
    run.tells_parent = start.is_awaited
    run.wake_at = 0 if run.tells_parent else None
    if not run.tells_parent:
        run.ended_at = start.started_at + event.at
    run.header_is_stale = True
