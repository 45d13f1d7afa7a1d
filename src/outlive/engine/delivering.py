"""What each kind of event does to the flow when its turn has come, live as on replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from outlive.engine.children import Children
from outlive.engine.comparing import Comparing
from outlive.engine.ending import Ending, Verdict
from outlive.engine.timers import FlowTimers
from outlive.engine.waiting import Waiting
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
    QuestionAsked,
    Replied,
    RunUndoing,
    SignalReceived,
    StepDone,
    StepRaised,
    TimerFired,
)
from outlive.model.past import DEADLINE_PASSED

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


class Woken(Protocol):
    """Whom events are delivered to."""

    main: asyncio.Task[Any] | None
    waiting: Waiting
    waits: Waits
    children: Children
    comparing: Comparing
    ending: Ending
    timers: FlowTimers

    @property
    def is_live(self) -> bool:
        """The journal is behind."""
        ...

    @property
    def flow_is_over(self) -> bool:
        """The flow returned, raised, or was stopped."""
        ...

    def advance(self, event: Any) -> None:
        """The flow's time is that of this event."""
        ...

    def cut(self, verdict: Verdict) -> None:
        """The flow stops here."""
        ...


class Delivering:
    """The deliveries of one run."""

    def __init__(self, drive: Woken) -> None:
        self._drive = drive
        self._takers: dict[type, Callable[[Any], None]] = {
            StepDone: self._resolve,
            EffectDone: self._resolve,
            StepRaised: self._resolve,
            EffectRaised: self._resolve,
            EffectIntended: self._compare_intent,
            EffectDoubted: self._doubt,
            AttemptFailed: self._give_way,
            TimerFired: drive.timers.fired,
            SignalReceived: drive.waits.deliver,
            QuestionAsked: drive.waits.compare,
            Answered: drive.waits.deliver,
            Replied: drive.waits.replayed,
            ChildIntended: drive.children.compare,
            ChildSpawned: drive.children.deliver,
            ChildEnded: drive.children.deliver,
            CancelRequested: self._cancel,
            DeadlinePassed: self._cut_at_deadline,
            RunUndoing: drive.ending.undo,
        }

    def deliver(self, event: Event) -> None:
        """The flow has nothing left to run: let it see this."""
        if type(event) not in _TIMELESS:
            self._drive.advance(event)
        self._takers[type(event)](event)

    def _compare_intent(self, event: EffectIntended) -> None:
        op = self._drive.comparing.find(event, event.step)
        self._drive.waiting.shield(event.step)
        if op is not None and not self._drive.is_live:
            # A living one is "intended" when it is durable, which it need not be yet.
            op.stage = "intended"

    def _doubt(self, event: EffectDoubted) -> None:
        if self._drive.comparing.find(event, event.step) is not None:
            self._drive.waiting.give_way(event.step)

    def _give_way(self, event: AttemptFailed) -> None:
        self._drive.waiting.give_way(event.step)

    def _resolve(self, event: StepDone | StepRaised | EffectDone | EffectRaised) -> None:
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

    def _cancel(self, _: CancelRequested) -> None:
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

    def _cut_at_deadline(self, _: DeadlinePassed) -> None:
        self._drive.cut(Verdict("failed", error=DEADLINE_PASSED))
