"""From plain code to an event loop: block until a coroutine ends, on a loop made for it."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from weakref import WeakSet

from outlive.errors import AppClosed, UsageError
from outlive.settings import Settings

T = TypeVar("T")
logger = logging.getLogger("outlive")

#: A wait for bodies at the end of a process is told when it has lasted so long.
UNTOLD_SECONDS = 0.5

#: A signal that another thread received is heard this late.
HEAR_SECONDS = 1.0


class Interrupts:
    """Ctrl-C in plain code: while this is held it is noted, and raised where nothing is half done.

    Between any two lines it could leave a lock locked, and Python drops it in the callback of a
    weak reference and at the end of a script. A second Ctrl-C is raised wherever it finds us.
    """

    def __init__(self) -> None:
        self._is_noted = False
        #: Ends what the main thread waits for.
        self._wake: Callable[[], object] | None = None
        self._is_exiting = self._came_at_exit = False
        self._pid = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Note a Ctrl-C that comes here, and raise it at the end of this at the latest."""
        is_first = self._take()
        try:
            yield
        except asyncio.CancelledError:
            self.check()
            raise
        finally:
            if is_first and signal.getsignal(signal.SIGINT) == self._note:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            self.check()

    def _take(self) -> bool:
        """Whether SIGINT is ours from now on; a handler that somebody else has set stays."""
        if not _is_main() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return False
        self._pid = os.getpid()
        signal.signal(signal.SIGINT, self._note)
        return True

    def _note(self, *_: object) -> None:
        self._came_at_exit = self._is_exiting
        is_idle = self._is_exiting and self._wake is None
        if self._is_noted or is_idle or self._pid != os.getpid():  # a fork has its own Ctrl-C
            raise KeyboardInterrupt
        self._is_noted = True
        if self._wake is not None:
            self._wake()

    def check(self) -> None:
        """Raise what was noted."""
        if self._is_noted and _is_main():
            self._is_noted = False
            raise KeyboardInterrupt from None

    @contextmanager
    def waking(self, wake: Callable[[], object]) -> Iterator[None]:
        """Call this at a Ctrl-C that comes here, or has come."""
        outer, self._wake = self._wake, wake
        try:
            if self._is_noted:
                wake()
            yield
        finally:
            self._wake = outer

    def wait(self, future: Future[Any]) -> None:
        """Block until it is done; in the main thread, until a Ctrl-C, which is raised."""
        done = threading.Lock()
        done.acquire()

        def wake(*_: object) -> None:
            with suppress(RuntimeError):  # twice is fine
                done.release()

        future.add_done_callback(wake)
        if not _is_main():
            done.acquire()
            return
        with self.waking(wake):
            while not done.acquire(timeout=HEAR_SECONDS):
                pass
        self.check()

    def exit(self) -> None:
        """The script is over: from now on Python would drop a Ctrl-C."""
        self._is_exiting = self._take() or self._is_exiting

    def die(self) -> None:
        """End the process as a Ctrl-C does that came while it was ending."""
        if self._came_at_exit:
            sys.stdout.flush()
            sys.stderr.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)


interrupts = Interrupts()


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def run_blocking(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function from plain code until it ends; in a notebook, on another thread."""
    check_may_block("run()")

    async def cancellable() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "a coroutine is run by a task"
        with interrupts.waking(partial(loop.call_soon_threadsafe, task.cancel)):
            return await main()

    with interrupts.held():
        coroutine = cancellable() if _is_main() else main()
        if not _has_loop():  # outside of any `except`: what is raised within has no context of ours
            return run_loop(coroutine)
        with ThreadPoolExecutor(1) as beside:
            return beside.submit(run_loop, coroutine).result()


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new loop: uvloop's if it is installed and the settings allow it."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if Settings.from_environment().loop != "asyncio":
        with suppress(ImportError):
            factory = import_module("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


#: The ids of steps whose bodies run; of each, whether it is an effect.
UnderWay: TypeAlias = Sequence[tuple[str, bool]]
#: Steps that are named where many were under way.
NAMED_MAX = 3


def interrupted(
    run_id: str | None, module: str, under_way: UnderWay, *, is_over: bool
) -> KeyboardInterrupt:
    """What Ctrl-C raises out of ``run()``: the state of the run, and how to continue it."""
    if run_id is None:
        return KeyboardInterrupt(
            "stopped while a run was being started; with the same id it is started once, however "
            "often it is asked for"
        )
    if is_over:
        return KeyboardInterrupt(
            f"run {run_id} had ended before it could be stopped; `outlive show {run_id}` shows it, "
            f"and this program gets its outcome if it asks for id={run_id!r} again"
        )
    if module == "__main__":
        module = Path(getattr(sys.modules[module], "__file__", None) or "MODULE").stem
    again = shlex.join(["outlive", "resume", run_id, module])
    return KeyboardInterrupt(
        f"run {run_id} was stopped and is safe: what was recorded is kept, {fate_of(under_way)}. "
        f"`{again}` goes on with it, and so does this program if it asks for id={run_id!r} again"
    )


def named(steps: Sequence[str]) -> str:
    """The ids of steps, or of the first ones."""
    return ", ".join(steps[:NAMED_MAX]) + (", …" if len(steps) > NAMED_MAX else "")


def fate_of(under_way: UnderWay) -> str:
    """What becomes of the steps that a Ctrl-C interrupted."""
    said = []
    for kind, fate in (("step", "repeated"), ("effect", "settled")):
        ids = [each for each, is_effect in under_way if is_effect == (kind == "effect")]
        if len(ids) > 1:
            said.append(f"{len(ids)} {kind}s that were under way ({named(ids)}) are {fate}")
        elif ids:
            said.append(f"{kind} {ids[0]}, which was under way, is {fate}")
    return " and ".join(said) or "no step was cut off"


def check_may_block(name: str) -> None:
    """Refuse to block a running loop; a notebook's loop may be blocked, as by any cell."""
    if _has_loop() and "ipykernel" not in sys.modules:
        raise UsageError(
            f"a loop is running here, which {name} would block; "
            "use `await outlive.start(...)` instead of run(), and `import outlive` for the rest"
        )


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class AtExit:
    """Closes apps that a script left open, while the threads that closing needs still exist."""

    def __init__(self) -> None:
        self._open: WeakSet[Any] = WeakSet()
        self._bodies: WeakSet[threading.Thread] = WeakSet()
        self._is_watching = False

    def leave(self, bodies: Iterable[threading.Thread]) -> None:
        """Nobody waits for the bodies in these threads any more, but for the end of the process."""
        self._bodies.update(bodies)

    def watch(self, app: Any) -> None:
        """Close this app at the end of the process, if it still exists."""
        self._open.add(app)
        self.arm()

    def arm(self) -> None:
        """Hear a Ctrl-C at the end of the process, and tell what the process waits for then."""
        if not self._is_watching:
            self._is_watching = True
            atexit.register(interrupts.die)
            # atexit runs too late: executors refuse all work by then.
            register: Any = getattr(threading, "_register_atexit", atexit.register)
            with suppress(RuntimeError):  # the process is ending already
                register(self._close_all)

    def forget(self, app: Any) -> None:
        """It is closed."""
        self._open.discard(app)

    def _close_all(self) -> None:
        interrupts.exit()
        for app in list(self._open):
            with suppress(KeyboardInterrupt):  # the process dies of it once all are closed
                app.close()
        bodies = [each for each in self._bodies if each.is_alive()]
        for thread in bodies:
            thread.join(UNTOLD_SECONDS / len(bodies))
        if left := sum(thread.is_alive() for thread in bodies):
            logger.warning(
                "bodies of steps still run in threads (%d), and Python waits until they end; "
                "Ctrl-C ends the process at once",
                left,
            )


at_exit = AtExit()


class LoopThread:
    """An event loop in its own thread, for plain code."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pid = os.getpid()
        self._opening = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._over: asyncio.Event | None = None
        self.is_closed = False

    def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await this on the loop's thread, and block here until it ends."""

        async def main() -> T:
            return await work()

        with interrupts.held():
            loop = self._open()
            future: Future[T] = asyncio.run_coroutine_threadsafe(main(), loop)
            try:
                interrupts.wait(future)
                return future.result()
            finally:
                # After a Ctrl-C here nobody waits for it any more: stop it on the loop, too.
                future.cancel()

    def _open(self) -> asyncio.AbstractEventLoop:
        with self._opening:
            if self.is_closed or self._pid != os.getpid():
                raise AppClosed("the app was closed, or this process forked; open another")
            if self._loop is None:
                self._loop = self._begin()
            return self._loop

    def _begin(self) -> asyncio.AbstractEventLoop:
        opened: Future[asyncio.AbstractEventLoop] = Future()

        async def main() -> None:
            self._over = asyncio.Event()
            opened.set_result(asyncio.get_running_loop())
            await self._over.wait()

        # A daemon: a script that ends without closing its app must not hang.
        self._thread = threading.Thread(
            target=asyncio.run, args=(main(),), name=self._name, daemon=True
        )
        self._thread.start()
        return opened.result()

    @property
    def is_running(self) -> bool:
        """Whether it was started in this process and is not closed."""
        return self._loop is not None and self._pid == os.getpid()

    def close(self) -> None:
        """End the loop and its thread. Closing twice is allowed."""
        if self._pid != os.getpid():
            return  # after os.fork: the thread exists only in the parent process
        with interrupts.held():
            with self._opening:
                self.is_closed = True
                loop, thread, over = self._loop, self._thread, self._over
                self._loop = None
            if loop is not None and thread is not None and over is not None:
                loop.call_soon_threadsafe(over.set)
                thread.join()
