"""The small event loop that flow code runs on: one per run, and nothing else on it.

It has a ready deque and no I/O. Its clock is the time of the last delivered event; its timers are
handed to the run's drive, which records their firing. So everything a flow can observe comes from
its journal, and ``asyncio.gather``, ``TaskGroup``, ``wait``, ``timeout`` and friends replay as
they ran. Tasks are numbered where they are created (``place.Branch``).

Three habits of asyncio need care, because they would make order depend on memory addresses or on
the Python version: sets of tasks (``FlowTask.__hash__``), ``as_completed``, which makes its tasks
from a set, and 3.11's ``wait_for``, which makes a task where 3.12's does not.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any
from zlib import crc32

import msgspec

from outlive.engine.place import Branch, PlaceBranch, RunStopped, place
from outlive.errors import IoInFlow, OutliveError

logger = logging.getLogger("outlive")

#: What awaits an item of an async generator; these types have no other name.
_OF_GENERATORS = frozenset({"async_generator_asend", "async_generator_athrow", "anext_awaitable"})
#: Where anyio waits for a thread.
_ANYIO_THREAD = "run_sync_in_worker_thread"
_TASKS_FILE = asyncio.tasks.__file__


class FlowTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(self, coro: Any, *, number: int, **options: Any) -> None:
        # Before super: asyncio's own registry of tasks hashes it at once.
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class Ready(msgspec.Struct, eq=False, weakref=True):
    """A callback that is due: an ``asyncio.Handle`` without what only debugging needs.

    The names are those of asyncio's: timers get ready, too, and theirs are such.
    """

    _callback: Any
    _args: tuple[Any, ...]
    _context: contextvars.Context
    _cancelled: bool = False

    def cancel(self) -> None:
        """Never call it."""
        self._cancelled = True

    def cancelled(self) -> bool:
        """It was called off."""
        return self._cancelled


class FlowLoop(asyncio.AbstractEventLoop):
    """Runs what is ready until nothing is; everything else raises "do this in a step"."""

    #: Who keeps the flow's timers: fire this handle at its time, as an event; it was cancelled.
    set_timer: Callable[[asyncio.TimerHandle, str], None]
    drop_timer: Callable[[asyncio.TimerHandle], None]

    def __init__(self, run_id: str) -> None:
        self.ready: deque[asyncio.Handle | Ready] = deque()
        self.tasks: dict[FlowTask, contextvars.Context] = {}
        #: Seconds since the run's start of the last delivered event.
        self.seconds = 0.0
        self.dead = False
        #: A thread of plain flow code computes: until it is back nothing runs here.
        self.is_away = False
        #: What the engine refused to flow code: it counts whoever caught it.
        self.refusal: OutliveError | None = None
        #: Called when a thread was refused, which the flow may wait for in vain.
        self.on_refusal: Callable[[], None] | None = None
        self._thread = threading.get_ident()
        self._salt = crc32(run_id.encode()) << 24
        self._made = 0

    def refuse(self, error: OutliveError) -> OutliveError:
        """The run fails with this, the first of its kind, whatever flow code does about it."""
        self.refusal = self.refusal or error
        return error

    def call_soon_threadsafe(  # type: ignore[override]  # as below
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """A thread that flow code began wants to tell its outcome."""
        error = self.refuse(IoInFlow("loop.call_soon_threadsafe()"))
        if threading.get_ident() == self._thread:
            raise error
        if self.on_refusal is not None:
            self.on_refusal()
        return asyncio.Handle(callback, args, self, context)

    # what asyncio itself asks of a loop

    def time(self) -> float:
        return self.seconds

    #: Always False, at the cost of no frame: every future asks for it.
    get_debug: Any = staticmethod(bool)

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def get_task_factory(self) -> None:
        return None

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def call_soon(  # type: ignore[override]  # looser types: asyncio's own are not checked here
        self, callback: Any, *args: Any, context: Any = None
    ) -> Ready:
        handle = Ready(callback, args, context or contextvars.copy_context())
        if not self.dead:
            self.ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]  # as above
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.seconds + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        here = place.get()
        if not self.dead and isinstance(here, Branch):
            if isinstance(here, PlaceBranch):
                self.set_timer(handle, here.timer_id(round(when * 1000)))
            else:
                self.set_timer(handle, here.next_id("timer"))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self.drop_timer(handle)

    def create_task(  # type: ignore[override]  # as above
        self, coro: Coroutine[Any, Any, Any], *, name: Any = None, context: Any = None
    ) -> FlowTask:
        own = contextvars.copy_context() if context is None else context.copy()
        here = place.get()
        if isinstance(here, Branch):
            branch = _branch_of_new_task(here, coro)
            own.run(place.set, branch)
            task = self._new_task(coro, own, name or branch.id)
            if branch is not here:
                self._begin_in_order(branch.id)
            return task
        return self._new_task(coro, own, name)

    def _begin_in_order(self, branch_id: str) -> None:
        """``as_completed`` makes its tasks in any order; let them begin in the caller's."""
        mine, later = self.ready.pop(), []
        while self.ready and _begins_later(self.ready[-1], branch_id):
            later.append(self.ready.pop())
        self.ready.extend([mine, *reversed(later)])

    def create_main(self, coro: Coroutine[Any, Any, Any], branch: Branch) -> FlowTask:
        """The flow's own task, in the first branch."""
        own = contextvars.copy_context()
        own.run(place.set, branch)
        return self._new_task(coro, own, branch.id)

    def _new_task(self, coro: Any, own: contextvars.Context, name: str | None) -> FlowTask:
        self._made += 1
        task = FlowTask(coro, number=self._salt + self._made, loop=self, name=name, context=own)
        self.tasks[task] = own
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)  # type: ignore[call-overload]  # every task here is a FlowTask

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, RunStopped) or self.dead:
            return  # the run left memory; what nobody has asked for yet is asked for elsewhere
        extra = {"sealed_as": "in flow code: nobody handled an error"}
        logger.error("in flow code: %s", context.get("message"), exc_info=error, extra=extra)

    default_exception_handler = call_exception_handler

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: a flow's generators end with its frames."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: there is no executor."""

    # running

    def enter(self, work: Callable[[], bool]) -> bool:
        """Call ``work`` as if this loop was running, though the host's runs around it."""
        host_loop = asyncio._get_running_loop()  # noqa: SLF001  # restored below
        hooks = sys.get_asyncgen_hooks()
        asyncio._set_running_loop(self)  # noqa: SLF001  # what run_forever does
        # A flow's generators end with its frames, not in a task of the host's making.
        sys.set_asyncgen_hooks(firstiter=None, finalizer=None)
        try:
            return work()
        finally:
            asyncio._set_running_loop(host_loop)  # noqa: SLF001
            sys.set_asyncgen_hooks(*hooks)

    def run_ready(self, limit: int) -> int:
        """Run up to ``limit`` handles; return how many were run."""
        ready = self.ready
        ran = 0
        while ready and ran < limit and not self.is_away:
            handle: Any = ready.popleft()
            ran += 1
            if handle._cancelled:  # noqa: SLF001  # that is how every asyncio loop does it
                continue
            if type(handle) is not Ready:
                handle._run()  # noqa: SLF001
                continue
            try:
                handle._context.run(handle._callback, *handle._args)  # noqa: SLF001
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                told = {"message": f"in {handle._callback!r}", "exception": error}  # noqa: SLF001
                self.call_exception_handler(told)
        return ran

    def waits_for_thread(self) -> bool:
        """Whether a task waits for one of anyio's threads, which tells no loop like this one."""
        return any(_innermost(task.get_coro()) == _ANYIO_THREAD for task in self.tasks)

    def wake_first(self, future: asyncio.Future[None]) -> None:
        """Go on with the one task that waits for this, before whatever else is ready."""
        ready = len(self.ready)
        future.set_result(None)
        self.ready.rotate(len(self.ready) - ready)

    def cancel_all(self) -> None:
        """Cancel what is left, in the order of the branches: ``as_completed`` makes them in any."""
        if not self.tasks:
            return
        for task, _ in sorted(self.tasks.items(), key=lambda item: _order(item[1])):
            task.cancel()

    def kill(self, stopped: type[BaseException]) -> None:
        """Close every frame of the flow, each in its own context. Nothing is ready ever after."""
        self.dead = True
        self.ready.clear()
        if not self.tasks:
            return
        raised = [_close(task, context, stopped) for task, context in list(self.tasks.items())]
        self.tasks.clear()
        for error in raised:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise error


def _dismiss_threads(task: FlowTask) -> None:
    """Let anyio's threads end: they wait for a task to be done, and would keep the process."""
    for callback, _ in task._callbacks or ():  # noqa: SLF001
        if isinstance(getattr(callback, "__self__", None), threading.Thread):
            callback(task)


def _close(
    task: FlowTask, context: contextvars.Context, stopped: type[BaseException]
) -> BaseException | None:
    """End a suspended task's coroutine here and now: its ``finally`` runs, durable calls raise.

    What else it raises is reported, and of no consequence to others.
    """
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
    raised: BaseException | None = None
    if task.done():
        return raised
    _dismiss_threads(task)
    waiter = task._fut_waiter  # type: ignore[attr-defined]  # noqa: SLF001
    coro: Any = task.get_coro()
    # ``async with`` awaits once while closing ("ignored GeneratorExit"): closing again gets on.
    for _ in range(8):
        try:
            if _is_in_generator(coro):
                context.run(coro.throw, stopped())
                continue
            context.run(coro.close)
        except RuntimeError:
            continue
        except (stopped, StopIteration):
            pass
        except BaseException as error:
            raised = error
            logger.exception("a flow's finally raised while the run was put to sleep")
        break
    else:
        # Python would close it again before it forgets it, and then it might never stop.
        threading.Thread(target=_keep, args=(coro,), name="outlive-unended", daemon=True).start()
    if waiter is not None:
        waiter.cancel()
    return raised


def _is_in_generator(coro: Any) -> bool:
    """It waits in an async generator that Python before 3.13 does not close with it.

    Only the frames around are closed there, and whoever closes the generator meanwhile, as
    ``aclosing`` does, gets a RuntimeError for it is "already running". What is thrown reaches it.
    """
    if sys.version_info >= (3, 13):
        return False
    while inspect.iscoroutine(coro):
        coro = coro.cr_await
    return type(coro).__name__ in _OF_GENERATORS


def _innermost(coro: Any) -> str:
    """The name of the function that a coroutine waits in."""
    name = ""
    while inspect.iscoroutine(coro):
        name, coro = coro.__name__, coro.cr_await
    return name


def _keep(coro: object) -> None:
    threading.Event().wait()


def _branch_of_new_task(here: Branch, coro: object) -> Branch:
    """The branch of a task made here; asyncio's own makings are looked at by their frame."""
    if type(here) is PlaceBranch:
        return here
    frame = sys._getframe(2)  # noqa: SLF001  # create_task's caller
    if frame.f_code.co_filename != _TASKS_FILE:
        return here.child()
    maker = _maker(frame)
    if maker is None:
        return here.child()
    if maker.f_code.co_name == "wait_for":
        return here
    return _branch_of_as_completed(here, maker, coro)


def _maker(frame: FrameType | None) -> FrameType | None:
    """The frame of ``wait_for`` or ``as_completed`` among asyncio's frames above us, if any."""
    while frame is not None and frame.f_code.co_filename == _TASKS_FILE:
        name = frame.f_code.co_name
        if name in ("wait_for", "as_completed"):
            return frame
        if name == "__init__" and "aws" in frame.f_locals:
            return frame
        frame = frame.f_back
    return None


def _branch_of_as_completed(here: Branch, maker: FrameType, coro: object) -> Branch:
    """Number by the position in the caller's list, not by the set that asyncio makes of it."""
    local = maker.f_locals
    given = local.get("fs", local.get("aws"))
    if not isinstance(given, (list, tuple)):
        raise TypeError(
            "asyncio.as_completed in a flow needs a list or tuple: "
            f"the order of a {type(given).__name__} is not the same on replay"
        )
    position = next((i for i, each in enumerate(given) if each is coro), None)
    if position is None:
        raise TypeError("asyncio.as_completed in a flow needs coroutines or tasks")
    new = len({id(each) for each in given if asyncio.iscoroutine(each)})
    return here.child(here.block(id(maker), size=len(given), uses=new) + position)


def _order(context: contextvars.Context) -> tuple[int, ...]:
    """Where a task's branch stands among all."""
    here = context.get(place)
    if not isinstance(here, Branch):
        return ()
    return tuple(map(int, here.id.partition("@")[0].split(".")))


def _begins_later(handle: Any, branch_id: str) -> bool:
    """The handle belongs to a sibling with a higher number: such a one was made out of order."""
    other = handle._context.get(place)  # noqa: SLF001
    if type(other) is not Branch:  # tasks in a place begin as they were made
        return False
    parent, _, number = other.id.rpartition(".")
    mine, _, my_number = branch_id.rpartition(".")
    return parent == mine and int(number) > int(my_number)


def _io(name: str) -> Callable[..., Any]:
    def refuse(self: FlowLoop, *args: Any, **kwargs: Any) -> Any:
        raise self.refuse(IoInFlow(f"loop.{name}()"))

    refuse.__name__ = name
    return refuse


# Whatever AbstractEventLoop has and FlowLoop does not define is I/O: refuse it by name.
for _name in dir(asyncio.AbstractEventLoop):
    if not _name.startswith("_") and _name not in FlowLoop.__dict__:
        setattr(FlowLoop, _name, _io(_name))
