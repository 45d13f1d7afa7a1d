"""Virtual time: many event loops, one timeline, no waiting.

Every simulated process has an event loop of its own. All that any of them has to do stands in one
heap, ordered by virtual time and then by the order in which it was asked for, so that a seed
decides everything. A loop can be *paused* (what falls due is held back and delivered late, in
order, as after SIGSTOP) or *dead* (what falls due is dropped, as after SIGKILL).
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any


class OutOfTime(Exception):
    """The simulation did not come to its end within its bounds."""


class Timeline:
    """Virtual seconds, and everything that is still to happen."""

    def __init__(self) -> None:
        self.now = 0.0
        self.handles = 0
        self._heap: list[tuple[float, int, SimLoop, asyncio.Handle]] = []
        self._asked = 0

    def add(self, when: float, loop: SimLoop, handle: asyncio.Handle) -> None:
        """Run this handle at that time, or now if that is over."""
        self._asked += 1
        heapq.heappush(self._heap, (max(when, self.now), self._asked, loop, handle))

    def run(self, is_over: Callable[[], bool], *, seconds_max: float, handles_max: int) -> None:
        """Let time pass until it is over.

        Raises:
            OutOfTime: nothing is left to do, or a bound was reached, and it is not over.
        """
        before = asyncio._get_running_loop()  # noqa: SLF001  # as every loop does
        try:
            while not is_over():
                if not self._heap or self.now > seconds_max or self.handles > handles_max:
                    raise OutOfTime(f"not over at {self.now:.1f} s, {self.handles} callbacks")
                self._run_next()
        finally:
            asyncio._set_running_loop(before)  # noqa: SLF001

    def _run_next(self) -> None:
        when, _, loop, handle = heapq.heappop(self._heap)
        if loop.is_dead or handle.cancelled():
            return
        if when > self.now:
            self.now = when
        if loop.held is not None:
            loop.held.append(handle)
            return
        self.handles += 1
        asyncio._set_running_loop(loop)  # noqa: SLF001
        handle._run()  # noqa: SLF001


class SimLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process."""

    def __init__(self, timeline: Timeline, name: str) -> None:
        self.timeline = timeline
        self.name = name
        self.is_dead = False
        #: Callbacks that fell due during a pause; None while the loop runs.
        self.held: list[asyncio.Handle] | None = None
        #: Errors that no code took care of.
        self.errors: list[str] = []
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._made = 0

    # what asyncio asks of a loop

    def time(self) -> float:
        return self.timeline.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return False

    def get_task_factory(self) -> None:
        return None

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def call_soon(  # type: ignore[override]  # looser types: asyncio's own are not checked here
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.timeline.add(self.timeline.now, self, handle)
        return handle

    def call_later(  # type: ignore[override]  # as above
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.timeline.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.timeline.add(when, self, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to do: a cancelled handle is passed over."""

    def create_task(  # type: ignore[override]  # as above
        self, coro: Coroutine[Any, Any, Any], *, name: Any = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        # The name must not come from asyncio's own counter, which is the whole interpreter's.
        self._made += 1
        name = name or f"{self.name}-{self._made}"
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self.tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_dead:
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    default_exception_handler = call_exception_handler

    # faults

    def pause(self) -> None:
        """Hold back whatever falls due."""
        if self.held is None:
            self.held = []

    def resume(self) -> None:
        """Deliver what was held back, in its order."""
        held, self.held = self.held, None
        for handle in held or ():
            self.timeline.add(self.timeline.now, self, handle)

    def bury(self) -> None:
        """The process is dead: close its frames, so that the collector finds nothing of it."""
        tasks, self.tasks = list(self.tasks), {}
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
            if not task.done():
                _close(task.get_coro())


def _close(coro: Any) -> None:
    for _ in range(8):
        try:
            coro.close()
        except RuntimeError:
            continue
        except BaseException:  # whatever a dead process still says is nobody's business
            pass
        return


def new_loop(timeline: Timeline, name: str) -> SimLoop:
    """A loop; what it does not define is I/O, which nothing simulated may ask for."""
    return SimLoop(timeline, name)  # type: ignore[abstract]  # the rest raises NotImplementedError


#: The wall clock's time when a simulation begins (ms since 1970).
BEGINNING_MS = 1_700_000_000_000


class SimCrash(BaseException):
    """The process that runs this code died just now."""


class Nature:
    """Time and chance of one simulation, and a loop that no fault ever touches."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.timeline = Timeline()
        self.loop = new_loop(self.timeline, "nature")
        self.rng = random.Random(f"outlive {seed}")
        #: The offset of every wall clock from virtual time.
        self.wall_ms = 0
        self.wall_jumps = 0

    def set_wall(self, by_ms: int) -> None:
        """Set every wall clock forward, or back."""
        self.wall_ms += by_ms
        self.wall_jumps += 1

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.timeline.now

    def entropy(self, size: int) -> bytes:
        """The random bytes of everybody."""
        return self.rng.randbytes(size)

    def after(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        """Let something happen, whatever becomes of the processes."""
        self.loop.call_later(seconds, callback, *args)

    def mostly_short(self, seconds_max: float) -> float:
        """A duration: often short, at times as long as it may be."""
        drawn: float = self.rng.random()
        return seconds_max * drawn * drawn * drawn

    def chance(self, share: float) -> bool:
        """True in this share of all cases."""
        drawn: float = self.rng.random()
        return drawn < share


class SimClock:
    """The clock of one process: its wall clock may jump, its monotonic time never does."""

    def __init__(self, nature: Nature, skew_ms: int = 0) -> None:
        self._nature = nature
        self.skew_ms = skew_ms
        #: The temporary offset of this process's wall clock from the others.
        self.offset_ms = 0

    def now_ms(self) -> int:
        nature = self._nature
        here_ms = nature.wall_ms + self.skew_ms + self.offset_ms
        return BEGINNING_MS + int(nature.timeline.now * 1000) + here_ms

    def monotonic(self) -> float:
        return self._nature.timeline.now
