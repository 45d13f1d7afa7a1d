"""What the journal tells a drive that begins: what to deliver, what is open, where it differs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from outlive.engine.context import RunContext
from outlive.engine.faults import exception_of
from outlive.engine.ops import Op
from outlive.errors import InsideStep, OutliveError, ReplayMismatch, ValueRefused
from outlive.journal.fork import changed_in
from outlive.journal.redaction import same_text
from outlive.model.events import (
    Answered,
    AttemptFailed,
    CancelRequested,
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
    Forked,
    MailRead,
    Patched,
    Published,
    QuestionAsked,
    Replied,
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
    recorded_digest,
)
from outlive.model.ids import digest, place_of_question
from outlive.model.replay import Past, past_of
from outlive.model.run import Run
from outlive.model.streams import Written, written_in

#: What a replay goes through, in order: deliveries, intents to compare the code with, and what
#: says whether an effect is under way.
_REPLAYED = frozenset(
    {
        StepDone,
        StepRaised,
        AttemptFailed,
        EffectIntended,
        EffectDone,
        EffectRaised,
        EffectDoubted,
        TimerFired,
        SignalReceived,
        QuestionAsked,
        Answered,
        Replied,
        CancelRequested,
        DeadlinePassed,
        RunUndoing,
        ChildIntended,
        ChildSpawned,
        ChildEnded,
        Forked,
    }
)

#: These come whatever the flow does: they do not tell that it has gone on.
_UNASKED = frozenset(
    {
        Answered,
        CancelRequested,
        Claimed,
        DeadlinePassed,
        DriveBegan,
        Forked,
        MailRead,
        Patched,
        Published,
        SignalReceived,
        Streamed,
        StreamReset,
        Tagged,
    }
)

_OF_EFFECTS = frozenset({EffectIntended, EffectDone, EffectRaised, EffectDoubted})


#: Says of an effect that it is not performed again.
DONE_BEFORE_RETRY = "was done, or may have been, before the retry"
RETRY_REMEDY = (
    "put the code back under which it was done; if that has not changed, branches that share state "
    "were told in another order than before: cancel this run and start another"
)

#: Of a question's text, where it is told in an error.
TEXT_SHOWN = 300
#: Of the arguments of one side.
SIDE_CHARS = 100


class Replay:
    """The recorded past of a run."""

    def __init__(self, run_id: str, run: Run) -> None:
        self._run_id = run_id
        # Copies: the fold goes on with the keeper, on its thread.
        self.effects = dict(run.effects)
        for step, effect in run.effects.items():
            self.effects[step] = replace(effect)
        self.backoffs = dict(run.backoffs)
        self.patches = set(run.patches)
        self._seq = run.seq
        self._past = Past()
        #: Outcomes from before a failure, by step.
        self.known = self._past.known
        #: What a fork gave another outcome, in JSON.
        self.changed: list[Event] = []
        self.is_fork = False
        self._refusals: dict[str, Replied] | None = None
        self._asked: dict[str, str] | None = None
        self._taken: dict[str, SignalTaken] | None = None

    def inbox(self, events: Sequence[Event]) -> Iterable[Event]:
        """The events that the flow goes through again."""
        self._past = past_of(events, self._seq - len(events) + 1)
        self.known = self._past.known
        self.is_fork = Forked in map(type, events)
        if self.is_fork:
            self.changed = changed_in(events)
        return [event for _, event in self._past.events if type(event) in _REPLAYED]

    def written(self, events: Sequence[Event]) -> Written:
        """What was written into streams."""
        return written_in(events, self._seq - len(events) + 1)

    def seq_of(self, event: Event) -> int:
        """Where in the journal an event stands (0: it is not there yet)."""
        return next((seq for seq, each in self._past.events if each is event), 0)

    def is_changed(self, event: Event) -> bool:
        """A fork gave this step another outcome, in JSON."""
        return bool(self.changed) and any(event is each for each in self.changed)

    def is_inherited(self, event: Event) -> bool:
        """It stands in what a fork shares with another run."""
        return self.seq_of(event) < 1

    def refusal_of(self, signal_id: str) -> Replied | None:
        """That the flow did not get this signal, for it was of another type."""
        if self._refusals is None:
            replies = (event for _, event in self._past.events if isinstance(event, Replied))
            self._refusals = {reply.signal_id: reply for reply in replies if reply.error}
        return self._refusals.get(signal_id)

    def taken(self, signal_id: str) -> SignalTaken | None:
        """That the flow took this signal, and as what."""
        if self._taken is None:
            events = (event for _, event in self._past.events if isinstance(event, SignalTaken))
            self._taken = {event.signal_id: event for event in events}
        return self._taken.get(signal_id)

    def question_at(self, place: str) -> str:
        """The id of the question that was asked last at a place of the flow."""
        if self._asked is None:
            events = (event for _, event in self._past.events if type(event) is QuestionAsked)
            self._asked = {place_of_question(each.question): each.question for each in events}
        return self._asked.get(place, place)

    def since(self, ahead: int) -> Iterator[Event]:
        """What the flow did after its last delivery, the last first; so many are still ahead."""
        for _, event in reversed(self._past.events):
            if type(event) in _REPLAYED:
                if not ahead:
                    return
                ahead -= 1
            if type(event) not in _UNASKED:
                yield event

    def is_over(self) -> None:
        """Everything recorded was delivered; it need not be kept."""
        self._past.events = []

    def known_of(self, op: Op) -> Event | None:
        """The outcome of this very call, recorded before the run was given another try.

        Raises:
            ReplayMismatch: the effect was done with other arguments.
        """
        event = self.known.pop(op.id, None)
        if isinstance(event, StepDone):
            return event if recorded_digest(event) == op.digest else None
        return event if event is None else self._insist(event, op)

    def known_answer(self, place: str) -> tuple[QuestionAsked, Answered] | None:
        """A human's answer from before the run was given another try, and what was asked then."""
        answer = self.known.pop(place, None)
        return (self._past.asked[place], answer) if isinstance(answer, Answered) else None

    def _insist(self, event: Event, op: Op) -> Event:
        seq, intent = self._past.intents[op.id]
        asked = difference(op, intent)
        if asked:
            raise ReplayMismatch(
                self._run_id,
                seq,
                recorded=f"effect {op.id}, which {DONE_BEFORE_RETRY}",
                code=f"asks for {asked}",
                remedy=f"{RETRY_REMEDY}{both_sides(op, intent)}",
            )
        return event


def was_driven(events: Sequence[Event]) -> bool:
    """Somebody drove this chapter before: its flow goes through it again.

    A run is claimed when it is first driven; a later chapter begins under the claim of the last.
    """
    kinds = list(map(type, events))
    is_first = bool(events) and kinds[0] is RunStarted
    return kinds.count(Claimed) > is_first or Forked in kinds


def parting(inbox: Sequence[Event]) -> Forked | None:
    """Where a fork parts from what it shares, if that comes next: what follows is its own."""
    first = inbox[0] if inbox else None
    return first if isinstance(first, Forked) else None


def is_plainly_same(op: Op, event: Any) -> bool:
    """At a glance: the very same arguments, or the end of an effect, whose intent had them."""
    kind = type(event)
    if kind is StepDone:
        is_same: bool = event.args == op.args and op.definition.effect is None
        return is_same
    if kind is EffectIntended:
        return bool(event.args) and event.args == op.args and op.definition.effect is not None
    return kind is EffectDone and op.definition.effect is not None


def difference(op: Op, event: Event) -> str:
    """What the code asks for where the journal has this event; empty if it is the same call."""
    of_effect = type(event) in _OF_EFFECTS
    if of_effect != (op.definition.effect is not None):
        return f"{op.id} as a step" if of_effect else f"{op.id} as an effect"
    args: bytes = getattr(event, "args", b"")
    if args and args == op.args:
        return ""
    recorded: bytes = getattr(event, "digest", b"") or (digest(args) if args else b"")
    if recorded and recorded != op.digest:
        # Equal but for the order of dictionaries is equal.
        if not args or not op.definition.args_codec.same(args, op.args):
            return f"{op.id} with other arguments"
        # From here on it goes by the recorded digest: later intents carry no arguments.
        op.own_digest = recorded
    return ""


def describe(event: Event) -> str:
    """An event as a person would name it."""
    match event:
        case StepDone() | StepRaised():
            return f"step {event.step}"
        case EffectIntended() | EffectDone() | EffectRaised() | EffectDoubted():
            return f"effect {event.step}"
        case TimerFired():
            return f"timer {event.timer}"
        case QuestionAsked():
            return f"question {shown_question(event)}"
        case SignalTaken():
            return f"signal {event.signal_id} taken as {event.type_name}"
        case ChildIntended():
            return f"run {event.child_id} of flow {event.flow} at {event.step}"
        case _:
            return type(event).__name__


def shown_question(asked: QuestionAsked, *, with_schema: bool = False) -> str:
    """A question as a person would name it."""
    text = asked.text if len(asked.text) <= TEXT_SHOWN else f"{asked.text[:TEXT_SHOWN]}…"
    schema = asked.schema.decode() or "anything"
    return f"{asked.question} “{text}”" + (f", answered by {schema}" if with_schema else "")


def changed_part(asked: QuestionAsked, recorded: QuestionAsked) -> str:
    """What makes this another question than the recorded one; empty if it is the same.

    An approval is for an effect and its arguments; how these look is not compared.
    """
    if asked.digest != recorded.digest:
        return "arguments"
    texts = asked.text, recorded.text
    if asked.digest:
        texts = _approved(asked), _approved(recorded)
    if not same_text(*texts):
        return "text"
    same_schema = asked.schema == recorded.schema or _open(asked.schema) == _open(recorded.schema)
    return "" if same_schema else "schema"


def _approved(asked: QuestionAsked) -> str:
    """The name of the effect that an approval is for."""
    return asked.text.partition("(")[0]


def _open(schema: bytes) -> object:
    return msgspec.json.decode(schema) if schema else None


def both_sides(op: Op, event: Event) -> str:
    """The arguments that differ, in the journal (-) and in the code (+); empty if unknown."""
    recorded: bytes = getattr(event, "args", b"")
    if not recorded:
        return ""
    codec = op.definition.args_codec
    try:
        before, now = codec.decode(recorded), codec.decode(op.args)
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    except Exception:
        return ""  # today's types can't read what was recorded, or can't be compared
    texts = {name: [f"{side[name]!r}" for side in (before, now) if name in side] for name in names}
    starts = {name: _parting_at(*found) for name, found in texts.items() if len(found) == 2}

    def shown(side: dict[str, Any]) -> str:
        given = [name for name in names if name in side]
        return ", ".join(f"{n}={_excerpt(repr(side[n]), starts.get(n, 0))}" for n in given)

    return f"\n- {shown(before)}\n+ {shown(now)}"


def _parting_at(one: str, other: str) -> int:
    """The place of the first character that differs."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _excerpt(text: str, start: int) -> str:
    """The part of a long text from which on the other side differs, with a little before it."""
    begin = 0 if len(text) <= SIDE_CHARS else max(0, start - SIDE_CHARS // 2)
    end = begin + SIDE_CHARS
    return ("…" if begin else "") + text[begin:end] + ("…" if end < len(text) else "")


def mismatch(
    run_id: str, seq: int, recorded: str, asked: Sequence[str], sides: str = ""
) -> ReplayMismatch:
    """What to tell when code and journal part ways."""
    code = f"asks for {', '.join(asked)}" if asked else "asks for nothing"
    if asked == ["returned"]:
        code = "returned"
    return ReplayMismatch(
        run_id,
        seq,
        recorded=recorded,
        code=code,
        remedy="put the old code back to finish this run, or give the changed flow a new "
        f"version=; `outlive show {shlex.quote(run_id)}` shows what was recorded{sides}",
    )


def outcome_of(op: Op, event: Event) -> tuple[Any, BaseException | None]:
    """What the flow gets: what the record decodes to, live as on replay.

    Raises:
        ValueRefused: the record can't be decoded by today's types.
    """
    definition = op.definition
    if type(event) is StepDone or type(event) is EffectDone:
        return definition.value_codec.decode(event.value), None
    assert isinstance(event, (StepRaised, EffectRaised)), "an op ends in one of four ways"
    return None, exception_of(event.error, definition.own_errors, definition.value_codec, op.id)


def misfit_arguments(run_id: str, error: Exception) -> ReplayMismatch:
    """What to tell when the flow can't be called with the arguments in its journal."""
    return ReplayMismatch(
        run_id,
        1,
        recorded="the run's arguments",
        code=f"can't be called with them ({error})",
        remedy="give parameters that were added a default, and keep those that were recorded",
    )


SPINS = (
    "the flow runs without ever waiting for a step, timer or signal "
    "(a loop around asyncio.sleep(0)?); wait with `await outlive.sleep(...)` or on a step"
)
STUCK = (
    "the flow waits for something that no step, timer or signal will ever set "
    "(an asyncio.Event or Future of its own, or one of a thread?); do such waiting inside a step"
)


class Comparing:
    """The comparison of one run's code with its journal."""

    def __init__(self, context: RunContext, replay: Replay) -> None:
        self._context, self._replay = context, replay

    def refuse(self, error: OutliveError) -> None:
        """Code and journal do not fit, for this reason."""
        self._context.misfit = self._context.misfit or error

    def differs(self, event: Event, asked: str = "", recorded: str = "", sides: str = "") -> None:
        """The journal has this event where the code asks for something else."""
        wanted, seq = [asked] if asked else self._context.asked(), self._replay.seq_of(event)
        recorded = recorded or describe(event)
        self.refuse(mismatch(self._context.run_id, seq, recorded, wanted, sides))

    def is_inherited(self, event: Event) -> bool:
        """It stands in what a fork shares with another run."""
        return self._replay.is_inherited(event)

    def find(self, event: Event, step: str) -> Op | None:
        """The op that an event is about; the code must have asked for it by now."""
        op = self._context.waiting.find(step)
        if op is None:
            self.differs(event)
        elif not self.fits(op, event):
            return None
        return op

    def fits(self, op: Op, event: Event) -> bool:
        """The call is the one in the journal; if not, the run can't go on here."""
        if is_plainly_same(op, event):
            return True
        asked = difference(op, event)
        if asked:
            self.differs(event, asked, sides=both_sides(op, event))
        return not asked

    def outcome(self, op: Op, event: Event) -> tuple[Any, BaseException | None]:
        """An op's outcome, decoded; if today's types can't, the run stops and keeps its place."""
        is_changed = self._replay.is_changed(event)
        try:
            if is_changed:
                return op.definition.value_from_json(getattr(event, "value", b"")), None
            value, error = outcome_of(op, event)
            if isinstance(error, InsideStep):
                self._context.loop.refuse(error)  # the run fails with it, whoever catches it
            return value, error
        except ValueRefused as refused:
            self.refuse(_given_by_fork(op, refused) if is_changed else refused)
            return None, None


def _given_by_fork(op: Op, refused: ValueRefused) -> ValueRefused:
    why = f"this fork gave step {op.id} another outcome, and {refused.reason}"
    return ValueRefused(f"{why}; fork the other run again, with one that it may return")
