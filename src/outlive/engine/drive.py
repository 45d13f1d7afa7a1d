"""The heart: one run in memory. Replay what the journal has, then perform what comes next.

Everything that can wake a flow is an event. Events are delivered in journal order, one at a time,
each only when the flow has nothing left to run. Live and replayed runs go through the same code:
a live event is appended to the journal and to the inbox; a replayed one only comes from there.
When the inbox of recorded events is empty the run goes live, and only then do bodies start.

What the flow asks for is in ``calls``, where code and journal are compared in ``comparing``, how
the flow ends in ``ending``, and how the run leaves memory in ``leaving``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from outlive.engine.arguments import complete
from outlive.engine.calls import Calls
from outlive.engine.children import Children
from outlive.engine.definitions import Flow
from outlive.engine.delivery import Delivering
from outlive.engine.effects import EffectRunner
from outlive.engine.end import FLOW_STUCK, Deadline, Ending, FlowEnd
from outlive.engine.exit import How, Leaving
from outlive.engine.faults import fault_of
from outlive.engine.loop import FlowLoop
from outlive.engine.mailbox import Mailbox
from outlive.engine.ops import Env, Op
from outlive.engine.pending import PendingOps
from outlive.engine.place import Branch, RunStopped
from outlive.engine.replay import (
    SPINS,
    STUCK,
    Comparing,
    Replay,
    misfit_arguments,
    parting,
    was_driven,
)
from outlive.engine.steps import Beginning
from outlive.engine.threads import FlowThreads
from outlive.engine.timers import FlowTimers
from outlive.engine.waits import Waits
from outlive.errors import IoInFlow, OutliveError, RunError, ValueRefused
from outlive.journal.log import RunLog
from outlive.model.events import (
    Answered,
    CancelRequested,
    ChapterBegan,
    DeadlinePassed,
    Event,
    Fault,
    Patched,
    SignalReceived,
)
from outlive.model.run import Run

logger = logging.getLogger("outlive")

#: Handles that a flow may run without one delivery; more is a loop that waits for nothing.
SPIN_MAX = 200_000
#: How long a flow may keep its host's loop busy in one go.
SLICE_SECONDS = 0.005
SLICE_HANDLES = 64
_MAIL = (SignalReceived, CancelRequested, Answered)
#: What is left of a run that left memory, for those who call too late.
_KEPT = (
    frozenset({"is_replaying"})
    | frozenset(
        {"_active", "draining", "env", "flow", "is_live", "log", "run_id", "started_at", "stopped"}
    )
    | {"chapter", "hider"}
)
Left = Callable[["Drive", How, OutliveError | None], None]


class Drive:
    """A run in memory, driven."""

    def __init__(self, flow: Flow[Any, Any], log: RunLog, run: Run, env: Env, left: Left) -> None:
        self.flow, self.log, self.env = flow, log, env
        self.hider = env.hider.for_run()
        self.run_id = log.run_id
        self.start_event = run.start
        self._chapter = run.chapter or ChapterBegan(0, 0, 0, 0, run.start, run.start.args)
        self.chapter = run.chapter
        self.started_at = run.start.started_at
        self.stopped = False
        #: Nothing more is begun; the run leaves memory as soon as nothing runs.
        self.draining = False
        self._last_at = run.at
        self._replay = Replay(self.run_id, run)
        self.inbox: deque[Event] = deque()
        self.timers = FlowTimers(self)
        self.loop = FlowLoop(  # type: ignore[abstract]  # the rest is refused by name
            self.run_id, self.timers
        )
        self.loop.on_refusal = partial(env.host.call_threadsafe, self._stop_refused)
        self.calls = Calls(self)
        self.threads = FlowThreads(self)
        self.waiting = PendingOps()
        self.comparing = Comparing(self, self._replay)
        self.waits = Waits(self, run, self._replay)
        self.ending = Ending(self, self._chapter)
        self.children = Children(self, run)
        self.to_start: list[Op] = []
        self.mailbox = Mailbox(self)
        self.effects = EffectRunner(self)
        self._beginning = Beginning(self, self._replay)
        self.main: asyncio.Task[Any] | None = None
        #: The journal is behind; timers and bodies run.
        self.is_live = False
        #: The flow goes through what it did before, in another driver or an earlier stay in memory.
        self.is_replaying = False
        self._active = self._winding_up = False
        self._spun = 0
        self.deadline = Deadline(self, self.start_event.deadline_at)
        self.leaving = Leaving(self, partial(left, self))
        self.interrupted = self.leaving.hand_over
        self._delivering = Delivering(self)
        log.on_failure = self.leaving.lost

    # beginning

    def begin(self, events: Sequence[Event]) -> None:
        """Replay these events and go on."""
        self.inbox.extend(self._replay.inbox(events))
        if was_driven(events):
            self.is_replaying = True
            self.env.repeats.begin()
        self.mailbox.remember(events)
        try:
            main = self._call_flow()
        except (TypeError, ValueRefused) as error:
            self.leaving.misfit(misfit_arguments(self.run_id, error))
            return
        chapter = self._chapter
        self.main = self.loop.create_main(main, Branch(self.calls, str(chapter.number)))
        self.loop.seconds = chapter.at / 1000
        self.waits.keep(chapter.signals)
        if chapter.is_cancelled:
            self.ending.cancel_requested = True
            self.main.cancel()
        try:
            self.activate()
        except Exception as bug:
            self.broke(bug)

    def _call_flow(self) -> Coroutine[Any, Any, Any]:
        recorded = self.flow.args_codec.decode(self._chapter.args)
        if isinstance(recorded, list):  # it was asked for by name: as they were given
            recorded = self.flow.bind(*recorded[0], **recorded[1])
        flow = self.flow
        args: Sequence[Any] = ()
        if recorded.keys() != flow.names:  # it has changed since, or not all can be given by name
            args, recorded = flow.unbinder.call(complete(flow.signature, recorded))
        if not flow.is_async:
            return self.threads.run(partial(flow.fn, *args, **recorded))
        main: Coroutine[Any, Any, Any] = flow.fn(*args, **recorded)
        return main

    # what the runners of steps and effects call

    def at(self) -> int:
        """Now, in ms since the run's start; never falls."""
        now = self.env.ports.clock.now_ms() - self.started_at
        if now > self._last_at:
            self._last_at = now
        return self._last_at

    def shelf(self) -> Any:
        """Where the run's blobs are kept."""
        return self.env.peer.shelf(self.log.run.start.family)

    def note(self, event: Event, mail_id: str | None = None) -> None:
        """Append; the flow does not see it."""
        self.log.append(self.hider.event(event), mail_id)

    def record(self, event: Event, mail_id: str | None = None) -> None:
        """Append and deliver."""
        event = self.hider.event(event)
        self.log.append(event, mail_id)
        self.inbox.append(event)
        self.activate()

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call once everything appended so far is durable."""
        self.log.wait(self.log.seq, callback)

    def drop(self, op: Op) -> None:
        """Nobody waits for this op and nothing comes of it."""
        self.waiting.drop(op)
        self.rest()

    def abandon(self, op: Op) -> None:
        """The flow no longer waits for this op."""
        self.waiting.abandon(op, is_live=self.is_live)
        if self.is_live and op.definition.effect is not None:
            self.env.host.call_soon(self.effects.give_up, op)

    def broke(self, error: Exception) -> None:
        """The engine itself failed: stop driving this run, say so, try again later."""
        logger.error("run %s: a bug in Outlive", self.run_id, exc_info=error)
        if not self.stopped:
            self.leaving.misfit(RunError(f"a bug in Outlive stopped this run: {error!r}"))

    def rest(self) -> None:
        """Nothing more to do here: look later whether all of it waits."""
        self.env.host.call_soon(self.leaving.park_if_idle)

    def attend(self) -> None:
        """Something came from outside: look at it, unless the flow is running."""
        if not self.is_live or self._active or self.stopped:
            return
        if not self.loop.is_away:
            self._settle_down()
        elif not self.mailbox.is_open:
            self.mailbox.open()  # in time for the timers that it beats; delivered later

    def drain(self) -> None:
        """Begin nothing more, and leave memory at the next durable point."""
        self.draining = True
        if self.is_live:
            self.attend()
        else:
            self.leaving.hand_over()

    def refuse(self, error: OutliveError) -> None:
        """The run can't go on here: nothing of the flow runs any further."""
        self.comparing.refuse(error)
        if not self._active and not self.stopped:
            self.leaving.misfit(error)

    @property
    def is_busy(self) -> bool:
        """Something of it runs, is about to, or has just ended."""
        if self.stopped:
            return True
        is_running = self._active or not self.is_live or bool(self.loop.ready or self.loop.is_away)
        is_starting = bool(self.to_start) and not self.draining
        has_more = bool(is_starting or self.inbox or self.children.busy)
        return is_running or has_more or self.mailbox.is_open or self._is_ending()

    @property
    def flow_is_over(self) -> bool:
        """The flow returned, raised, or was stopped."""
        main = self.main
        if self.ending.verdict is None and main is not None and main.done() and not self.loop.tasks:
            self.ending.returned(main, self.loop.refusal, self.calls.never_awaited())
        return self.ending.verdict is not None

    def is_patched(self, place: str) -> bool:
        """Whether the flow takes the new way here: it did before, or nothing is recorded yet."""
        is_new = self.is_live or not self.inbox or parting(self.inbox) is not None
        if place not in self._replay.patches and is_new:
            self._replay.patches.add(place)
            self.note(Patched(self.at(), place))
        return place in self._replay.patches

    @property
    def takes_mail(self) -> bool:
        """The replay is over and everything that was open has been begun."""
        return self.is_live and not self.stopped

    def let_go(self) -> None:
        """The run left memory, and whoever still calls is told so by ``stopped``.

        Its parts know one another: left as they are they would wait for the garbage collector,
        whose work was measured to be a third of the cost of a short run.
        """
        if self.flow.is_async:  # a thread that was given up may still look for its loop
            self.log.on_failure = None
            self.__dict__ = {name: self.__dict__[name] for name in _KEPT}

    # deliveries

    def activate(self) -> None:
        """Let the flow run as far as it can, deliver what has come, start what it asks for."""
        if self._active or self.stopped:
            return
        self._active = True
        occupation = self.env.occupation
        occupation.turn += 1
        occupation.run_id = self.run_id
        try:
            is_quiet = self.loop.enter(self._run)
        finally:
            occupation.run_id = None
            self._active = False
        if self.comparing.misfit is not None:
            self.leaving.misfit(self.comparing.misfit)
        elif self.loop.is_away:
            pass  # the thread that computes comes back here
        elif not is_quiet:
            self.env.host.call_soon(self.activate)
        else:
            self._settle_down()

    def _run(self) -> bool:
        """Run and deliver until nothing is left (True), or the slice is over."""
        loop, inbox, comparing = self.loop, self.inbox, self.comparing
        main, ending = self.main, self.ending
        until = 0.0
        while comparing.misfit is None:
            if loop.ready:
                self._spun += loop.run_ready(SLICE_HANDLES)
            if loop.is_away and self._is_held():
                return False
            if loop.ready:
                now = self.env.ports.clock.monotonic()
                until = until or now + SLICE_SECONDS
                if now > until:
                    return False
                if self._spun > SPIN_MAX:
                    comparing.refuse(RunError(SPINS))
            elif not self._winding_up and main and (main.done() or ending.carries is not None):
                self._wind_up()
            elif inbox:
                self._spun = 0
                self._delivering.deliver(inbox.popleft())
            elif not self.is_live:
                self._go_live()
            else:
                return True
        return True

    def _is_held(self) -> bool:
        """Plain code computes, and all else waits for it; only a deadline does not."""
        if self.loop.is_away and self.is_overdue:
            while not isinstance(event := self.inbox.popleft(), DeadlinePassed):
                pass  # mail that the flow will never see
            self._delivering.deliver(event)
        return self.loop.is_away

    @property
    def is_overdue(self) -> bool:
        """The deadline is the next event, but for mail."""
        rest = (event for event in self.inbox if not isinstance(event, _MAIL))
        return isinstance(next(rest, None), DeadlinePassed)

    def advance(self, event: Any) -> None:
        """The flow's time is that of this event."""
        self.loop.seconds = event.at / 1000

    def asked(self) -> list[str]:
        """What the code asks for, by id."""
        if self.main is not None and self.main.done():
            return ["returned"]
        return [*self.waiting.asked(), *self.open_waits(), *self.timers.waiting]

    def open_waits(self) -> list[str]:
        """What the flow waits for from outside."""
        return [*self.waits.open_ids(), *self.children.open_ids()]

    # going on

    def end_replay(self) -> None:
        """The flow is where it was, or goes no further."""
        if self.is_replaying:
            self.is_replaying = False
            self.env.repeats.end()

    def _go_live(self) -> None:
        self.is_live = True
        self.end_replay()
        self._replay.is_over()
        self.deadline.arm()
        if self.inbox:
            # It passed while nobody drove the run: nothing below begins any more.
            self._delivering.deliver(self.inbox.popleft())
        self.timers.go_live()
        self.waits.go_live()
        self.children.go_live()
        self.to_start.extend(self.waiting.go_live())

    def _settle_down(self) -> None:
        """The flow is quiet: read mail, start what it asked for, end it, or let it leave memory."""
        if self.mailbox.is_open:
            return  # whoever reads there goes on from here
        if not self.draining:
            if self._replay.effects:
                self._beginning.open_effects()
            self.mailbox.open()
        if self.stopped or self.loop.ready or self.inbox:
            return  # what was read has led to the end, or to more than fits into one turn
        if not self.draining:
            self._beginning.asked_for()
        if self._is_ending():
            self._end()
        elif self.draining or not self.waiting.is_busy:
            self.leaving.park_if_idle()

    def _wind_up(self) -> None:
        """What the flow left running is cancelled, as ``asyncio.run`` does, or cut off."""
        self._winding_up = True
        if self.ending.carries is not None and not self.flow_is_over:
            self.cut(self.ending.next_chapter())
        else:
            self.loop.cancel_all()

    def cut(self, verdict: FlowEnd) -> None:
        """The flow stops here; what it began that changes the world runs to its end."""
        if self.flow_is_over:
            return
        self.loop.kill(RunStopped)
        self.waiting.cut()
        self.waits.cut()
        self.children.cut()
        self.timers.stop()
        self.ending.verdict = verdict

    def stop_stuck(self) -> None:
        """Nothing will ever wake this flow: say so instead of waiting for ever."""
        if self.loop.waits_for_thread():
            self.loop.refuse(IoInFlow("anyio.to_thread.run_sync()"))
        fault = Fault(FLOW_STUCK, STUCK)
        if self.loop.refusal is not None:
            fault = self.hider.fault(fault_of(self.loop.refusal, self.flow.value_codec))
        self.cut(FlowEnd("failed", error=fault))
        self._end()

    def _stop_refused(self) -> None:
        """A thread that the flow began was refused: the flow may wait for it for ever."""
        if self.stopped or self.flow_is_over or self.loop.refusal is None:
            return
        fault = fault_of(self.loop.refusal, self.flow.value_codec)
        self.cut(FlowEnd("failed", error=self.hider.fault(fault)))
        self.activate()

    def _is_ending(self) -> bool:
        """The flow is over, every effect is settled, every child is told."""
        is_open = bool(self.stopped or self.waiting.unsettled or self.children.busy)
        return not is_open and self.flow_is_over

    def _end(self) -> None:
        """Nothing is open any more: undo, or say how it ended."""
        event = self.ending.proceed()
        if isinstance(event, ChapterBegan):
            self.leaving.turn_page(event)
        elif event is not None:
            self.leaving.end(event)
