"""How a run leaves memory: it ended, waits (parked), was lost, does not fit, or turns a page.

In each case every frame of the flow is closed here and now; nothing is thrown into user code. An
awaited run that ended leaves only when its parent has been told.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, Protocol

from outlive.engine.calls import Calls
from outlive.engine.children import Children, tell_parent
from outlive.engine.end import Deadline
from outlive.engine.host import Cancellable
from outlive.engine.loop import FlowLoop
from outlive.engine.notices import reason_of
from outlive.engine.ops import Op, Recorder, hurry
from outlive.engine.pending import PendingOps
from outlive.engine.place import RunStopped
from outlive.engine.threads import FlowThreads
from outlive.engine.timers import FlowTimers
from outlive.engine.waits import Waits
from outlive.errors import OutliveError
from outlive.model.events import ChapterBegan, Event, Parked

#: When a worker tries again to drive a run whose code did not fit its journal.
MISMATCH_RETRY_MS = 60_000

How = Literal["ended", "parked", "lost", "misfit", "chapter"]


class Resident(Recorder, Protocol):
    """A run in memory."""

    loop: FlowLoop
    threads: FlowThreads
    waiting: PendingOps
    waits: Waits
    timers: FlowTimers
    calls: Calls
    children: Children
    deadline: Deadline
    to_start: list[Op]

    @property
    def is_busy(self) -> bool:
        """Something of it runs, is about to, or has just ended."""
        ...

    def open_waits(self) -> list[str]:
        """What the flow waits for from outside."""
        ...

    def end_replay(self) -> None:
        """The flow is where it was, or goes no further."""
        ...

    def stop_stuck(self) -> None:
        """Nothing will ever wake this flow."""
        ...


class Leaving:
    """The way out of memory of one run."""

    def __init__(self, drive: Resident, left: Callable[[How, OutliveError | None], None]) -> None:
        self._drive, self._left = drive, left
        #: Running while the run stays for mail that may come soon, and what it had done by then.
        self._stay: Cancellable | None = None
        self._stayed_at = 0

    def end(self, event: Event) -> None:
        """This is the last event of its flow."""
        self._drive.note(event)
        self.stop()
        self._drive.when_durable(self._ended)

    def turn_page(self, event: ChapterBegan) -> None:
        """The chapter is over: the next one is begun from what is durable, as by anybody else."""
        self._drive.note(event)
        self.stop()
        self._drive.when_durable(lambda: self._leave("chapter"))

    def _ended(self) -> None:
        if self._drive.start_event.is_awaited:
            self._drive.env.host.create_task(self._tell_parent())
        else:
            self._leave("ended")

    async def _tell_parent(self) -> None:
        drive = self._drive
        if await tell_parent(drive.env, drive.log, drive.log.run):
            drive.when_durable(lambda: self._leave("ended"))
        elif drive.log.failure is None:
            self._leave("lost")  # the store is gone, though the log does not know yet

    def park_if_idle(self, patience_ms: int | None = None) -> None:
        """Leave memory if every branch only waits, and for long enough."""
        drive = self._drive
        if drive.is_busy:
            return
        if drive.draining:
            self._leave_if_drained()
            return
        waits = [op.wait for op in drive.waiting.all()]
        if "busy" in waits:
            return
        times = [when for when in waits if isinstance(when, int)]
        times += drive.timers.times() + drive.deadline.times()
        if not times and not waits and not drive.open_waits():
            drive.stop_stuck()
            return
        wake_at = min(times) if times else None
        now = drive.env.ports.clock.now_ms()
        if patience_ms is None and drive.log.run.is_tried and drive.log.run.barren:
            # Its last drivers died: that it only waits is written down before this one may, too.
            patience_ms = -1
        patience = drive.env.idle_ms if patience_ms is None else patience_ms
        if wake_at is None or wake_at - now > patience:
            if patience_ms is None and self._stays():
                return
            drive.note(Parked(drive.at(), wake_at, signals=drive.waits.signal_names()))
            self.stop()
            drive.when_durable(lambda: self._leave("parked"))
        else:
            drive.timers.hurry(now + drive.env.idle_ms)
            drive.deadline.hurry()
            for op in drive.waiting.all():
                hurry(drive, op, now + drive.env.idle_ms)

    def _stays(self) -> bool:
        """It did something not long ago and waits for mail: the next may be on its way.

        Whoever has to wait for a place does not wait for that.
        """
        drive = self._drive
        if not drive.open_waits() or not drive.env.idle_ms:
            return False
        if drive.log.seq != self._stayed_at:
            self._stayed_at = drive.log.seq
            self._end_stay()
            self._stay = drive.env.host.call_later(drive.env.idle_ms / 1000, self._stay_is_over)
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
        drive = self._drive
        self.stop()
        now = drive.env.ports.clock.now_ms()
        drive.note(Parked(drive.at(), now + MISMATCH_RETRY_MS, reason_of(error)))
        drive.when_durable(lambda: self._leave("misfit", error))

    def lost(self, error: OutliveError) -> None:
        """The lease or the store is gone."""
        self.stop()
        self._leave("lost", error)

    def _leave_if_drained(self) -> None:
        """Nothing that was begun is under way any more. A doubt is the next driver's to settle."""
        drive = self._drive
        begun = [op for op in drive.waiting.all() if op not in drive.to_start]
        if not any(op.wait == "busy" and not _is_doubted(op) for op in begun):
            self.hand_over()

    def hand_over(self) -> None:
        """Stop driving here and free the lease: the run is due at once, for whoever comes first.

        What still runs here is called off or runs out, unheard; an effect among it is in doubt.
        """
        drive = self._drive
        if not drive.stopped:
            drive.note(Parked(drive.at(), drive.env.ports.clock.now_ms()))
            self.stop()
            drive.when_durable(lambda: self._leave("parked"))

    def abandon(self) -> None:
        """Stop driving here; nothing can be written any more."""
        if not self._drive.stopped:
            self.stop()
            self._leave("lost")

    def stop(self) -> None:
        """Close every frame; from here on every durable call of this flow raises."""
        drive = self._drive
        if drive.stopped:
            return
        drive.stopped = True
        drive.end_replay()
        self._end_stay()
        drive.deadline.stop()
        drive.timers.stop()
        drive.waiting.stop()
        drive.loop.kill(RunStopped)
        drive.calls.never_awaited()  # another driver makes these calls again

    def _leave(self, how: How, error: OutliveError | None = None) -> None:
        self._drive.log.close()
        self._drive.threads.when_unwound(partial(self._left, how, error))


def _is_doubted(op: Op) -> bool:
    return op.effect is not None and op.effect.doubt is not None
