"""Laws of one journal, second part: mail, questions, children, and ending badly.

Ids of steps, questions and children start anew with every chapter. A retried run may ask and
attempt again what ended badly; it does not repeat what it had done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from outlive.model import events as ev
from outlive.model.events import Event

ENDS = (ev.RunCompleted, ev.RunFailed, ev.RunCancelled)
UNDO = "undo:"
Rule: TypeAlias = Callable[[Sequence[Event]], Iterator[str]]


def first_seq(events: Sequence[Event]) -> int:
    """The seq of the first event: records before a chapter may be gone."""
    return events[0].seq if events and isinstance(events[0], ev.ChapterBegan) else 1


def numbered(events: Sequence[Event]) -> Iterator[tuple[int, Event]]:
    """Each event with its seq."""
    return enumerate(events, first_seq(events))


def counted(events: Sequence[Event]) -> Iterator[Event]:
    """All events but those that a retry has taken back."""
    tries = [(seq, each.since) for seq, each in numbered(events) if isinstance(each, ev.RunRetried)]
    for seq, event in numbered(events):
        if not any(since <= seq < retried for retried, since in tries):
            yield event


def ended_without_code(events: Sequence[Event]) -> bool:
    """Whether it was cancelled in quarantine: nobody could settle or undo its effects."""
    end = next((event for event in reversed(events) if isinstance(event, ENDS)), None)
    return isinstance(end, ev.RunCancelled) and end.error.type_name == "RunQuarantined"


def check_signals(events: Sequence[Event]) -> Iterator[str]:
    """Check mail: each letter is taken once; a reply follows its request, and is one."""
    letters: dict[str, int] = {}
    replied: dict[str, int] = {}
    for seq, event in numbered(events):
        match event:
            case ev.ChapterBegan():
                letters |= {f"signal/{each.signal_id}": seq for each in event.signals}
            case ev.SignalReceived(signal_id=letter):
                yield from _once(seq, letters, f"signal/{letter}", "takes")
            case ev.MailRead(mail_id=letter):
                yield from _once(seq, letters, letter, "takes")
            case ev.Replied(signal_id=letter):
                yield from _once(seq, replied, letter, "replies to")
                if f"signal/{letter}" not in letters and first_seq(events) == 1:
                    yield f"event {seq} replies to {letter}, which never came"


def _once(seq: int, known: dict[str, int], name: str, verb: str) -> Iterator[str]:
    if name in known:
        yield f"event {seq} {verb} {name} a second time"
    known[name] = seq


def check_questions(events: Sequence[Event]) -> Iterator[str]:
    """Check questions: asked once, answered or closed once, and none outlives its run."""
    asked: dict[str, int] = {}
    still_open: set[str] = set()
    for seq, event in numbered(events):
        match event:
            case ev.ChapterBegan() | ev.RunRetried():
                asked, still_open = {}, set()
            case ev.QuestionAsked(question=question):
                yield from _once(seq, asked, question, "asks")
                still_open.add(question)
            case ev.Answered(question=question) | ev.QuestionClosed(question=question):
                if question not in still_open:
                    yield f"event {seq} ({type(event).__name__}): {question} is not open"
                still_open.discard(question)
            case ev.RunCompleted() | ev.RunFailed() | ev.RunCancelled():
                for question in () if ended_without_code(events) else sorted(still_open):
                    yield f"event {seq} ends it and leaves question {question} open"


def check_children(events: Sequence[Event]) -> Iterator[str]:
    """Check children: intended once, started once after that, and their end told once."""
    intended: dict[str, int] = {}
    started: dict[str, int] = {}
    ended: dict[str, int] = {}
    for seq, event in numbered(events):
        match event:
            case ev.ChapterBegan():
                intended, started, ended = {}, {}, {}
            case ev.RunRetried(since=since):
                # Children that ended meanwhile are looked up anew.
                started = {}
                intended, ended = (
                    {step: place for step, place in each.items() if place < since}
                    for each in (intended, ended)
                )
            case ev.ChildIntended(step=step):
                yield from _once(seq, intended, step, "intends child")
            case ev.ChildSpawned(step=step):
                yield from _once(seq, started, step, "starts child")
            case ev.ChildEnded(step=step):
                yield from _once(seq, ended, step, "ends child")
        if isinstance(event, (ev.ChildSpawned, ev.ChildEnded)) and event.step not in intended:
            yield f"event {seq} ({type(event).__name__}): {event.step} was not intended"
        if isinstance(event, ev.ChildSpawned) and event.step in ended:
            yield f"event {seq} starts child {event.step} after its end"


#: Events that only a running flow can cause.
_OF_A_FLOW = (
    ev.QuestionAsked,
    ev.Answered,
    ev.ChildIntended,
    ev.TimerFired,
    ev.ChapterBegan,
    ev.RunCompleted,
)


def check_stopped(events: Sequence[Event]) -> Iterator[str]:
    """Check that a flow that ended badly begins nothing new."""
    stopped_by: Event | None = None
    intended: set[str] = set()
    for seq, event in numbered(events):
        if isinstance(event, ev.RunRetried):
            stopped_by = None
        elif isinstance(event, ev.DeadlinePassed) and isinstance(stopped_by, ev.DeadlinePassed):
            yield f"event {seq}: its deadline passes a second time"
        elif stopped_by is not None:
            is_new = isinstance(event, ev.EffectIntended) and event.step not in intended
            is_undo = isinstance(event, ev.EffectIntended) and event.step.startswith(UNDO)
            if isinstance(event, _OF_A_FLOW) or (is_new and not is_undo):
                kind = type(stopped_by).__name__
                yield f"event {seq} ({type(event).__name__}) comes after {kind}"
        if isinstance(event, (ev.DeadlinePassed, ev.RunUndoing)):
            stopped_by = event
        if isinstance(event, ev.EffectIntended):
            intended.add(event.step)


class _Undoing:
    """The effects done so far, and those of them that were undone."""

    def __init__(self) -> None:
        self.open_steps: set[str] = set()
        #: By step, its place among the ends, of what happened by this run's own doing.
        self.happened: dict[str, int] = {}
        self.begun: ev.RunUndoing | None = None
        self._last: int | None = None

    def turn_page(self, event: ev.ChapterBegan) -> None:
        """Keep only what can be undone, in its order."""
        count = len(event.happened)
        self.happened = {e.step: n - count for n, e in enumerate(event.happened)}

    def intend(self, seq: int, step: str) -> Iterator[str]:
        """Note that an effect, or an undo, is attempted for the first time or again."""
        if step.startswith(UNDO) and step not in self.open_steps:
            yield from self._check(seq, step.removeprefix(UNDO))
        self.open_steps.add(step)

    def _check(self, seq: int, undone: str) -> Iterator[str]:
        if self.begun is None:
            yield f"event {seq} undoes {undone} though the run did not end badly"
        if self.open_steps:
            yield f"event {seq} undoes {undone} while {sorted(self.open_steps)} are unsettled"
        place = self.happened.get(undone)
        if place is None:
            yield f"event {seq} undoes {undone}, which did not happen"
        elif self._last is not None and place > self._last:
            yield f"event {seq} undoes {undone} out of order"
        self._last = place

    def end(self, seq: int, event: ev.EffectDone | ev.EffectRaised) -> None:
        """Note that an effect, or an undo, is settled."""
        self.open_steps.discard(event.step)
        if _is_own(event):
            self.happened[event.step] = seq


def check_undo(events: Sequence[Event]) -> Iterator[str]:
    """Check that effects are undone once every doubt is settled: last first, each once."""
    undoing = _Undoing()
    for seq, event in numbered(events):
        match event:
            case ev.ChapterBegan():
                undoing.turn_page(event)
            case ev.EffectIntended(step=step):
                yield from undoing.intend(seq, step)
            case ev.EffectDone() | ev.EffectRaised():
                undoing.end(seq, event)
            case ev.RunUndoing():
                undoing.begun = event
                for step in sorted(undoing.open_steps):
                    yield f"event {seq} begins to undo while effect {step} is unsettled"
            case ev.RunCompleted() | ev.RunFailed() | ev.RunCancelled() if (
                undoing.begun is not None
            ):
                yield from _check_verdict(seq, undoing.begun, event)


def _is_own(event: ev.EffectDone | ev.EffectRaised) -> bool:
    happened = isinstance(event, ev.EffectDone) or event.happened is True
    return happened and event.by != "holder"


def _check_verdict(seq: int, undoing: ev.RunUndoing, end: Event) -> Iterator[str]:
    kinds: dict[str, type] = {"failed": ev.RunFailed, "cancelled": ev.RunCancelled}
    if ended_without_code([end]):
        return
    if type(end) is not kinds.get(undoing.status):
        yield f"event {seq} is {type(end).__name__}, it was undone as {undoing.status}"


WAIT_RULES: tuple[Rule, ...] = (
    check_signals,
    check_questions,
    check_children,
    check_stopped,
    check_undo,
)


def audit_undone(
    journals: Mapping[str, Sequence[Event]], undoable: frozenset[str]
) -> Iterator[str]:
    """Check that a run that ended badly tried to undo all its undoable effects.

    Args:
        journals: all events of each run.
        undoable: the names of effects that declare how they are undone.
    """
    for run_id, events in journals.items():
        is_bad = any(isinstance(event, (ev.RunFailed, ev.RunCancelled)) for event in events[-3:])
        if is_bad and not ended_without_code(events):
            for step in _not_undone(events):
                if step.rpartition("/")[2].partition("#")[0] in undoable:
                    yield f"run {run_id}: it ended badly and {step} was not undone"


def _not_undone(events: Sequence[Event]) -> list[str]:
    happened: list[str] = []
    undone: set[str] = set()
    for event in events:
        if isinstance(event, ev.ChapterBegan):
            happened = [each.step for each in event.happened]
        elif isinstance(event, (ev.EffectDone, ev.EffectRaised)) and event.step.startswith(UNDO):
            undone.add(event.step.removeprefix(UNDO))
        elif isinstance(event, (ev.EffectDone, ev.EffectRaised)) and _is_own(event):
            happened.append(event.step)
    return [step for step in happened if step not in undone]
