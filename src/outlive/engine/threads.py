"""Plain flows: code that is called, not awaited, in a thread of its own.

A branch of a plain flow is a task on the flow's loop like any other, and a thread. The task does
what the thread asks for and hands it the outcome; while the thread computes, the task is *away*
and the loop stands still. So one thing of a run happens at a time, as in async code: the same
calls get the same ids, in the same order, and replay as they ran.

A run that leaves memory closes its tasks; the thread is unwound by ``RunStopped``, raised from the
call that it waits in and from every durable call after that. A thread can't be ended from outside:
one that does not unwind is waited for a while, reported, and left behind.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any

from outlive.engine.calls import Calls
from outlive.engine.context import RunContext
from outlive.engine.definitions import Definition
from outlive.engine.host import Cancellable
from outlive.engine.place import SWALLOWS_MAX, Branch, Plain, RunStopped, place
from outlive.errors import RunError, UsageError

logger = logging.getLogger("outlive")

#: How long a run that leaves memory waits for the ``finally`` of its threads.
UNWIND_SECONDS = 5.0

_MISSING = object()


class FlowThreads:
    """The threads of one run."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self._alive: set[FlowThread] = set()
        self._waiting: list[Callable[[], object]] = []
        self._limit: Cancellable | None = None

    async def run(self, fn: Callable[[], Any]) -> Any:
        """Call a plain function in a thread of its own, as the code of this task's branch."""
        branch = place.get()
        assert isinstance(branch, Branch), "a thread belongs to a branch of a flow"
        thread = FlowThread(self, branch, fn)
        self._alive.add(thread)
        return await thread.play()

    # ends

    def when_unwound(self, callback: Callable[[], object]) -> None:
        """Call once no thread of this run is left, or none that could be waited for."""
        if not self._alive:
            callback()
            return
        self._waiting.append(callback)
        if self._limit is None:
            self._limit = self.context.env.host.call_later(UNWIND_SECONDS, self._give_up)

    def _give_up(self) -> None:
        for thread in list(self._alive):
            logger.error(
                "run %s left memory, but its thread %s still runs after %g s: flow code blocks, "
                "or swallows BaseException; it can change nothing of the run any more",
                self.context.run_id,
                thread.name,
                UNWIND_SECONDS,
            )
            self.forget(thread)

    def forget(self, thread: FlowThread) -> None:
        """It ended, or it never will."""
        self._alive.discard(thread)
        if self._alive:
            return
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()


class FlowThread:
    """One branch of plain code: a thread, and the task that does what it asks for.

    What is below "the task" runs on the host's loop, what is below "the thread" in the thread.
    """

    def __init__(self, threads: FlowThreads, branch: Branch, fn: Callable[[], Any]) -> None:
        self.name = f"outlive-flow-{threads.context.run_id}-{branch.id}"
        self._threads, self._branch, self._fn = threads, branch, fn
        self._loop = threads.context.loop
        self._stopped = False
        #: It has the say: the task waits until it is back.
        self._is_away = False
        self._back: Any = None
        self._ident: int | None = None
        self._swallowed = 0
        #: What the thread asks for, and in which context; or how it ended.
        self._work: Callable[[], Any] | None = None
        self._context: Context | None = None
        self._end: tuple[Any, BaseException | None] | None = None
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    # the task

    async def play(self) -> Any:
        """Do what the thread asks for, one after another, until its function is over."""
        self._context = copy_context()
        self._context.run(place.set, Plain(self._branch, self))
        thread = threading.Thread(
            target=self._main, args=(self._context,), name=self.name, daemon=True
        )
        try:
            await self._go_away(partial(self._start, thread))
            while self._end is None:
                answer = await self._perform()
                await self._go_away(partial(self._answers.put, answer))
            return self._take_end()
        finally:
            self._close()

    def _go_away(self, tell: Callable[[], None]) -> Any:
        """Let the thread compute; nothing else of this run happens until it is back."""
        tell()
        self._is_away = self._loop.is_away = True
        self._back = self._loop.create_future()
        return self._back

    def _start(self, thread: threading.Thread) -> None:
        try:
            thread.start()
        except RuntimeError as error:
            # No fault of the flow's: the run keeps its place, and is tried again later.
            self._threads.forget(self)
            self._threads.context.refuse(RunError(f"no thread for its flow: {error}"))
            raise RunStopped from None

    async def _perform(self) -> tuple[Any, BaseException | None]:
        work, self._work = self._work, None
        context, self._context = self._context, None
        assert work is not None, "a thread that is back asks for something"
        assert context is not None, "and does so in a context"
        _adopt(context)
        try:
            return await work(), None
        except GeneratorExit:
            raise
        except BaseException as error:
            # Whatever it is, a cancellation included: it is the caller's to see.
            return None, error

    def _take_end(self) -> Any:
        assert self._end is not None, "the function is over"
        (value, error), self._end = self._end, None
        if error is not None:
            try:
                raise error
            finally:
                del error
        return value

    def _come_back(self) -> None:
        """On the host: the thread waits for an answer, or is over."""
        if self._end is not None:
            self._threads.forget(self)
        if self._threads.context.is_overdue:
            # Before anything that it asks for, or its end: the flow was cut off here.
            self._threads.context.activate()
        if self._stopped:
            self._end = None
            self._answers.put((None, RunStopped()))
            return
        self._is_away = self._loop.is_away = False
        self._loop.wake_first(self._back)
        self._threads.context.activate()

    def _close(self) -> None:
        """The task is over; if the thread is not, it is unwound."""
        if self._stopped:
            return
        self._stopped = True
        self._fn = self._back = None  # type: ignore[assignment]  # frames end with the run
        if self._is_away:
            self._loop.is_away = False
        else:
            self._answers.put((None, RunStopped()))

    # the thread

    def _main(self, context: Context) -> None:
        self._ident = threading.get_ident()
        fn = self._fn
        try:
            self._end = context.run(fn), None
        except BaseException as error:
            self._end = None, error
        del fn, context
        self._threads.context.env.host.call_threadsafe(self._come_back)

    def check(self, name: str) -> None:
        """Refuse calls from any other thread."""
        if threading.get_ident() != self._ident:
            raise UsageError(
                f"{name} was called from a thread that the flow started by itself, in an order "
                "that no replay could repeat; use outlive.sync.map or outlive.sync.gather"
            )

    def perform(self, call: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do a step or effect: from the journal, or for the first time."""
        self.check(call.name)
        if self._stopped:
            self._refuse()
        calls = self._branch.drive
        assert isinstance(calls, Calls), "a flow's branch calls a drive"
        try:
            op = calls.op(call, args, kwargs)
            # While this thread has the say nothing is delivered, so it may look for itself.
            event = calls.recorded(op)
            if event is not None:
                return calls.outcome(op, event)
        except RunStopped:
            # Code and journal differ, and only this thread knows.
            self._threads.context.env.host.call_threadsafe(self._threads.context.activate)
            raise
        return self.wait(partial(calls.wait_for, op))

    def wait(self, work: Callable[[], Any]) -> Any:
        """Await what this makes, on the flow's loop; this thread waits for it."""
        if self._stopped:
            self._refuse()
        self._work, self._context = work, copy_context()
        self._threads.context.env.host.call_threadsafe(self._come_back)
        value, error = self._answers.get()
        if error is not None:
            try:
                raise error
            finally:
                del error
        return value

    def beside(self, fn: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
        """A branch of its own for a plain function."""
        return self._threads.run(fn)

    def _refuse(self) -> None:
        """The run left memory. Code that goes on regardless does so for a while."""
        self._swallowed += 1
        if self._swallowed > SWALLOWS_MAX:
            logger.error(
                "flow code in thread %s swallowed RunStopped %d times (`except BaseException`?); "
                "its run left memory, and the thread is left where it is",
                self.name,
                SWALLOWS_MAX,
            )
            self._threads.context.env.host.call_threadsafe(self._threads.forget, self)
            threading.Event().wait()
        raise RunStopped


def _adopt(context: Context) -> None:
    """What the thread has set is set here, too, for the bodies that begin from here."""
    here = context.get(place)
    if type(here) is Plain:
        place.set(here.branch)
    for variable, value in context.items():
        if variable is not place and _differs(variable, value):
            variable.set(value)


def _differs(variable: ContextVar[Any], value: object) -> bool:
    return variable.get(_MISSING) is not value
