"""The heart: one run in memory. Replay what the journal has, then perform what comes next.

Everything that can wake a flow is an event. Events are delivered in journal order, one at a time,
each only when the flow has nothing left to run. Live and replayed runs go through the same code:
a live event is appended to the journal and to the inbox; a replayed one only comes from there.
When the inbox of recorded events is empty the run goes live, and only then do bodies start.

What the flow asks for is in ``calls``, where code and journal are compared in ``comparing``, how
the flow ends in ``ending``, and how the run leaves memory in ``leaving``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec

from outlive.engine.arguments import complete
from outlive.engine.calls import Calls
from outlive.engine.children import Children
from outlive.engine.context import Env, RunContext
from outlive.engine.definitions import Flow
from outlive.engine.effects import EffectRunner
from outlive.engine.end import FLOW_STUCK, Deadline, Ending, FlowEnd
from outlive.engine.exit import How, Leaving
from outlive.engine.faults import fault_of
from outlive.engine.mailbox import Mailbox
from outlive.engine.ops import Op
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
    AttemptFailed,
    CancelRequested,
    ChapterBegan,
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
    Forked,
    Patched,
    QuestionAsked,
    Replied,
    RunStarted,
    RunUndoing,
    SignalReceived,
    StepDone,
    StepRaised,
    TimerFired,
)
from outlive.model.replay import DEADLINE_PASSED
from outlive.model.run import Run

logger = logging.getLogger("outlive")

#: Events of a run that begins: its start, and a first claim.
FRESH = 2
#: Handles that a flow may run without one delivery; more is a loop that waits for nothing.
SPIN_MAX = 200_000
#: How long a flow may keep its host's loop busy in one go.
SLICE_SECONDS = 0.005
SLICE_HANDLES = 64
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
_DONE = frozenset({StepDone, EffectDone})
#: What is left of a run that left memory, for those who call too late.
_KEPT = frozenset({"_active", "context", "env", "flow", "log", "run_id"})
Left = Callable[["Drive", How, OutliveError | None], None]


class Drive:
    """A run in memory, driven."""

    def __init__(self, flow: Flow[Any, Any], log: RunLog, run: Run, env: Env, left: Left) -> None:
        context = self.context = RunContext(flow, log, run, env)
        self.flow, self.log, self.env, self.run_id = flow, log, env, context.run_id
        self.loop, self.inbox, self.waiting = context.loop, context.inbox, context.waiting
        start = context.start_event
        self._chapter = run.chapter or ChapterBegan(0, 0, 0, 0, start, start.args)
        self._active = self._winding_up = False
        self._spun = 0
        replay = self._replay = Replay(context.run_id, run)
        comparing = self.comparing = Comparing(context, replay)
        timers = self.timers = FlowTimers(context, comparing)
        waits = self.waits = Waits(context, run, replay, comparing)
        children = self.children = Children(context, run, comparing)
        ending = self.ending = Ending(context, self._chapter, comparing, waits)
        effects = EffectRunner(context)
        self.deadline = Deadline(context, start.deadline_at)
        self.threads = FlowThreads(context)
        self.mailbox = Mailbox(context, effects, timers, waits, children)
        self.calls = Calls(context, comparing, waits, children, ending)
        self._effects, self._beginning = effects, Beginning(context, replay, effects)
        self.leaving = Leaving(context, timers, self.deadline, waits, self.threads)
        self.leaving.left, self.leaving.forget_calls = partial(left, self), self.calls.never_awaited
        self._fill_in(context)
        log.on_failure = self.leaving.lost

    def _fill_in(self, context: RunContext) -> None:
        """What the parts may ask for, and only the whole can do."""
        context.activate, context.attend, context.rest = self.activate, self.attend, self.rest
        context.abandon, context.refuse, context.broke = self.abandon, self.refuse, self.broke
        context.interrupted, context.cut = self.leaving.hand_over, self.cut
        context.flow_is_over, context.is_busy = self.flow_is_over, self.is_busy
        context.asked, context.open_waits = self.asked, self.open_waits
        context.is_patched, context.stop_stuck = self.is_patched, self.stop_stuck
        self.loop.on_refusal = partial(self.env.host.call_threadsafe, self._stop_refused)

    # beginning

    def begin(self, events: Sequence[Event]) -> None:
        """Replay these events and go on."""
        if len(events) > FRESH or type(events[0]) is not RunStarted:
            self.inbox.extend(self._replay.inbox(events))
            if was_driven(events):
                self.context.is_replaying = True
                self.env.repeats.begin()
            if self.context.outlet is not None or self._replay.is_fork:
                self.context.telling().replay(self._replay.written(events))
            self.mailbox.remember(events)
        try:
            main = self._call_flow()
        except (TypeError, ValueRefused) as error:
            self.leaving.misfit(misfit_arguments(self.run_id, error))
            return
        chapter = self._chapter
        self.context.main = self.loop.create_main(main, Branch(self.calls, str(chapter.number)))
        self.loop.seconds = chapter.at / 1000
        if chapter.signals:
            self.waits.keep(chapter.signals)
        if chapter.is_cancelled:
            self.ending.cancel_requested = True
            self.context.main.cancel()
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

    # what the parts call

    def abandon(self, op: Op) -> None:
        """The flow no longer waits for this op."""
        self.waiting.abandon(op, is_live=self.context.is_live)
        if self.context.is_live and op.definition.effect is not None:
            self.env.host.call_soon(self._effects.give_up, op)

    def broke(self, error: Exception) -> None:
        """The engine itself failed: stop driving this run, say so, try again later."""
        logger.error("run %s: a bug in Outlive", self.run_id, exc_info=error)
        if not self.context.stopped:
            self.leaving.misfit(RunError(f"a bug in Outlive stopped this run: {error!r}"))

    def rest(self) -> None:
        """Nothing more to do here: look later whether all of it waits."""
        self.env.host.call_soon(self.leaving.park_if_idle)

    def attend(self) -> None:
        """Something came from outside: look at it, unless the flow is running."""
        if not self.context.is_live or self._active or self.context.stopped:
            return
        if not self.loop.is_away:
            self._settle_down()
        elif not self.mailbox.is_open:
            self.mailbox.open()  # in time for the timers that it beats; delivered later

    def drain(self) -> None:
        """Begin nothing more, and leave memory at the next durable point."""
        self.context.draining = True
        if self.context.is_live:
            self.attend()
        else:
            self.leaving.hand_over()

    def refuse(self, error: OutliveError) -> None:
        """The run can't go on here: nothing of the flow runs any further."""
        self.comparing.refuse(error)
        if not self._active and not self.context.stopped:
            self.leaving.misfit(error)

    def is_busy(self) -> bool:
        """Something of it runs, is about to, or has just ended."""
        if self.context.stopped:
            return True
        is_running = (
            self._active or not self.context.is_live or bool(self.loop.ready or self.loop.is_away)
        )
        is_starting = bool(self.context.to_start) and not self.context.draining
        has_more = bool(is_starting or self.inbox or self.children.busy)
        return is_running or has_more or self.mailbox.is_open or self._is_ending()

    def flow_is_over(self) -> bool:
        """The flow returned, raised, or was stopped."""
        main = self.context.main
        if self.ending.verdict is None and main is not None and main.done() and not self.loop.tasks:
            left = self.calls.never_awaited() if self.calls.called else None
            self.ending.returned(main, self.loop.refusal, left)
        return self.ending.verdict is not None

    def is_patched(self, place: str) -> bool:
        """Whether the flow takes the new way here: it did before, or nothing is recorded yet."""
        is_new = self.context.is_live or not self.inbox or parting(self.inbox) is not None
        if place not in self._replay.patches and is_new:
            self._replay.patches.add(place)
            self.context.note(Patched(self.context.at(), place))
        return place in self._replay.patches

    def let_go(self) -> None:
        """The run left memory, and whoever still calls is told so by ``stopped``.

        Its parts know one another: left as they are they would wait for the garbage collector,
        whose work was measured to be a third of the cost of a short run.
        """
        if self.flow.is_async:  # a thread that was given up may still look for its loop
            self.log.on_failure = None
            self.context.let_go()
            mine, self.__dict__ = self.__dict__, {}
            for name in _KEPT:
                self.__dict__[name] = mine[name]

    # deliveries

    def activate(self) -> None:
        """Let the flow run as far as it can, deliver what has come, start what it asks for."""
        if self._active or self.context.stopped:
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
        if self.context.misfit is not None:
            self.leaving.misfit(self.context.misfit)
        elif self.loop.is_away:
            pass  # the thread that computes comes back here
        elif not is_quiet:
            self.env.host.call_soon(self.activate)
        else:
            self._settle_down()

    def _run(self) -> bool:
        """Run and deliver until nothing is left (True), or the slice is over."""
        context, loop, inbox = self.context, self.loop, self.inbox
        main = context.main
        until = 0.0
        while context.misfit is None:
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
                    self.comparing.refuse(RunError(SPINS))
            elif not self._winding_up and main and (main.done() or context.carries is not None):
                self._wind_up()
            elif inbox:
                self._spun = 0
                self._deliver(inbox.popleft())
            elif not self.context.is_live:
                self._go_live()
            else:
                return True
        return True

    def _deliver(self, event: Event) -> None:
        """The flow has nothing left to run: let it see this."""
        kind: Any = type(event)
        if kind not in _TIMELESS:
            self.loop.seconds = event.at / 1000  # type: ignore[union-attr]  # all have it
            if kind in _DONE and self._hand_over(event):
                return
        _TAKERS[kind](self, event)

    def _hand_over(self, event: Any) -> bool:
        """Give an outcome that nobody can change to the flow that waits for it, and to nobody else.

        It was encoded just now and would be decoded to the same. All else is ``resolve``'s.
        """
        waiting = self.waiting
        op = waiting.ops.get(event.step)
        if op is None or not op.is_immutable:
            return False
        future = op.future
        if future is None or future.done() or op.on_end is not None:
            return False
        rules = op.definition.effect
        if rules is not None:
            if rules.undo is not None:
                return False
            waiting.unsettled.discard(event.step)
        del waiting.ops[event.step]
        future.set_result(op.value)
        return True

    def compare_intent(self, event: EffectIntended) -> None:
        """The flow must have called it."""
        op = self.comparing.find(event, event.step)
        self.waiting.shield(event.step)
        if op is not None and not self.context.is_live:
            # A living one is "intended" when it is durable, which it need not be yet.
            op.stage = "intended"

    def note_doubt(self, event: EffectDoubted) -> None:
        """An attempt's end is not known."""
        if self.comparing.find(event, event.step) is not None:
            self.waiting.give_way(event.step)

    def resolve(self, event: StepDone | StepRaised | EffectDone | EffectRaised) -> None:
        """A step or effect has ended."""
        waiting = self.waiting
        if event.step in waiting.cut_off:
            return
        if self.context.is_live:  # it is about an op that the code asked for just now
            op = waiting.find(event.step)
        else:
            op = self.comparing.find(event, event.step)
        if op is None:
            return
        self.ending.note_end(op, event)
        waited_for = waiting.close(event.step)
        if op.on_end is not None:
            op.on_end(event)
        if waited_for is None or op.future is None or op.future.done():
            return
        value, error = self.comparing.outcome(op, event)
        if error is not None:
            op.future.set_exception(error)
        elif self.context.misfit is None:
            op.future.set_result(value)

    def cancel(self, _: CancelRequested) -> None:
        """Takes hold where the flow waits; what it does then is its own."""
        context, ending = self.context, self.ending
        if context.main is None:
            return
        if self.flow_is_over():
            # It is the next chapter's, if one is about to begin.
            ending.cancel_is_due = True
        else:
            ending.cancel_requested = True
            context.main.cancel()

    def part_ways(self, event: Forked) -> None:
        """What a fork shares is behind it: chance is its own from here on."""
        tags = self.context.start_event.tags  # the fork may have changed them since
        start = msgspec.structs.replace(event.start, seed=event.seed, tags=tags)
        self.context.start_event = start

    def _is_held(self) -> bool:
        """Plain code computes, and all else waits for it; only a deadline does not."""
        if self.loop.is_away and self.context.is_overdue:
            while not isinstance(event := self.inbox.popleft(), DeadlinePassed):
                pass  # mail that the flow will never see
            self._deliver(event)
        return self.loop.is_away

    def asked(self) -> list[str]:
        """What the code asks for, by id."""
        if self.context.main is not None and self.context.main.done():
            return ["returned"]
        return [*self.waiting.asked(), *self.open_waits(), *self.timers.waiting]

    def open_waits(self) -> list[str]:
        """What the flow waits for from outside."""
        return [*self.waits.open_ids(), *self.children.open_ids()]

    # going on

    def _go_live(self) -> None:
        self.context.is_live = True
        if self.context.is_replaying:
            self.context.end_replay()
        self._replay.is_over()
        if self.deadline.is_set:
            self.deadline.arm()
        if self.inbox:
            # It passed while nobody drove the run: nothing below begins any more.
            self._deliver(self.inbox.popleft())
        self.timers.go_live()
        self.waits.go_live()
        self.children.go_live()
        self.context.to_start.extend(self.waiting.go_live())

    def _settle_down(self) -> None:
        """The flow is quiet: read mail, start what it asked for, end it, or let it leave memory."""
        if self.mailbox.is_open:
            return  # whoever reads there goes on from here
        if not self.context.draining:
            if self._replay.effects:
                self._beginning.open_effects()
            if self.mailbox.unopened:
                self.mailbox.open()
        if self.context.stopped or self.loop.ready or self.inbox:
            return  # what was read has led to the end, or to more than fits into one turn
        if self.context.to_start and not self.context.draining:
            self._beginning.asked_for()
            if self.waiting.unsettled and self._beginning.is_busy:
                return  # an effect is under way
        if self._is_ending():
            self._end()
        elif self.context.draining or not self.waiting.is_busy:
            self.leaving.park_if_idle()

    def _wind_up(self) -> None:
        """What the flow left running is cancelled, as ``asyncio.run`` does, or cut off."""
        self._winding_up = True
        if self.context.carries is not None and not self.flow_is_over():
            self.cut(self.ending.next_chapter())
        elif self.loop.tasks:
            self.loop.cancel_all()

    def cut(self, verdict: FlowEnd) -> None:
        """The flow stops here; what it began that changes the world runs to its end."""
        if self.flow_is_over():
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
            fault = self.context.hider.fault(fault_of(self.loop.refusal, self.flow.value_codec))
        self.cut(FlowEnd("failed", error=fault))
        self._end()

    def _stop_refused(self) -> None:
        """A thread that the flow began was refused: the flow may wait for it for ever."""
        if self.context.stopped or self.flow_is_over() or self.loop.refusal is None:
            return
        fault = fault_of(self.loop.refusal, self.flow.value_codec)
        self.cut(FlowEnd("failed", error=self.context.hider.fault(fault)))
        self.activate()

    def _is_ending(self) -> bool:
        """The flow is over, every effect is settled, every child is told."""
        is_open = bool(self.context.stopped or self.waiting.unsettled or self.children.busy)
        return not is_open and self.flow_is_over()

    def _end(self) -> None:
        """Nothing is open any more: undo, or say how it ended."""
        if self.context.outlet is not None:
            self.context.flush()
        event = self.ending.proceed()
        if isinstance(event, ChapterBegan):
            self.leaving.turn_page(event)
        elif event is not None:
            self.leaving.end(event)


#: What each kind of event does to the flow when its turn has come, live as on replay.
_TAKERS: dict[type, Callable[[Drive, Any], None]] = {
    StepDone: Drive.resolve,
    EffectDone: Drive.resolve,
    StepRaised: Drive.resolve,
    EffectRaised: Drive.resolve,
    EffectIntended: Drive.compare_intent,
    EffectDoubted: Drive.note_doubt,
    AttemptFailed: lambda drive, event: drive.waiting.give_way(event.step),
    TimerFired: lambda drive, event: drive.timers.fired(event),
    SignalReceived: lambda drive, event: drive.waits.deliver(event),
    QuestionAsked: lambda drive, event: drive.waits.compare(event),
    Answered: lambda drive, event: drive.waits.deliver(event),
    Replied: lambda drive, event: drive.waits.replayed(event),
    ChildIntended: lambda drive, event: drive.children.compare(event),
    ChildSpawned: lambda drive, event: drive.children.deliver(event),
    ChildEnded: lambda drive, event: drive.children.deliver(event),
    CancelRequested: Drive.cancel,
    DeadlinePassed: lambda drive, _: drive.cut(FlowEnd("failed", error=DEADLINE_PASSED)),
    RunUndoing: lambda drive, event: drive.ending.undo(event),
    Forked: Drive.part_ways,
}
