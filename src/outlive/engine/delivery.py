"""What each kind of event does to the flow when its turn has come, live as on replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from outlive.engine.children import Children
from outlive.engine.end import Ending, FlowEnd
from outlive.engine.ops import Recorder
from outlive.engine.pending import PendingOps
from outlive.engine.replay import Comparing
from outlive.engine.timers import FlowTimers
from outlive.engine.waits import Waits
from outlive.model.events import (
    Answered,
    AttemptFailed,
    CancelRequested,
    ChildEnded,
    ChildIntended,
    ChildSpawned,
    DeadlinePassed,
    EffectDone,
    EffectDoubted,
    EffectIntended,
    EffectRaised,
    Event,
    Forked,
    QuestionAsked,
    Replied,
    RunUndoing,
    SignalReceived,
    StepDone,
    StepRaised,
    TimerFired,
)
from outlive.model.replay import DEADLINE_PASSED

#: These say what was begun or decided; the flow's time does not move by them.
_TIMELESS = frozenset(
    {
        EffectIntended,
        EffectDoubted,
        AttemptFailed,
        QuestionAsked,
        ChildIntended,
        Replied,
        RunUndoing,
    }
)


class Woken(Recorder, Protocol):
    """Whom events are delivered to."""

    main: asyncio.Task[Any] | None
    waiting: PendingOps
    waits: Waits
    children: Children
    comparing: Comparing
    ending: Ending
    timers: FlowTimers

    def advance(self, event: Any) -> None:
        """The flow's time is that of this event."""
        ...

    def cut(self, verdict: FlowEnd) -> None:
        """The flow stops here."""
        ...


class Delivering:
    """The deliveries of one run."""

    def __init__(self, drive: Woken) -> None:
        self._drive = drive

    def deliver(self, event: Event) -> None:
        """The flow has nothing left to run: let it see this."""
        kind = type(event)
        if kind not in _TIMELESS:
            self._drive.advance(event)
        _TAKERS[kind](self, event)

    def compare_intent(self, event: EffectIntended) -> None:
        """The flow must have called it."""
        op = self._drive.comparing.find(event, event.step)
        self._drive.waiting.shield(event.step)
        if op is not None and not self._drive.is_live:
            # A living one is "intended" when it is durable, which it need not be yet.
            op.stage = "intended"

    def doubt(self, event: EffectDoubted) -> None:
        """An attempt's end is not known."""
        if self._drive.comparing.find(event, event.step) is not None:
            self._drive.waiting.give_way(event.step)

    def give_way(self, event: AttemptFailed) -> None:
        """An attempt is over; a cancellation that waited for it comes now."""
        self._drive.waiting.give_way(event.step)

    def resolve(self, event: StepDone | StepRaised | EffectDone | EffectRaised) -> None:
        """A step or effect has ended."""
        drive = self._drive
        if event.step in drive.waiting.cut_off:
            return
        if drive.is_live:  # it is about an op that the code asked for just now
            op = drive.waiting.find(event.step)
        else:
            op = drive.comparing.find(event, event.step)
        if op is None:
            return
        drive.ending.note_end(op, event)
        waited_for = drive.waiting.close(event.step)
        if op.on_end is not None:
            op.on_end(event)
        if waited_for is None or op.future is None or op.future.done():
            return
        value, error = drive.comparing.outcome(op, event)
        if error is not None:
            op.future.set_exception(error)
        elif drive.comparing.misfit is None:
            op.future.set_result(value)

    def cancel(self, _: CancelRequested) -> None:
        """Takes hold where the flow waits; what it does then is its own."""
        drive = self._drive
        if drive.main is None:
            return
        if drive.flow_is_over:
            # It is the next chapter's, if one is about to begin.
            drive.ending.cancel_is_due = True
        else:
            drive.ending.cancel_requested = True
            drive.main.cancel()

    def cut_at_deadline(self, _: DeadlinePassed) -> None:
        """The flow stops here."""
        self._drive.cut(FlowEnd("failed", error=DEADLINE_PASSED))

    # what others take

    def fire(self, event: TimerFired) -> None:
        """A timer's callback gets ready."""
        self._drive.timers.fired(event)

    def bring(self, event: SignalReceived | Answered) -> None:
        """Somebody outside has said something."""
        self._drive.waits.deliver(event)

    def compare_question(self, event: QuestionAsked) -> None:
        """The flow must have asked it."""
        self._drive.waits.compare(event)

    def answered(self, event: Replied) -> None:
        """The flow replied to a request."""
        self._drive.waits.replayed(event)

    def compare_child(self, event: ChildIntended) -> None:
        """The flow must have called for it."""
        self._drive.children.compare(event)

    def hear_of_child(self, event: ChildSpawned | ChildEnded) -> None:
        """A child began, or ended."""
        self._drive.children.deliver(event)

    def part_ways(self, event: Forked) -> None:
        """What a fork shares is behind it: chance is its own from here on."""
        self._drive.start_event = msgspec.structs.replace(event.start, seed=event.seed)

    def undo(self, event: RunUndoing) -> None:
        """What happened is undone from here on."""
        self._drive.ending.undo(event)


_TAKERS: dict[type, Callable[[Delivering, Any], None]] = {
    StepDone: Delivering.resolve,
    EffectDone: Delivering.resolve,
    StepRaised: Delivering.resolve,
    EffectRaised: Delivering.resolve,
    EffectIntended: Delivering.compare_intent,
    EffectDoubted: Delivering.doubt,
    AttemptFailed: Delivering.give_way,
    TimerFired: Delivering.fire,
    SignalReceived: Delivering.bring,
    QuestionAsked: Delivering.compare_question,
    Answered: Delivering.bring,
    Replied: Delivering.answered,
    ChildIntended: Delivering.compare_child,
    ChildSpawned: Delivering.hear_of_child,
    ChildEnded: Delivering.hear_of_child,
    CancelRequested: Delivering.cancel,
    DeadlinePassed: Delivering.cut_at_deadline,
    RunUndoing: Delivering.undo,
    Forked: Delivering.part_ways,
}
