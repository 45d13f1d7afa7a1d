"""A stage for one run: a store in memory, a clock that is moved by hand, processes that die.

Every app has a door of its own to the shared store. Slamming it is what SIGKILL does: nothing of
that app is written any more, and the others see that its workers are dead.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from outlive.app import App
from outlive.engine.definitions import Flow
from outlive.errors import OutliveError, StoreFailed
from outlive.handle import Handle
from outlive.model.events import Event
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.store import Conflict, Entry
from outlive.stores.memory import MemoryStore
from outlive.testing.clock import FakeClock
from tests.order.journals import drive_on

#: Leases that outlast any test, and every wait leaves memory (or none does).
EVICTING = Settings(lease_seconds=80_000, poll_seconds=0.05, idle_seconds=0.0)
STAYING = Settings(lease_seconds=80_000, poll_seconds=0.05, idle_seconds=80_000)

PATIENCE_SECONDS = 20.0


class Door:
    """A store as one process sees it: counted, held up, broken or slammed."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.batches: list[Sequence[Entry]] = []
        self.workers: set[str] = set()
        self.error: OutliveError | None = None
        #: Cleared: commits hang until it is set again.
        self.open = threading.Event()
        self.open.set()

    async def commit(self, batch: Sequence[Entry]) -> Sequence[Conflict | None]:
        self.open.wait(PATIENCE_SECONDS)
        self._check()
        self.batches.append(batch)
        answers: Sequence[Conflict | None] = await self.store.commit(batch)
        return answers

    async def beat(self, worker: str) -> int:
        self._check()
        self.workers.add(worker)
        told: int = await self.store.beat(worker)
        return told

    async def close(self) -> None:
        """The others still need it."""

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        if not hasattr(self.store, verb) or verb == "commit_at_once":  # it may hang
            raise AttributeError(f"the store has no {verb}")

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._check()
            return await getattr(self.store, verb)(*args, **kwargs)

        return call

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def slam(self) -> None:
        """The process is gone."""
        self.error = StoreFailed("the process is gone")
        self.open.set()
        for worker in self.workers:
            self.store.kill(worker)


class Scene:
    """Apps on one store, and the time they live in."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.clock.rule(asyncio.get_running_loop())
        self.ports = Ports(clock=self.clock)
        self.store = MemoryStore(ports=self.ports, lease_seconds=80_000)
        self.doors: dict[App, Door] = {}
        #: Moments at which something is to happen: called by name.
        self.moments: dict[str, Callable[[], None]] = {}

    def open(self, settings: Settings = STAYING) -> App:
        """Another process on the same store."""
        door = Door(self.store)
        ports = Ports(clock=self.clock, failpoint=self._moment)
        app = App(door, ports=ports, settings=settings)
        self.doors[app] = door
        return app

    def _moment(self, name: str) -> None:
        self.moments.get(name, int)()

    def crash(self, app: App) -> None:
        """Kill this process: nothing of it is written from here on."""
        self.doors[app].slam()

    async def close(self) -> None:
        """Every process ends."""
        for app, door in self.doors.items():
            door.open.set()
            await app.aclose()

    async def run(self, flow: Flow[Any, Any], *args: Any, id: str = "r") -> Any:
        """Start a run in a process of its own and let time pass until it is over."""
        handle = await self.open().start(flow, *args, id=id)
        return await self.outcome(handle)

    async def outcome(self, handle: Handle, step: float = 0.05) -> Any:
        """The outcome, time passing meanwhile."""
        waiting = asyncio.ensure_future(handle.outcome())
        await self.until(waiting.done, step)
        return waiting.result()

    async def until(self, condition: Callable[[], Any], step: float = 0.0) -> None:
        """Wait for a condition (maybe a coroutine's), while the fake clock goes on by steps."""
        began = time.monotonic()
        while True:
            met = condition()
            if await met if asyncio.iscoroutine(met) else met:
                return
            assert time.monotonic() - began < PATIENCE_SECONDS, "it never came true"
            if step:
                self.pass_time(step)
            await breathe()

    def pass_time(self, seconds: float) -> None:
        """Let the clock go on; whoever is alive beats."""
        self.clock.advance(seconds)
        for app, door in self.doors.items():
            if door.error is None:
                for worker in (each for workers in app._workers.values() for each in workers):
                    if worker._pulse is not None:
                        worker._pulse.beat()

    async def status(self, handle: Handle, wanted: str, step: float = 0.0) -> None:
        """Wait until the run has this status."""

        async def is_so() -> bool:
            return await handle.status() == wanted

        await self.until(is_so, step)

    async def events(self, handle: Handle, *kinds: type[Any]) -> list[Any]:
        """The journal's events of these kinds (all, if none is named)."""
        found: list[Event] = await handle.read()
        return [event for event in found if not kinds or isinstance(event, kinds)]


async def breathe() -> None:
    """Let loop and threads get on for a real moment, whatever the fake clock says."""
    await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.0005)


async def live_and_replayed(scene: Scene, flow: Flow[[], Any]) -> list[Any]:
    """What a flow returns when it runs, and what it returns when it is replayed."""
    handle = await scene.open().start(flow, id="r")
    live = await scene.outcome(handle)
    replayed = await drive_on((await handle.read())[:-1], flow, run_id="r")
    return [live, replayed.outcome[1]]
