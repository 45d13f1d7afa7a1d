"""One attempt of a step or effect: its body runs in a task or a thread, and its end is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from types import CoroutineType, coroutine
from typing import Any, TypeAlias

from outlive.engine.anonymous import Anonymous
from outlive.engine.context import RunContext
from outlive.engine.definitions import IMMUTABLE
from outlive.engine.ops import Interrupted, NotBegun, Op, own_bound
from outlive.engine.place import Body, place
from outlive.stores.transactions import Attempt

#: Positional and keyword arguments.
Call: TypeAlias = tuple[Sequence[Any], dict[str, Any]]
#: Called with an attempt's end: its value, or what it raised.
Ended: TypeAlias = Callable[[Op, Any, BaseException | None], None]


def later(context: RunContext, op: Op, when: int, callback: Callable[[Op], None]) -> None:
    """Call back at an instant; until then the op only waits."""
    op.wait, op.wake = when, callback
    delay = max(0, when - context.env.ports.clock.now_ms()) / 1000
    op.timer = context.env.host.call_later(delay, _wake, context, op)
    context.rest()


def at_once(context: RunContext, op: Op) -> None:
    """Do not wait for what only waits for its turn: both share a commit."""
    if op.timer is not None:
        op.timer.cancel()
        _wake(context, op)


def hurry(context: RunContext, op: Op, until: int) -> None:
    """The wall clock may have been set forward: look anew at what is due so soon."""
    if isinstance(op.wait, int) and op.wait <= until and op.timer is not None:
        op.timer.cancel()
        delay = max(0, op.wait - context.env.ports.clock.now_ms()) / 1000
        op.timer = context.env.host.call_later(delay, _wake, context, op)


def _wake(context: RunContext, op: Op) -> None:
    op.timer = None
    if not context.stopped and not context.draining and op.wake is not None:
        op.wait = "busy"
        op.wake(op)


def launch(
    context: RunContext,
    op: Op,
    ended: Ended,
    may_begin: Callable[[Op], bool] | None = None,
    limit: Callable[[Op], None] | None = None,
) -> None:
    """Start an attempt's body: a task, or a thread for a plain function.

    ``limit`` is called where the body of a task first waits: what never does needs no timer.
    """
    definition = op.definition
    if context.outlet is not None:
        context.outlet.begin(op.id)
    assert op.context is not None, "an op is launched from the flow that called it"
    own = op.context.copy()
    inside = Body(context.run_id, op.id, op.attempt, op.user_key)
    inside.shelf, inside.context = context.shelf, context
    op.inside = inside
    own.run(place.set, inside)
    call = _call_of(op)
    op.expired = op.has_begun = op.is_called_off = False
    host = context.env.host
    if definition.is_async:
        work = _attempt(context, op, call, (ended, may_begin, limit))
        op.task = host.create_task(work, own)
        return
    body = partial(op.body or definition.fn, *call[0], **call[1])
    plainly = body if may_begin is None else partial(_begin_plainly, op, may_begin, body)
    op.task = host.run_in_thread(own, plainly)
    op.task.add_done_callback(partial(_thread_ended, context, op, ended))


def _call_of(op: Op) -> Call:
    """The arguments of a body."""
    is_same = op.open_args is None and IMMUTABLE.issuperset(map(type, op.bound.values()))
    if is_same and op.call is not None:
        return op.call
    return op.definition.unbinder.call(own_bound(op))


async def _attempt(
    context: RunContext,
    op: Op,
    call: Call,
    told: tuple[Ended, Callable[[Op], bool] | None, Callable[[Op], None] | None],
) -> None:
    """An attempt from begin to end: what follows from its end is done in the same turn."""
    value = None
    error: BaseException | None = None
    ended, may_begin, limit = told
    try:
        op.has_begun = True
        if op.is_called_off:
            raise asyncio.CancelledError
        if may_begin is not None and not may_begin(op):
            raise NotBegun
        body = (op.body or op.definition.fn)(*call[0], **call[1])
        if limit is None:
            value = await body
        elif type(body) is CoroutineType:
            value = await _limited(op, body, limit)
        else:
            limit(op)
            value = await body
    except (KeyboardInterrupt, SystemExit) as raised:
        # It ends the loop, too; should that go on, the attempt has ended.
        context.env.host.call_soon(_end, context, op, ended, None, raised)
        raise
    except GeneratorExit as raised:
        if not _is_running(op):
            raise  # the task itself is being thrown away
        error = raised
    except BaseException as raised:
        error = raised
    place.set(None)  # what follows is no longer the body's
    try:
        _end(context, op, ended, value, error)
    finally:
        error = None  # its traceback holds this frame


@coroutine
def _limited(op: Op, body: CoroutineType[Any, Any, Any], limit: Callable[[Op], None]) -> Any:
    """Await a body, and set its limit where it first waits."""
    try:
        waits_for = body.send(None)
    except StopIteration as stop:
        return stop.value
    limit(op)
    while True:
        try:
            yield waits_for
        except BaseException as thrown:  # as ``yield from`` does, which can't begin in between
            try:
                waits_for = body.throw(thrown)
            except StopIteration as stop:
                return stop.value
        else:
            return (yield from body)  # type: ignore[misc]  # ``coroutine`` lets it


def _is_running(op: Op) -> bool:
    try:
        return asyncio.current_task() is op.task
    except RuntimeError:
        return False


def _end(
    context: RunContext, op: Op, ended: Ended, value: object, error: BaseException | None
) -> None:
    """Take an attempt's end; a bug of ours on the way stops the run instead of hanging it."""
    if error is not None and isinstance(error, asyncio.CancelledError) and _is_foreign(op):
        error = Interrupted()
    op.task = None
    if op.limit is not None:
        op.limit.cancel()
        op.limit = None
    if context.outlet is not None and not context.stopped:
        context.outlet.end(op.id)
    try:
        ended(op, value, error)
    except Exception as bug:
        context.broke(bug)


def _is_foreign(op: Op) -> bool:
    """Whether neither we nor the body ended it: the loop ends, or somebody cancels all tasks.

    That says nothing about the work, which goes on as after a kill.
    """
    if op.is_called_off or op.task is None:
        return False
    return op.task.cancelled() or (isinstance(op.task, asyncio.Task) and op.task.cancelling() > 0)


def _thread_ended(context: RunContext, op: Op, ended: Ended, future: asyncio.Future[Any]) -> None:
    if future.cancelled():
        _end(context, op, ended, None, asyncio.CancelledError())
        return
    error = future.exception()
    value = None if error is not None else future.result()
    if type(value) is CoroutineType and isinstance(op.definition, Anonymous):
        _await_on_loop(context, op, ended, value)
    else:
        _end(context, op, ended, value, error)


def _await_on_loop(
    context: RunContext, op: Op, ended: Ended, made: CoroutineType[Any, Any, Any]
) -> None:
    """A plain function, as a lambda, has made a coroutine: that is its body."""
    assert isinstance(op.definition, Anonymous), "a declared function says what it is"
    assert op.context is not None, "an op is launched from the flow that called it"
    if op.is_called_off or op.expired or context.stopped:
        made.close()
        _end(context, op, ended, None, asyncio.CancelledError())
        return
    op.definition.learn_async()
    own = op.context.copy()
    own.run(place.set, op.inside)
    op.body = lambda: made
    op.task = context.env.host.create_task(
        _attempt(context, op, ((), {}), (ended, None, None)), own
    )


def _begin_plainly(op: Op, may_begin: Callable[[Op], bool], body: Callable[[], Any]) -> Any:
    _check_begin(op, may_begin)
    return body()


def _check_begin(op: Op, may_begin: Callable[[Op], bool] | None) -> None:
    """The last look before a body: a pause, or a busy loop or thread, may have kept it for long."""
    op.has_begun = True
    if op.is_called_off:
        raise asyncio.CancelledError
    if may_begin is not None and not may_begin(op):
        raise NotBegun


def attempt_of(context: RunContext, op: Op) -> Attempt:
    """The attempt of a transactional step that is under way, or in doubt."""
    assert op.effect is not None, "an attempt is made behind its intent"
    seq, epoch = op.effect.seq, context.log.run.epoch
    return Attempt(run_id=context.run_id, step=op.id, seq=seq, epoch=epoch)


def set_limit(context: RunContext, op: Op, seconds: float) -> None:
    """Cancel the attempt when its time is over. A thread can't be cancelled: it is waited for."""
    full = op.definition.timeout_seconds
    assert full is not None, "only what has a limit can reach it"
    op.limit = context.env.limits.set(full, seconds, op)
