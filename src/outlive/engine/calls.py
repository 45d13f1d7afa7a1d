"""What flow code calls: steps, effects, sleep, time and chance, each at its place in the journal.

A call whose outcome is the next thing in the journal returns it at once, without yielding: nothing
else was ready to run, so yielding would have led to exactly this. Any other call waits for its
delivery, live as on replay.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from types import coroutine
from typing import Any, NoReturn

from outlive.engine.children import Children
from outlive.engine.context import RunContext
from outlive.engine.definitions import Definition
from outlive.engine.end import Ending
from outlive.engine.inputs import decode_as, encode_own
from outlive.engine.loop import FlowLoop
from outlive.engine.ops import EffectFuture, Op
from outlive.engine.outlet import StreamWriter
from outlive.engine.place import SWALLOWS_MAX, Branch, RunStopped, branch_for, place
from outlive.engine.redaction import checked_key, recorded_args
from outlive.engine.replay import Comparing, parting
from outlive.engine.waits import Waits
from outlive.errors import NeverAwaited, NotApproved, OutliveError, ValueRefused
from outlive.model.defaults import CLEANUP_SECONDS
from outlive.model.events import (
    EffectDone,
    EffectIntended,
    EffectRaised,
    Event,
    Fault,
    Replied,
    SignalReceived,
    StepDone,
    StepRaised,
)
from outlive.model.ids import derived_bytes
from outlive.model.schedules import instant_of
from outlive.stores.transactions import cannot_share


class Approvals:
    """The grants of one run."""

    def __init__(self) -> None:
        #: By effect that was put to a human: what was granted and not used, by arguments' digest.
        self.unused: dict[str, Counter[bytes]] = {}

    def put(self, effect: str) -> None:
        """From here on the effect needs grants."""
        self.unused.setdefault(effect, Counter())

    def grant(self, effect: str, digest: bytes) -> None:
        """A human said yes."""
        self.unused[effect][digest] += 1

    def use(self, effect: str, digest: bytes, step: str) -> None:
        """The effect is called.

        Raises:
            NotApproved: it was put to a human, and there is no grant for this call.
        """
        unused = self.unused.get(effect)
        if unused is None:
            return
        if not unused[digest]:
            raise NotApproved(effect, step)
        unused[digest] -= 1


logger = logging.getLogger("outlive")

#: Replayed steps between two looks at the time.
REPLAY_TURN = 200

#: Calls that are kept before those that were awaited are let go.
CALLED_MAX = 1000

_ENDS: frozenset[type] = frozenset((StepDone, EffectDone, StepRaised, EffectRaised))


def is_unawaited(call: Any) -> bool:
    """Nobody has awaited, cancelled or closed this coroutine."""
    return inspect.iscoroutine(call) and inspect.getcoroutinestate(call) == inspect.CORO_CREATED


class Calls:
    """The flow's side of a drive."""

    def __init__(
        self,
        context: RunContext,
        comparing: Comparing,
        waits: Waits,
        children: Children,
        ending: Ending,
    ) -> None:
        self.run_id, self.hider = context.run_id, context.hider
        self._context, self._comparing = context, comparing
        self._waits, self._children, self._ending = waits, children, ending
        self.approvals = Approvals()
        self._replayed = self._swallowed = 0
        #: What was called, and may not have been awaited.
        self.called: list[Any] = []

    def is_replaying(self) -> bool:
        """The flow goes through what it did before."""
        return self._context.is_replaying

    def is_behind(self) -> bool:
        """The journal has something that the flow has not come to yet."""
        return self._context.is_replaying and bool(self._context.inbox)

    def is_open(self, step: str) -> bool:
        """The flow waits for this."""
        context = self._context
        return step in context.waiting.ops or step in context.asked()

    async def perform(self, call: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do a step or effect: from the journal, or for the first time."""
        if len(self.called) == 1:
            self.called.clear()  # it is this very call
        elif len(self.called) > CALLED_MAX:
            self._forget_awaited()
        try:
            op = self.op(call, args, kwargs)
        except RunStopped:
            await self._unwind()
        event = self.recorded(op) if self._context.inbox else None
        if event is None:
            future = self._expect(op)
            try:
                return await future
            except asyncio.CancelledError:
                self._give_up(op)
                raise
        self._replayed += 1
        if self._replayed % REPLAY_TURN == 0:
            await _turn()
        return self.outcome(op, event)

    def note_call(self, made: Any) -> None:
        """A verb was called, and must be awaited."""
        if len(self.called) > CALLED_MAX:
            self._forget_awaited()
        self.called.append(made)

    def _forget_awaited(self) -> None:
        self.called = [each for each in self.called if is_unawaited(each)]

    def never_awaited(self) -> NeverAwaited | None:
        """The flow is over: what it called and left there. Nothing of that was done."""
        if not self.called:
            return None
        left = [each for each in self.called if is_unawaited(each)]
        self.called = []
        names = [_name_of_call(each) for each in left]
        for each in left:
            each.close()  # told here, not by Python's warning
        return NeverAwaited(names[0]) if names else None

    def refuse_run(self, error: OutliveError) -> None:
        """The run fails with this, whoever catches it."""
        self._context.loop.refuse(error)

    def op(self, call: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Op:
        """The call at its place."""
        context, name = self._context, call.name
        loop, here, hider = context.loop, place.get(), context.hider
        if context.stopped or loop.dead or loop.refusal or context.misfit:
            self._check_alive()
        # Numbered where it is awaited: gather and as_completed await in branches of their own.
        op_id = (here if isinstance(here, Branch) else branch_for(name)).next_id(name)
        bound = call.bind(*args, **kwargs)
        try:
            if call.ignore or call.redact or hider.names or hider.is_on:
                recorded, open_args = recorded_args(call, bound, hider)
            else:
                recorded, open_args = call.args_codec.write(bound), None
        except ValueRefused as refused:
            raise refused.by(f"{name} was given") from None
        op = Op(op_id, call, bound, recorded)
        op.call = (args, kwargs)
        if open_args is not None:
            op.open_args = open_args
        rules = call.effect
        if rules is not None and (rules.key or call.transaction or self.approvals.unused):
            self._check_effect(op)
        return op

    def _check_effect(self, op: Op) -> None:
        """What few effects have: a transaction, a human's approval, a key of the user's."""
        call, context = op.definition, self._context
        if call.transaction and context.env.transactions is None:
            raise cannot_share(f"step {call.name} (transaction=True)")
        if call.name in self.approvals.unused:
            self.approvals.use(call.name, op.digest, op.id)
        if call.effect is not None and call.effect.key is not None:
            op.user_key = checked_key(call, op.bound, context.hider)

    def outcome(self, op: Op, event: Event) -> Any:
        """What the record says; raises what it says was raised."""
        value, error = self._comparing.outcome(op, event)
        if error is not None:
            raise error
        if self._context.misfit is not None:
            raise RunStopped
        return value

    def recorded(self, op: Op) -> Event | None:
        """This op's outcome, if it is the next delivery and nothing else is ready to run."""
        context = self._context
        inbox = context.inbox
        if not inbox or context.is_live or context.loop.ready:
            return None
        if op.definition.effect is not None and _is_cancelled(context.loop):
            return None
        head: Any = inbox[0]
        if type(head) is EffectIntended and head.step == op.id:
            self._insist(op, head)
            op.stage = "intended"
            head = inbox[0] if inbox else None
            if type(head) not in _ENDS or head.step != op.id:
                context.waiting.shield(op.id)
                return None
        if type(head) in _ENDS and head.step == op.id:
            self._insist(op, head)
            context.loop.seconds = head.at / 1000
            if op.definition.effect is not None:
                self._ending.note_end(op, head)
            end: Event = head
            return end
        return None

    def _insist(self, op: Op, event: Event) -> None:
        """Take the event if the call fits it; otherwise nothing of the flow runs any further."""
        if not self._comparing.fits(op, event):
            raise RunStopped
        self._context.inbox.popleft()

    async def wait_for(self, op: Op) -> Any:
        """Wait for its delivery; it is begun when the flow is quiet."""
        try:
            return await self._expect(op)
        except asyncio.CancelledError:
            self._give_up(op)
            raise

    def _expect(self, op: Op) -> asyncio.Future[Any]:
        context = self._context
        is_effect = op.definition.effect is not None
        future = EffectFuture(loop=context.loop) if is_effect else asyncio.Future(loop=context.loop)
        op.future, op.context = future, copy_context()
        waiting = context.waiting
        waiting.ops[op.id] = op
        if is_effect:
            waiting.unsettled.add(op.id)
        if context.is_live:
            context.to_start.append(op)
        return future

    def _give_up(self, op: Op) -> None:
        if not self._context.stopped:
            self._context.abandon(op)

    async def signal(self, branch: Branch, name: str) -> SignalReceived:
        """The next signal of that name, as its event."""
        await self._alive()
        return await self._waits.signal(branch.next_id(f"signal:{name}"), name)

    async def signal_of(self, branch: Branch, name: str, hint: Any) -> Any:
        """The next signal of that name and type; one of another is refused, and waited on."""
        waits = self._waits
        while True:
            event = await self.signal(branch, name)
            if waits.was_refused(event):
                continue
            try:
                return self.taken(event, hint)
            except ValueRefused as refused:
                if not waits.may_refuse:
                    raise
                self.refuse(event.signal_id, refused)

    def taken(self, event: SignalReceived, hint: Any) -> Any:
        """The value of a signal as the type that the flow wants, which is recorded.

        Raises:
            ValueRefused: it is of another type.
        """
        waits = self._waits
        waits.compare_type(event, hint)
        value = decode_as(hint, event.value, is_json=event.is_json)
        waits.note_taken(event.signal_id, hint)
        return value

    async def question(self, asked: Any, hint: Any) -> tuple[Any, Any]:
        """A human's answer, and its event."""
        await self._alive()
        return await self._waits.question(asked, hint)

    async def child(
        self, branch: Branch, flow: Any, bound: dict[str, Any], *, awaited: bool
    ) -> Any:
        """A run of its own: its outcome, or its id."""
        await self._alive()
        step = branch.next_id(f"{'call' if awaited else 'spawn'}:{flow.name}")
        args = self._run_args(flow, bound)
        return await self._children.run(step, flow, args, awaited=awaited)

    def _run_args(self, flow: Any, bound: dict[str, Any]) -> bytes:
        """What a run begins with: it gets that from its journal, so the same is given here."""
        args: bytes = flow.args_codec.write(bound)
        self.hider.check_run(flow.name, args)
        return self.hider.value(args)

    async def launch(self, branch: Branch, flow: Any, args: bytes) -> str:
        """A run that is nobody's child, of a flow that is known by name: its id."""
        await self._alive()
        step = branch.next_id(f"launch:{flow.name}")
        run_id: str = await self._children.run(step, flow, args, awaited=False)
        return run_id

    async def is_over(self, run_id: str) -> bool:
        """Whether another run has ended, or is gone; for a step to ask."""
        return await self._context.env.peer.is_over(run_id)

    async def carry(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        """End this chapter; the flow begins anew with these arguments."""
        await self._alive()
        context = self._context
        context.carries = self._run_args(context.flow, context.flow.bind(*args, **kwargs))
        # The flow is stopped as soon as none of its branches has anything left to run.
        await context.loop.create_future()
        raise RunStopped

    def is_patched(self, place: str) -> bool:
        """Whether the flow takes the new way here."""
        self._check_alive()
        return self._context.is_patched(place)

    def publish(self, values: Mapping[str, bytes]) -> None:
        """Show values to those who watch the run; nothing is written again on replay."""
        self._check_alive()
        if self._context.telling().count_call():
            self._context.publish(values)

    def tag(self, tags: Mapping[str, str]) -> None:
        """Change tags of the run; nothing is written again on replay."""
        self._check_alive()
        if self._context.telling().count_call():
            self._context.tag(tags)

    def open_stream(self, writer: StreamWriter) -> None:
        """Open a stream at a place in the flow."""
        self._check_alive()
        self._context.open_stream(writer)

    def put_chunk(self, writer: StreamWriter, chunk: bytes) -> None:
        """Write a chunk, once per place: those that the journal has are not written again."""
        self._check_alive()
        self._context.put_chunk(writer, chunk)

    def fired_at_ms(self) -> int:
        """The instant that the run is for: that of its schedule, or its start."""
        start = self._context.start_event
        instant = instant_of(start.tags)
        return start.started_at if instant is None else instant

    def version(self) -> str:
        """The version of the code that began this chapter."""
        return self._context.start_event.version

    def pins(self) -> Mapping[str, str]:
        """What was pinned when the run began."""
        return dict(self._context.start_event.pins)

    def reply(self, signal_id: str, value: object) -> None:
        """Answer a request."""
        self._check_alive()
        self._waits.reply(Replied(0, signal_id, encode_own(value)))

    def refuse(self, signal_id: str, why: Exception) -> None:
        """A signal or request can't be read: whoever wants a reply is told."""
        self._check_alive()
        fault = Fault(type(why).__name__, str(why))
        self._waits.reply(Replied(0, signal_id, b"", fault))

    async def _alive(self) -> None:
        try:
            self._check_alive()
        except RunStopped:
            await self._unwind()

    async def _unwind(self) -> NoReturn:
        """The run left memory. Code that swallows that, and goes on, is left where it stands."""
        self._swallowed += 1
        if self._swallowed == SWALLOWS_MAX:
            logger.error(
                "run %s left memory, but its flow swallowed that %d times (a bare `except:`?)",
                self.run_id,
                SWALLOWS_MAX,
            )
        if self._swallowed >= SWALLOWS_MAX:
            await _turn()
        raise RunStopped

    def _check_alive(self) -> None:
        context = self._context
        if context.stopped or context.misfit is not None or context.loop.dead:
            raise RunStopped
        if context.loop.refusal is not None:
            raise context.loop.refusal

    async def sleep(self, branch: Branch, seconds: float) -> None:
        """Wait, durably."""
        await self._alive()
        context = self._context
        future = context.loop.create_future()
        when = context.loop.seconds + seconds
        handle = asyncio.TimerHandle(when, _set_if_waiting, (future,), context.loop)
        context.loop.set_timer(handle, branch.next_id("sleep"))
        try:
            await future
        finally:
            handle.cancel()

    async def on_host(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Call this on the user's loop and wait for its end; nothing is recorded.

        No event tells the flow of that end, so nothing else of the run may go on meanwhile.
        """
        context = self._context
        if context.is_replaying:
            await self._alive()
            return
        host, loop = context.env.host, context.loop if not context.stopped else None
        if loop is None or loop.dead:
            host.call_soon(self._begin_cleanup, fn, args, None)  # the flow's ``finally``
            raise RunStopped
        back = loop.create_future()
        loop.is_away = True
        host.call_soon(self._begin_cleanup, fn, args, back)
        try:
            await back
        finally:
            if not back.done():
                loop.is_away = False  # the run leaves memory; the cleanup goes on

    def _begin_cleanup(
        self, fn: Callable[..., Any], args: tuple[Any, ...], back: asyncio.Future[None] | None
    ) -> None:
        work = _clean_up(self.run_id, fn, args)
        task = self._context.env.host.create_task(work, _context_outside())
        if back is not None:
            task.add_done_callback(lambda _: self._come_back(back))

    def _come_back(self, back: asyncio.Future[None]) -> None:
        context = self._context
        if not back.done() and not context.stopped:
            context.loop.is_away = False
            context.loop.wake_first(back)
            context.activate()

    def now_ms(self) -> int:
        """The run's time: that of the last delivered event."""
        return self._context.started_at + round(self._context.loop.seconds * 1000)

    def chance(self, place: str) -> bytes:
        """Sixteen random bytes that belong to this place."""
        parted = parting(self._context.inbox)
        return derived_bytes((parted or self._context.start_event).seed, place)


def _name_of_call(call: Any) -> str:
    """The step or verb that a coroutine would have done."""
    made_from = call.cr_frame.f_locals.get("call")
    if isinstance(made_from, Definition):
        return made_from.name
    owner, _, name = call.__qualname__.rpartition(".")
    return f"{owner.lower() or 'outlive'}.{name}"  # request.reply, outlive.sleep


def _is_cancelled(loop: FlowLoop) -> bool:
    """The task has cancelled itself: that comes at its effect's end, so the effect must wait."""
    task: Any = asyncio.current_task(loop)
    # A thread that calls it holds back the loop: nobody can have cancelled anything.
    return task is not None and bool(task._must_cancel)  # noqa: SLF001


def _set_if_waiting(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


def _context_outside() -> Context:
    context = copy_context()
    context.run(place.set, None)
    return context


async def _clean_up(run_id: str, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """What a flow wants to be done outside: how that ends is nothing to the flow."""
    try:
        async with asyncio.timeout(CLEANUP_SECONDS):
            made = fn(*args)
            if inspect.isawaitable(made):
                await made
    except Exception:
        logger.exception("run %s: outlive.on_host(%s) raised", run_id, getattr(fn, "__name__", fn))


@coroutine
def _turn() -> Any:
    """Give way once; nothing is delivered meanwhile, so nothing can be seen of it."""
    yield
