"""How a run leaves memory: it ended, waits (parked), was lost, does not fit, or turns a page.

In each case every frame of the flow is closed here and now; nothing is thrown into user code. An
awaited run that ended leaves only when its parent has been told.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from outlive.engine.attempts import hurry
from outlive.engine.children import tell_parent
from outlive.engine.context import RunContext
from outlive.engine.end import Deadline
from outlive.engine.host import Cancellable
from outlive.engine.notices import reason_of
from outlive.engine.ops import Op
from outlive.engine.place import RunStopped
from outlive.engine.threads import FlowThreads
from outlive.engine.timers import FlowTimers
from outlive.engine.waits import Waits
from outlive.errors import OutliveError
from outlive.model.events import ChapterBegan, Event, Parked

#: When a worker tries again to drive a run whose code did not fit its journal.
MISMATCH_RETRY_MS = 60_000

How = Literal["ended", "parked", "lost", "misfit", "chapter"]


class Leaving:
    """The way out of memory of one run."""

    #: Called when the run has left.
    left: Callable[[How, OutliveError | None], None]
    #: What flow code called and did not await is forgotten: another driver makes these calls again.
    forget_calls: Callable[[], object]

    def __init__(
        self,
        context: RunContext,
        timers: FlowTimers,
        deadline: Deadline,
        waits: Waits,
        threads: FlowThreads,
    ) -> None:
        self._context, self._timers, self._deadline = context, timers, deadline
        self._waits, self._threads = waits, threads
        #: Running while the run stays for mail that may come soon, and what it had done by then.
        self._stay: Cancellable | None = None
        self._stayed_at = 0

    def end(self, event: Event) -> None:
        """This is the last event of its flow."""
        self._context.note(event)
        self.stop()
        self._context.when_durable(self._ended)

    def turn_page(self, event: ChapterBegan) -> None:
        """The chapter is over: the next one is begun from what is durable, as by anybody else."""
        self._context.note(event)
        self.stop()
        self._context.when_durable(lambda: self._leave("chapter"))

    def _ended(self) -> None:
        outlet = self._context.outlet
        if outlet is not None and outlet.offsets and outlet.on_chunks is not None:
            outlet.on_chunks()  # who reads a stream waits for its end, too
        if self._context.start_event.is_awaited:
            self._context.env.host.create_task(self._tell_parent())
        else:
            self._leave("ended")

    async def _tell_parent(self) -> None:
        context = self._context
        if await tell_parent(context.env, context.log, context.log.run):
            context.when_durable(lambda: self._leave("ended"))
        elif context.log.failure is None:
            self._leave("lost")  # the store is gone, though the log does not know yet

    def park_if_idle(self, patience_ms: int | None = None) -> None:
        """Leave memory if every branch only waits, and for long enough."""
        context = self._context
        if context.is_busy():
            return
        if context.draining:
            self._leave_if_drained()
            return
        waits = [op.wait for op in context.waiting.all()]
        if "busy" in waits:
            return
        times = [when for when in waits if isinstance(when, int)]
        times += self._timers.times() + self._deadline.times()
        if not times and not waits and not context.open_waits():
            context.stop_stuck()
            return
        wake_at = min(times) if times else None
        now = context.env.ports.clock.now_ms()
        if patience_ms is None and context.log.run.is_tried and context.log.run.barren:
            # Its last drivers died: that it only waits is written down before this one may, too.
            patience_ms = -1
        patience = context.env.idle_ms if patience_ms is None else patience_ms
        if wake_at is None or wake_at - now > patience:
            if patience_ms is None and self._stays():
                return
            context.flush()
            context.note(Parked(context.at(), wake_at, signals=self._waits.signal_names()))
            self.stop()
            context.when_durable(lambda: self._leave("parked"))
        else:
            self._timers.hurry(now + context.env.idle_ms)
            self._deadline.hurry()
            for op in context.waiting.all():
                hurry(context, op, now + context.env.idle_ms)

    def _stays(self) -> bool:
        """It did something not long ago and waits for mail: the next may be on its way.

        Whoever has to wait for a place does not wait for that.
        """
        context = self._context
        if not context.open_waits() or not context.env.idle_ms:
            return False
        if context.log.seq != self._stayed_at:
            self._stayed_at = context.log.seq
            self._end_stay()
            self._stay = context.env.host.call_later(context.env.idle_ms / 1000, self._stay_is_over)
        return self._stay is not None

    def _stay_is_over(self) -> None:
        self._stay = None
        self.park_if_idle()

    def _end_stay(self) -> None:
        if self._stay is not None:
            self._stay.cancel()
            self._stay = None

    def misfit(self, error: OutliveError) -> None:
        """Code and journal do not fit: keep the place, and try again later."""
        context = self._context
        context.flush()
        self.stop()
        now = context.env.ports.clock.now_ms()
        context.note(Parked(context.at(), now + MISMATCH_RETRY_MS, reason_of(error)))
        context.when_durable(lambda: self._leave("misfit", error))

    def lost(self, error: OutliveError) -> None:
        """The lease or the store is gone."""
        self.stop()
        self._leave("lost", error)

    def _leave_if_drained(self) -> None:
        """Nothing that was begun is under way any more. A doubt is the next driver's to settle."""
        context = self._context
        begun = [op for op in context.waiting.all() if op not in context.to_start]
        if not any(op.wait == "busy" and not _is_doubted(op) for op in begun):
            self.hand_over()

    def hand_over(self) -> None:
        """Stop driving here and free the lease: the run is due at once, for whoever comes first.

        What still runs here is called off or runs out, unheard; an effect among it is in doubt.
        """
        context = self._context
        if not context.stopped:
            context.flush()
            context.note(Parked(context.at(), context.env.ports.clock.now_ms()))
            self.stop()
            context.when_durable(lambda: self._leave("parked"))

    def abandon(self) -> None:
        """Stop driving here; nothing can be written any more."""
        if not self._context.stopped:
            self.stop()
            self._leave("lost")

    def stop(self) -> None:
        """Close every frame; from here on every durable call of this flow raises."""
        context = self._context
        if context.stopped:
            return
        context.stopped = True
        if context.is_replaying:
            context.end_replay()
        if self._stay is not None:
            self._end_stay()
        if context.outlet is not None:
            context.outlet.stop()
        if self._deadline.is_set:
            self._deadline.stop()
        if self._timers.waiting:
            self._timers.stop()
        context.waiting.stop()
        context.loop.kill(RunStopped)
        self.forget_calls()

    def _leave(self, how: How, error: OutliveError | None = None) -> None:
        self._context.log.close()
        self._threads.when_unwound(partial(self.left, how, error))


def _is_doubted(op: Op) -> bool:
    return op.effect is not None and op.effect.doubt is not None
