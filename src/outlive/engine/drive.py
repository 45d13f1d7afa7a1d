"""The heart: one run in memory. Replay what the journal has, then perform what comes next.

Everything that can wake a flow is an event. Events are delivered in journal order, one at a time,
each only when the flow has nothing left to run. Live and replayed runs go through the same code:
a live event is appended to the journal and to the inbox; a replayed one only comes from there.
When the inbox of recorded events is empty the run goes live, and only then do bodies start.

The run leaves memory in one of four ways: it ended, it waits (parked), it lost its lease or the
store, or its code and its journal do not fit. In each, every frame of the flow is closed here and
now; nothing is thrown into user code.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from outlive.engine.binding import complete, signature_of
from outlive.engine.calls import Calls
from outlive.engine.children import Children, tell_parent
from outlive.engine.definitions import Flow
from outlive.engine.effects import EffectRunner
from outlive.engine.ending import Deadline, Ending
from outlive.engine.flowloop import FlowLoop
from outlive.engine.mailbox import Mailbox
from outlive.engine.ops import Env, Op
from outlive.engine.place import Branch, RunStopped
from outlive.engine.replay import (
    SPINS,
    STUCK,
    Replay,
    is_of_effect,
    misfit_arguments,
    mismatch,
    outcome_of,
    same_arguments,
)
from outlive.engine.steps import StepRunner
from outlive.engine.timers import FlowTimers
from outlive.engine.waiting import Waiting
from outlive.engine.waits import Waits
from outlive.errors import OutliveError, ReplayMismatch, RunError, ValueRefused
from outlive.journal.log import RunLog
from outlive.model.events import (
    Answered,
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
    Fault,
    Parked,
    Replied,
    RunUndoing,
    SignalReceived,
    StepDone,
    StepRaised,
    TimerFired,
)
from outlive.model.run import Run

#: Handles that a flow may run without one delivery; more is a loop that waits for nothing.
SPIN_MAX = 200_000
#: How long a flow may keep its host's loop busy in one go.
SLICE_SECONDS = 0.005
SLICE_HANDLES = 64
#: Events of one run that may wait for the disk before its next body starts.
UNDURABLE_MAX = 256
#: When a worker tries again to drive a run whose code did not fit its journal.
MISMATCH_RETRY_MS = 60_000

#: These say what was begun or decided; the flow's time does not move by them.
_TIMELESS = frozenset({EffectIntended, EffectDoubted, ChildIntended, Replied, RunUndoing})

How = Literal["ended", "parked", "lost", "misfit"]
Left = Callable[["Drive", How, OutliveError | None], None]


class Drive:
    """A run in memory, driven."""

    def __init__(self, flow: Flow[Any, Any], log: RunLog, run: Run, env: Env, left: Left) -> None:
        self.flow, self.log, self.env = flow, log, env
        self.run_id = log.run_id
        self.start_event = run.start
        self.started_at = run.start.started_at
        self.stopped = False
        self._left = left
        self._last_at = run.at
        self._replay = Replay(run)
        self.inbox: deque[Event] = deque()
        self.timers = FlowTimers(self)
        self.loop = FlowLoop(  # type: ignore[abstract]  # the rest is refused by name
            self.run_id, self.timers
        )
        self.waiting = Waiting()
        self.waits = Waits(self, run)
        self.ending = Ending(self)
        self.children = Children(self, run)
        self.to_start: list[Op] = []
        self.mailbox = Mailbox(self)
        self._steps, self.effects = StepRunner(self), EffectRunner(self)
        self._main: asyncio.Task[Any] | None = None
        self._live = self._active = self._winding_up = False
        self._misfit: OutliveError | None = None
        self._spun = 0
        self.deadline = Deadline(self, self.start_event.deadline_at)
        self._delivery = self._deliveries()
        log.on_failure = self._lost

    # beginning

    def begin(self, events: Sequence[Event]) -> None:
        """Replay these events and go on."""
        self.inbox.extend(self._replay.inbox(events))
        try:
            main = self._call_flow()
        except (TypeError, ValueRefused) as error:
            self._stop_misfit(misfit_arguments(self.run_id, error))
            return
        self._main = self.loop.create_main(main, Branch(Calls(self), "0"))
        self.activate()

    def _call_flow(self) -> Coroutine[Any, Any, Any]:
        recorded = self.flow.args_codec.decode(self.start_event.args)
        args, kwargs = self.flow.unbinder.call(complete(signature_of(self.flow.fn), recorded))
        main: Coroutine[Any, Any, Any] = self.flow.fn(*args, **kwargs)
        return main

    # what the runners of steps and effects call

    def at(self) -> int:
        """Now, in ms since the run's start; never falls."""
        now = self.env.ports.clock.now_ms() - self.started_at
        if now > self._last_at:
            self._last_at = now
        return self._last_at

    def note(self, event: Event, mail_id: str | None = None) -> None:
        """Append; the flow does not see it."""
        self.log.append(event, mail_id)

    def record(self, event: Event, mail_id: str | None = None) -> None:
        """Append and deliver."""
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

    def rest(self) -> None:
        """Nothing more to do here: look later whether all of it waits."""
        self.env.host.call_soon(self._park_if_idle)

    @property
    def is_live(self) -> bool:
        """The journal is behind; timers and bodies run."""
        return self._live

    @property
    def flow_is_over(self) -> bool:
        """The flow returned, raised, or was stopped."""
        return self._flow_is_over()

    @property
    def takes_mail(self) -> bool:
        """The replay is over and everything open has been begun."""
        return self._live and not self.to_start and not self.stopped

    @property
    def is_misfit(self) -> bool:
        """Code and journal do not fit; nothing of the flow runs any further."""
        return self._misfit is not None

    # deliveries

    def activate(self) -> None:
        """Let the flow run as far as it can, deliver what has come, start what it asks for."""
        if self._active or self.stopped:
            return
        self._active = True
        try:
            is_quiet = self.loop.enter(self._run)
        finally:
            self._active = False
        if self._misfit is not None:
            self._stop_misfit(self._misfit)
        elif not is_quiet:
            self.env.host.call_soon(self.activate)
        else:
            self._settle_down()

    def _run(self) -> bool:
        """Run and deliver until nothing is left (True), or the slice is over."""
        clock = self.env.ports.clock
        until = clock.monotonic() + SLICE_SECONDS
        loop, inbox = self.loop, self.inbox
        while self._misfit is None:
            self._spun += loop.run_ready(SLICE_HANDLES)
            if loop.ready:
                if self._spun > SPIN_MAX:
                    self._misfit = RunError(SPINS)
                elif clock.monotonic() > until:
                    return False
            elif self._main is not None and self._main.done() and not self._winding_up:
                self._wind_up()
            elif inbox:
                self._spun = 0
                self._deliver(inbox.popleft())
            elif not self._live:
                self._go_live()
            else:
                return True
        return True

    def _deliveries(self) -> dict[type, Callable[[Any], None]]:
        """What each kind of event does to the flow."""
        return {
            StepDone: self._resolve,
            EffectDone: self._resolve,
            StepRaised: self._resolve,
            EffectRaised: self._resolve,
            TimerFired: self.timers.fired,
            SignalReceived: self.waits.deliver,
            Answered: self.waits.deliver,
            Replied: self.waits.replayed,
            CancelRequested: self._cancel,
            DeadlinePassed: self._cut_at_deadline,
            RunUndoing: self.ending.undo,
            ChildIntended: self.children.compare,
            ChildSpawned: self.children.deliver,
            ChildEnded: self.children.deliver,
            EffectIntended: self._compare_intent,
            EffectDoubted: self._give_way,
        }

    def _deliver(self, event: Event) -> None:
        if type(event) not in _TIMELESS:
            self.advance(event)
        self._delivery[type(event)](event)

    def _compare_intent(self, event: EffectIntended) -> None:
        self._find(event, event.step)
        self.waiting.unsettled.add(event.step)

    def _give_way(self, event: EffectDoubted) -> None:
        op = self._find(event, event.step)
        if op is not None:
            self.waiting.give_way(op)

    def advance(self, event: Any) -> None:
        self.loop.seconds = event.at / 1000

    def _find(self, event: Event, step: str) -> Op | None:
        """The op that an event is about; the code must have asked for it by now."""
        op = self.waiting.find(step)
        if op is None:
            self._misfit = self._mismatch(event, self._asked())
        elif not self.fits(op, event):
            return None
        return op

    def fits(self, op: Op, event: Event) -> bool:
        """Kind and arguments are those in the journal; if not, the run can't go on here."""
        recorded = getattr(event, "digest", b"")
        if is_of_effect(event) != (op.definition.effect is not None):
            self._misfit = self._mismatch(event, [f"{op.id} as {op.kind}"])
        elif recorded in (b"", op.digest):
            return True
        elif same_arguments(op, event):
            # From here on the call goes by the recorded digest: later intents carry no arguments.
            op.digest = recorded
            return True
        else:
            self._misfit = self._mismatch(event, [f"{op.id} with other arguments"])
        return False

    def _mismatch(self, event: Event, asked: list[str]) -> ReplayMismatch:
        return mismatch(self.run_id, self._replay.seq_of(event), event, asked)

    def misfits(self, event: ChildIntended, asked: str) -> None:
        """Code and journal differ about a child."""
        self._misfit = self._mismatch(event, [asked] if asked else self._asked())

    def unknown_timer(self, event: TimerFired) -> None:
        """The journal has a timer that the code does not."""
        self._misfit = self._mismatch(event, self._asked())

    def _asked(self) -> list[str]:
        is_over = self._main is not None and self._main.done()
        return (
            ["returned"]
            if is_over
            else [*self.waiting.asked(), *self._open_waits(), *self.timers.waiting]
        )

    def _open_waits(self) -> list[str]:
        """What the flow waits for from outside."""
        return [*self.waits.open_ids(), *self.children.open_ids()]

    def _resolve(self, event: StepDone | StepRaised | EffectDone | EffectRaised) -> None:
        op = self._find(event, event.step)
        if op is None:
            return
        self.ending.note_end(op, event)
        waited_for = self.waiting.close(event.step)
        if op.on_end is not None:
            op.on_end(event)
        if waited_for is None or op.future is None or op.future.done():
            return
        value, error = self.outcome(op, event)
        if error is not None:
            op.future.set_exception(error)
        elif self._misfit is None:
            op.future.set_result(value)

    def outcome(self, op: Op, event: Event) -> tuple[Any, BaseException | None]:
        """An op's outcome, decoded; if today's types can't, the run stops and keeps its place."""
        try:
            return outcome_of(op, event)
        except ValueRefused as refused:
            self._misfit = refused
            return None, None

    # going on

    def _go_live(self) -> None:
        self._live = True
        self._replay.is_over()
        self.timers.go_live()
        self.waits.go_live()
        self.children.go_live()
        self.deadline.arm()
        self.to_start.extend(self.waiting.go_live())

    def _settle_down(self) -> None:
        """The flow is quiet: start what it asked for, end it, or let it leave memory."""
        if self._live and self.to_start:
            self._start_ops()
        self.mailbox.open()
        if self.stopped:
            # What was just started or read has already led to the end.
            return
        if self._is_ending():
            self._end()
        elif self._live:
            self._park_if_idle()

    def _start_ops(self) -> None:
        if self.stopped:
            return
        if self.log.seq - self.log.durable > UNDURABLE_MAX:
            # Back-pressure: the disk is behind; nothing new starts until it has caught up.
            self.when_durable(self._settle_down)
            return
        ops, self.to_start = self.to_start, []
        for op in ops:
            if op.definition.effect is not None:
                self.effects.start(op, self._replay.effects.pop(op.id, None))
            elif not op.orphan:
                self._steps.start(op, self._replay.backoffs.pop(op.id, None))

    def _wind_up(self) -> None:
        """The flow returned; what it left running is cancelled, as ``asyncio.run`` does."""
        self._winding_up = True
        for task in list(self.loop.tasks):
            task.cancel()

    def _cancel(self, _: CancelRequested) -> None:
        """Takes hold where the flow waits; what it does then is its own."""
        self.ending.cancel_requested = True
        if self._main is not None and not self._main.done():
            self._main.cancel()

    def _cut_at_deadline(self, _: DeadlinePassed) -> None:
        self._cut(Fault("TimedOut", "the run's deadline passed"))

    def _cut(self, fault: Fault) -> None:
        """The flow stops here; what it began that changes the world runs to its end."""
        if self.ending.verdict is not None or self._flow_is_over():
            return
        self.loop.kill(RunStopped)
        self.waiting.cut()
        self.waits.cut()
        self.children.cut()
        self.timers.stop()
        self.ending.cut(fault)

    def _flow_is_over(self) -> bool:
        main = self._main
        if self.ending.verdict is None and main is not None and main.done() and not self.loop.tasks:
            self.ending.returned(main)
        return self.ending.verdict is not None

    def _end(self) -> None:
        """Nothing is open any more: undo, or say how it ended."""
        event = self.ending.proceed()
        if event is not None:
            self.note(event)
            self._stop()
            self.when_durable(self._ended)

    def _ended(self) -> None:
        if self.start_event.is_awaited:
            self.env.host.create_task(self._tell_parent())
        else:
            self._leave("ended")

    async def _tell_parent(self) -> None:
        await tell_parent(self.env, self.log, self.log.run)
        self.when_durable(lambda: self._leave("ended"))

    # leaving

    def _park_if_idle(self) -> None:
        """Leave memory if every branch only waits, and for long enough."""
        if self.stopped or self._active or not self._live or self.to_start or self.inbox:
            return
        waits = [op.wait for op in self.waiting.all()]
        if "busy" in waits or self.children.beginning or self._is_ending():
            return
        times = [when for when in waits if isinstance(when, int)] + self.timers.times()
        times += self.deadline.times()
        if not times and not waits and not self._open_waits():
            self._stop_stuck()
            return
        wake_at = min(times) if times else None
        now = self.env.ports.clock.now_ms()
        if wake_at is None or wake_at - now > self.env.idle_ms:
            self.note(Parked(self.at(), wake_at))
            self._stop()
            self.when_durable(lambda: self._leave("parked"))

    def _is_ending(self) -> bool:
        """The flow is over and every effect is settled."""
        return not self.waiting.unsettled and self._flow_is_over()

    def _stop_stuck(self) -> None:
        """Nothing will ever wake this flow: say so instead of waiting for ever."""
        self._cut(Fault("FlowStuck", STUCK))
        self._end()

    def _stop_misfit(self, error: OutliveError) -> None:
        self._stop()
        now = self.env.ports.clock.now_ms()
        self.note(Parked(self.at(), now + MISMATCH_RETRY_MS, str(error)))
        self.when_durable(lambda: self._leave("misfit", error))

    def _lost(self, error: OutliveError) -> None:
        self._stop()
        self._leave("lost", error)

    def hand_over(self) -> bool:
        """Stop driving here; the lease is the worker's to free. False: an effect still runs."""
        is_clean = not self.waiting.has_running_effects()
        if not self.stopped:
            self._stop()
            self._leave("lost")
        return is_clean

    def _stop(self) -> None:
        """Close every frame; from here on every durable call of this flow raises."""
        if self.stopped:
            return
        self.stopped = True
        self.deadline.stop()
        self.timers.stop()
        self.waiting.stop()
        self.loop.kill(RunStopped)

    def _leave(self, how: How, error: OutliveError | None = None) -> None:
        self.log.close()
        self._left(self, how, error)
