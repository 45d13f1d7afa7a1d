"""One effect on a bench: the real runner and settler, and everything around them by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from types import SimpleNamespace
from typing import Any, cast

from outlive.engine.context import Env
from outlive.engine.definitions import Effect
from outlive.engine.effects import EffectRunner
from outlive.engine.ops import Op
from outlive.journal.redaction import Hider
from outlive.model.events import Event
from outlive.model.run import OpenEffect
from outlive.ports import Ports
from outlive.testing.clock import FakeClock


class Timer:
    """A callback that the test calls, or not."""

    def __init__(self, seconds: float, callback: Callable[[], object]) -> None:
        self.seconds, self.fire = seconds, callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Bench:
    """The drive, host and lease of one effect."""

    def __init__(self, effect: Any, known: OpenEffect | None = None) -> None:
        self.clock = FakeClock()
        self.run_id, self.started_at = "r", self.clock.now_ms()
        self.run = SimpleNamespace(start=SimpleNamespace(flow="f"))
        self.stopped = self.lapsed = self.draining = False
        self.hider = Hider()
        self.failure = None
        self.lapses = 0
        self.outlet = None
        self.events: list[Event] = []
        self.timers: list[Timer] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.waiting_bodies: list[Coroutine[Any, Any, Any]] = []
        self.rests = 0
        self.env = Env(
            host=cast(Any, self),
            keeper=cast(Any, self),
            ports=Ports(clock=self.clock, entropy=bytes),
            lease=cast(Any, self),
            peer=cast(Any, self),
            kin=cast(Any, self),
            worker="w",
        )
        definition = cast(Effect[..., Any], effect).definition
        self.op = Op("0/pay#1", definition, {}, definition.encode_args({}))
        self.op.context = copy_context()
        self.op.user_key = definition.key_for({})
        self.runner = EffectRunner(cast(Any, self))
        self.known = known
        self.log = self

    def start(self) -> None:
        self.runner.start(self.op, self.known)

    # the drive

    def used(self, inside: Any) -> None:
        """No model."""

    def shelf(self) -> Any:
        raise NotImplementedError("nothing here makes blobs")

    def at(self) -> int:
        return self.clock.now_ms() - self.started_at

    @property
    def seq(self) -> int:
        return len(self.events)

    def note(self, event: Event, mail_id: str | None = None) -> None:
        self.events.append(event)

    record = note

    def when_durable(self, callback: Callable[..., None], *args: Any) -> None:
        callback(*args)

    def rest(self) -> None:
        self.rests += 1

    # the lease

    def holds(self, since: int) -> bool:
        return not self.lapsed and since == self.lapses

    # the keeper

    def submit(self, loose: Any) -> None:
        self.claim = loose

    # the host

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(seconds, lambda: callback(*args))
        self.timers.append(timer)
        return timer

    def time(self) -> float:
        return self.clock.monotonic()

    def create_task(
        self, work: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, context=context)
        self.tasks.append(task)
        return task

    async def turn(self) -> None:
        """Let what was created run."""
        tasks, self.tasks = self.tasks, []
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]
