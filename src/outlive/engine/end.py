"""How a run ends. Badly is a phase of its own: settle every doubt, undo what happened, last first.

The flow returns, raises, is cancelled, or is cut off by its deadline; that gives a verdict. With a
bad one, and effects that declare ``undo=``, the run goes through ``RunUndoing``: each undo is an
effect itself, with an intent, attempts and an end in the journal, one after the other. Only then
comes the last event. Live and replayed endings go through the same code.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from outlive.engine.context import RunContext
from outlive.engine.faults import fault_of
from outlive.engine.host import Cancellable
from outlive.engine.notices import one_line
from outlive.engine.ops import Op
from outlive.engine.replay import Comparing
from outlive.engine.undo import recalled, undo_of, undoable
from outlive.engine.waits import Waits
from outlive.errors import OutliveError, RunError, ValueRefused
from outlive.model.events import (
    ChapterBegan,
    DeadlinePassed,
    EffectDone,
    EffectRaised,
    Event,
    Fault,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunUndoing,
)
from outlive.model.ids import derived_key

logger = logging.getLogger("outlive")


#: The fault of a flow that waits for nothing that could ever come.
FLOW_STUCK = "FlowStuck"


@dataclass(frozen=True, slots=True)
class FlowEnd:
    """How the flow ended."""

    status: Literal["completed", "failed", "cancelled", "carried"]
    #: The outcome; of a chapter that is followed by another, the next one's arguments.
    value: bytes = b""
    error: Fault | None = None


class Ending:
    """The end of one run, or of one of its chapters."""

    def __init__(
        self, context: RunContext, chapter: ChapterBegan, comparing: Comparing, waits: Waits
    ) -> None:
        self._context, self._chapter = context, chapter
        self._comparing, self._waits = comparing, waits
        self.verdict: FlowEnd | None = None
        self.cancel_requested = False
        #: Somebody asked for it when the flow was over.
        self.cancel_is_due = False
        self._happened: list[tuple[Op, EffectDone | EffectRaised]] = []
        self._to_undo: deque[tuple[Op, EffectDone | EffectRaised]] | None = None

    def note_end(self, op: Op, event: Event) -> None:
        """An effect that can be undone has happened."""
        rules = op.definition.effect
        if rules is None or rules.undo is None or not isinstance(event, (EffectDone, EffectRaised)):
            return
        happened = isinstance(event, EffectDone) or event.happened is True
        # What another run did under the same key is that run's to undo.
        if happened and event.by != "holder":
            self._happened.append((op, event))

    # verdicts

    def returned(
        self,
        main: asyncio.Task[Any],
        refusal: OutliveError | None = None,
        left: OutliveError | None = None,
    ) -> None:
        """The flow's own task is done; ``left`` says what it called and did not await.

        What the engine refused counts, whatever flow code made of it.
        """
        codec, hider = self._context.flow.value_codec, self._context.hider
        error = asyncio.CancelledError() if main.cancelled() else main.exception()
        if not isinstance(error, asyncio.CancelledError):
            if error is not None and left is not None:
                error.add_note(str(left))  # what is not awaited often raises something else
            error = refusal or error or left
        if error is None:
            try:
                self.verdict = FlowEnd("completed", hider.value(codec.write(main.result())))
            except ValueRefused as refused:
                error = refused.by(f"flow {self._context.flow.name} returned")
        if error is not None:
            was_cancelled = self.cancel_requested and isinstance(error, asyncio.CancelledError)
            status: Literal["cancelled", "failed"] = "cancelled" if was_cancelled else "failed"
            self.verdict = FlowEnd(status, error=hider.fault(fault_of(error, codec)))

    def next_chapter(self) -> FlowEnd:
        """The flow asked to begin anew."""
        assert self._context.carries is not None, "it was asked for"
        return FlowEnd("carried", self._context.carries)

    # the phase of undoing

    def proceed(self) -> Event | None:
        """The flow is over and nothing is open: the last event, or None while there is more."""
        verdict = self.verdict
        assert verdict is not None, "the flow is over"
        if verdict.status == "carried":
            return self._begin_chapter(verdict.value)
        if verdict.status != "completed" and self._to_undo is None and self._has_to_undo():
            self._context.record(RunUndoing(self._context.at(), verdict.status, verdict.error))
            return None
        at = self._context.at()
        if verdict.status == "completed":
            return RunCompleted(at, verdict.value)
        fault = verdict.error or Fault("CancelledError", "")
        return RunFailed(at, fault) if verdict.status == "failed" else RunCancelled(at, fault)

    def _has_to_undo(self) -> bool:
        return bool(self._happened or self._chapter.happened)

    def _begin_chapter(self, args: bytes) -> ChapterBegan:
        context, last = self._context, self._chapter
        start = context.start_event
        if start.version != context.flow.version:
            start = msgspec.structs.replace(start, version=context.flow.version)
        return ChapterBegan(
            at=context.at(),
            seq=context.log.seq + 1,
            epoch=context.log.run.epoch,
            number=last.number + 1,
            start=start,
            args=args,
            signals=self._waits.kept(),
            happened=[*last.happened, *(undoable(op, end) for op, end in self._happened)],
            is_cancelled=self.cancel_is_due,
            usage=tuple(context.usage.values()) or None,
            published={} if context.outlet is None else dict(context.outlet.shown),
            streams={} if context.outlet is None else dict(context.outlet.offsets),
        )

    def undo(self, event: RunUndoing) -> None:
        """The phase has begun, now or in the journal: begin the last of what happened."""
        if event.error is not None and event.error.type_name == FLOW_STUCK:
            # That it was stuck only its driver could see, who had nothing more to deliver.
            self._context.cut(FlowEnd("failed", error=event.error))
        if not self._context.flow_is_over() or self.verdict is None:
            self._comparing.differs(event)
        elif self.verdict.status != event.status:
            self._comparing.differs(event, f"the end as {self.verdict.status}")
        else:
            try:
                earlier = [recalled(each) for each in self._chapter.happened]
            except RunError as error:
                self._comparing.refuse(error)
                return
            self._to_undo = deque(reversed([*earlier, *self._happened]))
            self._undo_next()

    def _say_it_stands(self, ended: EffectRaised) -> None:
        """Nothing undoes this effect any more: somebody has to know."""
        context, step = self._context, ended.step.removeprefix("undo:")
        why = ended.error.type_name
        if not context.env.notices.secret:
            why += f": {one_line(ended.error.message)}"
        says = (
            "run %s (flow %s): effect %s could not be undone and stands (%s); "
            "undo it by hand: `outlive show %s` shows it"
        )
        run_id = context.run_id
        logger.warning(says, run_id, context.flow.name, step, why, shlex.quote(run_id))

    def _undo_next(self, ended: Event | None = None) -> None:
        if isinstance(ended, EffectRaised) and self._context.is_live:
            self._say_it_stands(ended)
        if not self._to_undo:
            return
        op, event = self._to_undo.popleft()
        value, _ = self._comparing.outcome(op, event)
        undo = undo_of(op, event, value, derived_key(self._context.run_id, op.id))
        undo.on_end = self._undo_next
        self._context.waiting.add(undo)
        if self._context.is_live:
            self._context.to_start.append(undo)


class Deadline:
    """A run's own time limit: when it passes, that is an event."""

    def __init__(self, context: RunContext, at: int | None) -> None:
        self._context, self._at = context, at
        self.is_set = at is not None
        self._timer: Cancellable | None = None

    def arm(self) -> None:
        """From here on time is the host's; if it passed before, that is an event at once."""
        if self._at is None or self._context.flow_is_over():
            return
        delay = (self._at - self._context.env.ports.clock.now_ms()) / 1000
        if delay > 0:
            self._timer = self._context.env.host.call_later(delay, self._due)
        else:
            self._context.record(DeadlinePassed(self._context.at()))

    def _due(self) -> None:
        if not self._context.stopped:
            # Once more by the wall clock, which may have been set back meanwhile.
            self.arm()
            self._context.rest()

    def hurry(self) -> None:
        """The wall clock may have been set forward: look anew."""
        if self._timer is not None:
            self._timer.cancel()
            self.arm()

    def times(self) -> list[int]:
        """When it is due, if it still can pass."""
        return [] if self._at is None or self._context.flow_is_over() else [self._at]

    def stop(self) -> None:
        """The run leaves memory."""
        if self._timer is not None:
            self._timer.cancel()
