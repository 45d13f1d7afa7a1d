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
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from types import coroutine
from typing import Any, Literal

from outlive.engine.definitions import Definition, Flow
from outlive.engine.effects import EffectRunner
from outlive.engine.faults import exception_of, fault_of
from outlive.engine.flowloop import FlowLoop
from outlive.engine.ops import EffectFuture, Env, Op
from outlive.engine.place import Branch, RunStopped
from outlive.engine.replay import Replay, mismatch, same_arguments
from outlive.engine.steps import StepRunner
from outlive.engine.timers import FlowTimers
from outlive.errors import OutliveError, ReplayMismatch, RunError, ValueRefused
from outlive.journal.log import RunLog
from outlive.model.events import (
    EffectDone,
    EffectDoubted,
    EffectIntended,
    EffectRaised,
    Event,
    Fault,
    MailRead,
    Parked,
    RunCompleted,
    RunFailed,
    StepDone,
    StepRaised,
    TimerFired,
)
from outlive.model.ids import derived_bytes, digest
from outlive.model.mail import Nudge, Resolve, decode_letter
from outlive.model.run import Run
from outlive.store import Mail

#: Handles that a flow may run without one delivery; more is a loop that waits for nothing.
SPIN_MAX = 200_000
#: How long a flow may keep its host's loop busy in one go.
SLICE_SECONDS = 0.005
SLICE_HANDLES = 64
#: Replayed steps between two looks at the time.
REPLAY_TURN = 200
#: Events of one run that may wait for the disk before its next body starts.
UNDURABLE_MAX = 256
#: When a worker tries again to drive a run whose code did not fit its journal.
MISMATCH_RETRY_MS = 60_000

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
        self.value: bytes | None = None
        self.fault: Fault | None = None
        self._left = left
        self._last_at = run.at
        self._replay = Replay(run)
        self._inbox: deque[Event] = deque()
        self._timers = FlowTimers(self)
        self.loop = FlowLoop(  # type: ignore[abstract]  # the rest is refused by name
            self.run_id, self._timers
        )
        self._ops: dict[str, Op] = {}
        self._orphans: dict[str, Op] = {}
        self._unsettled: set[str] = set()
        self._to_start: list[Op] = []
        self._steps, self._effects = StepRunner(self), EffectRunner(self)
        self._main: asyncio.Task[Any] | None = None
        self._live = self._active = self._winding_up = False
        self._misfit: OutliveError | None = None
        self._spun = self._replayed = 0
        log.on_failure = self._lost

    # beginning

    def begin(self, events: Sequence[Event]) -> None:
        """Replay these events and go on."""
        self._inbox.extend(self._replay.inbox(events))
        bound = self.flow.args_codec.decode(self.start_event.args)
        args, kwargs = self.flow.unbinder.call(bound)
        main: Coroutine[Any, Any, Any] = self.flow.fn(*args, **kwargs)
        self._main = self.loop.create_main(main, Branch(self, "0"))
        self.activate()

    # what flow code calls

    async def perform(
        self, call: Definition, branch: Branch, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Do a step or effect: from the journal, or for the first time."""
        if self.stopped:
            raise RunStopped
        op_id = branch.next_id(call.name)
        bound = call.bind(*args, **kwargs)
        op = Op(op_id, call, bound, call.encode_args(bound))
        op.digest = digest(op.args)
        if call.effect is not None:
            op.user_key = call.key_for(bound)
        event = self._recorded(op)
        if event is not None:
            self._replayed += 1
            if self._replayed % REPLAY_TURN == 0:
                await _turn()
            return self._result(op, event)
        return await self._wait(op)

    def _recorded(self, op: Op) -> Event | None:
        """This op's outcome, if it is the next delivery and nothing else is ready to run."""
        inbox = self._inbox
        if self._live or self.loop.ready or not inbox:
            return None
        head = inbox[0]
        if type(head) is EffectIntended and head.step == op.id:
            self._insist_on_arguments(op, head)
            inbox.popleft()
            self._unsettled.add(op.id)
            if not inbox:
                return None
            head = inbox[0]
        if isinstance(head, (StepDone, StepRaised, EffectDone, EffectRaised)) and (
            head.step == op.id
        ):
            self._insist_on_arguments(op, head)
            inbox.popleft()
            self._advance(head)
            self._unsettled.discard(op.id)
            return head
        return None

    async def _wait(self, op: Op) -> Any:
        is_effect = op.definition.effect is not None
        op.future = EffectFuture(loop=self.loop) if is_effect else self.loop.create_future()
        op.context = copy_context()
        self._ops[op.id] = op
        if is_effect:
            self._unsettled.add(op.id)
        if self._live:
            self._to_start.append(op)
        try:
            return await op.future
        except asyncio.CancelledError:
            if op.id in self._ops:
                self._abandon(op)
            raise

    def _abandon(self, op: Op) -> None:
        """The flow no longer waits for this op; if it runs, it is told, and forgotten."""
        if self.stopped:
            return
        del self._ops[op.id]
        op.orphan = True
        self._orphans[op.id] = op
        if op.timer is not None:
            op.timer.cancel()
        if op.task is not None and op.definition.effect is None:
            op.task.cancel()

    async def sleep(self, branch: Branch, seconds: float) -> None:
        """Wait, durably."""
        if self.stopped:
            raise RunStopped
        future = self.loop.create_future()
        handle = asyncio.TimerHandle(
            self.loop.seconds + seconds, _set_if_waiting, (future,), self.loop
        )
        self._timers.set_timer(handle, branch.next_id("sleep"))
        try:
            await future
        finally:
            handle.cancel()

    def now_ms(self) -> int:
        """The run's time: that of the last delivered event."""
        return self.started_at + round(self.loop.seconds * 1000)

    def chance(self, place: str) -> bytes:
        """Sixteen random bytes that belong to this place."""
        return derived_bytes(self.start_event.seed, place)

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
        self._inbox.append(event)
        self.activate()

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call once everything appended so far is durable."""
        self.log.wait(self.log.seq, callback)

    def rest(self) -> None:
        """Nothing more to do here: look later whether all of it waits."""
        self.env.host.call_soon(self._park_if_idle)

    @property
    def is_live(self) -> bool:
        """The journal is behind; timers and bodies run."""
        return self._live

    # deliveries

    def activate(self) -> None:
        """Let the flow run as far as it can, deliver what has come, start what it asks for."""
        if self._active or self.stopped:
            return
        self._active = True
        host_loop = asyncio._get_running_loop()  # noqa: SLF001  # restored below
        hooks = sys.get_asyncgen_hooks()
        asyncio._set_running_loop(self.loop)  # noqa: SLF001  # what run_forever does
        sys.set_asyncgen_hooks(firstiter=None, finalizer=None)
        try:
            is_quiet = self._run()
        finally:
            asyncio._set_running_loop(host_loop)  # noqa: SLF001
            sys.set_asyncgen_hooks(*hooks)
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
        loop, inbox = self.loop, self._inbox
        while self._misfit is None:
            self._spun += loop.run_ready(SLICE_HANDLES)
            if loop.ready:
                if self._spun > SPIN_MAX:
                    self._misfit = RunError(_SPINS)
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

    def _deliver(self, event: Event) -> None:
        match event:
            case TimerFired():
                self._advance(event)
                self._timers.fired(event)
            case EffectIntended():
                self._find(event, event.step)
                self._unsettled.add(event.step)
            case EffectDoubted():
                self._give_way(event)
            case StepDone() | StepRaised() | EffectDone() | EffectRaised():
                self._advance(event)
                self._resolve(event)
            case _:
                raise AssertionError(f"{event!r} is not for the flow")

    def _advance(self, event: Any) -> None:
        self.loop.seconds = event.at / 1000

    def _find(self, event: Event, step: str) -> Op | None:
        """The op that an event is about; the code must have asked for it by now."""
        op = self._ops.get(step) or self._orphans.get(step)
        if op is None:
            self._misfit = self._mismatch(event, [*self._ops, *self._timers.waiting])
        elif not self._fits(op, event):
            return None
        return op

    def _fits(self, op: Op, event: Event) -> bool:
        """The arguments are those in the journal; if not, the run can't go on here."""
        recorded = getattr(event, "digest", b"")
        if recorded in (b"", op.digest) or same_arguments(op, event):
            return True
        self._misfit = self._mismatch(event, [f"{op.id} with other arguments"])
        return False

    def _insist_on_arguments(self, op: Op, event: Event) -> None:
        """The same, from inside flow code: nothing of it runs any further."""
        if not self._fits(op, event):
            raise RunStopped

    def _mismatch(self, event: Event, asked: list[str]) -> ReplayMismatch:
        return mismatch(self.run_id, self._replay.seq_of(event), event, asked)

    def unknown_timer(self, event: TimerFired) -> None:
        """The journal has a timer that the code does not."""
        self._misfit = self._mismatch(event, [*self._ops, *self._timers.waiting])

    def _resolve(self, event: StepDone | StepRaised | EffectDone | EffectRaised) -> None:
        op = self._find(event, event.step)
        if op is None:
            return
        self._unsettled.discard(event.step)
        self._ops.pop(event.step, None)
        if self._orphans.pop(event.step, None) is not None:
            return
        future = op.future
        assert future is not None, "an op that waits has a future"
        if future.done():
            return
        try:
            future.set_result(self._result(op, event))
        except Exception as error:
            future.set_exception(error)

    def _give_way(self, event: EffectDoubted) -> None:
        """An attempt is over though unsettled: a cancellation that waited for it comes now."""
        op = self._find(event, event.step)
        if op is not None and isinstance(op.future, EffectFuture) and op.future.cancel_wanted:
            self._ops.pop(op.id, None)
            self._orphans[op.id] = op
            op.orphan = True
            op.future.give_way()

    def _result(self, op: Op, event: Any) -> Any:
        """What the flow gets: what the record decodes to, live as on replay."""
        definition = op.definition
        if isinstance(event, (StepDone, EffectDone)):
            return definition.value_codec.decode(event.value)
        raise exception_of(event.error, definition.own_errors, definition.value_codec)

    # going on

    def _go_live(self) -> None:
        self._live = True
        self._timers.go_live()
        self._to_start.extend(self._ops.values())
        self._to_start.extend(op for op in self._orphans.values() if op.id in self._unsettled)

    def _settle_down(self) -> None:
        """The flow is quiet: start what it asked for, end it, or let it leave memory."""
        if self._live and self._to_start:
            self._start_ops()
        main = self._main
        if main is not None and main.done() and not self.loop.tasks and not self._unsettled:
            self._end(main)
        elif self._live:
            self._park_if_idle()

    def _start_ops(self) -> None:
        if self.stopped:
            return
        if self.log.seq - self.log.durable > UNDURABLE_MAX:
            # Back-pressure: the disk is behind; nothing new starts until it has caught up.
            self.when_durable(self._start_ops)
            return
        ops, self._to_start = self._to_start, []
        for op in ops:
            if op.definition.effect is not None:
                self._effects.start(op, self._replay.effects.pop(op.id, None))
            elif not op.orphan:
                self._steps.start(op, self._replay.backoffs.pop(op.id, None))

    def _wind_up(self) -> None:
        """The flow returned; what it left running is cancelled, as ``asyncio.run`` does."""
        self._winding_up = True
        for task in list(self.loop.tasks):
            task.cancel()

    def _end(self, main: asyncio.Task[Any]) -> None:
        if self._inbox:
            self._stop_misfit(self._mismatch(self._inbox[0], ["returned"]))
            return
        codec = self.flow.value_codec
        error = asyncio.CancelledError() if main.cancelled() else main.exception()
        if error is None:
            try:
                self.value = codec.encode(main.result())
            except ValueRefused as refused:
                error = refused
        if error is not None:
            self.fault = fault_of(error, codec)
        event = RunCompleted(self.at(), self.value or b"")
        self.note(event if self.fault is None else RunFailed(self.at(), self.fault))
        self._stop()
        self.when_durable(lambda: self._leave("ended"))

    # mail

    def take_mail(self, mail: Sequence[Mail]) -> None:
        """Turn mail into events, each once."""
        for each in mail:
            if not self._replay.is_new(each.mail_id):
                continue
            letter = decode_letter(each.body)
            match letter:
                case Resolve(step=step):
                    op = self._ops.get(step) or self._orphans.get(step)
                    self._effects.resolve(op, letter, each.mail_id)
                case Nudge(why=why):
                    self.note(MailRead(self.at(), each.mail_id, why), each.mail_id)

    # leaving

    def _park_if_idle(self) -> None:
        """Leave memory if every branch only waits, and for long enough."""
        if self.stopped or self._active or not self._live or self._to_start or self._inbox:
            return
        waits = [op.wait for op in (*self._ops.values(), *self._orphans.values())]
        if "busy" in waits or self._is_winding_up_with_tasks():
            return
        times = [when for when in waits if isinstance(when, int)] + self._timers.times()
        if not times and not waits:
            self._stop_stuck()
            return
        wake_at = min(times) if times else None
        now = self.env.ports.clock.now_ms()
        if wake_at is None or wake_at - now > self.env.idle_ms:
            self.note(Parked(self.at(), wake_at))
            self._stop()
            self.when_durable(lambda: self._leave("parked"))

    def _is_winding_up_with_tasks(self) -> bool:
        main = self._main
        return main is not None and main.done() and not self._unsettled and not self.loop.tasks

    def _stop_stuck(self) -> None:
        """Nothing will ever wake this flow: say so instead of waiting for ever."""
        self.fault = Fault("FlowStuck", _STUCK)
        self.note(RunFailed(self.at(), self.fault))
        self._stop()
        self.when_durable(lambda: self._leave("ended"))

    def _stop_misfit(self, error: OutliveError) -> None:
        self._stop()
        now = self.env.ports.clock.now_ms()
        self.note(Parked(self.at(), now + MISMATCH_RETRY_MS, str(error)))
        self.when_durable(lambda: self._leave("misfit", error))

    def _lost(self, error: OutliveError) -> None:
        self._stop()
        self._leave("lost", error)

    def hand_over(self) -> None:
        """Stop driving here; the lease is released by the worker."""
        if not self.stopped:
            self._stop()
            self._leave("lost")

    def _stop(self) -> None:
        """Close every frame; from here on every durable call of this flow raises."""
        if self.stopped:
            return
        self.stopped = True
        self._timers.stop()
        for op in (*self._ops.values(), *self._orphans.values()):
            if op.timer is not None:
                op.timer.cancel()
            if op.task is not None and op.definition.effect is None:
                op.task.cancel()
        self.loop.kill(RunStopped)
        self._ops.clear()
        self._orphans.clear()

    def _leave(self, how: How, error: OutliveError | None = None) -> None:
        self.log.close()
        self._left(self, how, error)


_SPINS = (
    "the flow runs without ever waiting for a step, timer or signal "
    "(a loop around asyncio.sleep(0)?); wait with `await outlive.sleep(...)` or on a step"
)
_STUCK = (
    "the flow waits for something that no step, timer or signal will ever set "
    "(an asyncio.Event or Future of its own?); do such waiting inside a step"
)


def _set_if_waiting(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


@coroutine
def _turn() -> Any:
    """Give way once; nothing is delivered meanwhile, so nothing can be seen of it."""
    yield
