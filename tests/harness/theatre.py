"""Apps on one store, in the test's own process: a clock moved by hand, deaths, people who post.

Every app has a door of its own to the shared data. Slamming it is what SIGKILL does: nothing of
that app is written any more, and the others see that its workers are dead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from outlive.app.app import App
from outlive.app.handle import Handle
from outlive.engine.inputs import encode_own
from outlive.errors import OutliveError, StoreFailed
from outlive.journal.lane import run_immediate
from outlive.journal.mail import write_letter
from outlive.journal.reader import read_events
from outlive.model.events import Event, QuestionAsked
from outlive.model.mail import Answer, Cancel, Letter, Signal
from outlive.model.run import Run, fold
from outlive.ports import Ports, SystemClock
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Reading
from outlive.testing.clock import START_MS, FakeClock
from outlive.testing.suite.entries import post_one

#: Leases that outlast any test; every wait leaves memory, or only the long ones do.
EVICTING = Settings(lease_seconds=80_000, poll_seconds=0.05, idle_seconds=0.0)
STAYING = Settings(lease_seconds=80_000, poll_seconds=0.05, idle_seconds=2.0)

#: In real time, with leases that end soon.
QUICK = Settings(lease_seconds=1.0, poll_seconds=0.02, idle_seconds=0.0)

PATIENCE_SECONDS = 60.0
#: A run, by its id or by a handle of it.
Named: TypeAlias = str | Handle[Any]


class Door:
    """A store as one process sees it: open, failing for a while, or slammed."""

    def __init__(self, store: Any) -> None:
        self.store, self.clock, self.threads = store, store.clock, store.threads
        self.watchable, self.transactions = store.watchable, store.transactions
        self.workers: set[str] = set()
        self.error: OutliveError | None = None
        #: By verb: an error that its next calls raise, one after the other.
        self.faults: dict[str, list[OutliveError]] = {}
        #: Called with the verb before each call.
        self.on_call: Callable[[str], None] = lambda verb: None

    async def close(self) -> None:
        """The others may still need it."""

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        if not hasattr(self.store, verb):
            raise AttributeError(f"the store has no {verb}")

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.enter(verb)
            if verb == "beat":
                self.workers.add(args[0])
            return await getattr(self.store, verb)(*args, **kwargs)

        return call

    def enter(self, verb: str) -> None:
        """Every call comes by here first."""
        self.on_call(verb)
        if self.error is not None:
            raise self.error
        if self.faults.get(verb):
            raise self.faults[verb].pop(0)

    def _refuse(self, worker: str) -> int:
        raise StoreFailed(f"the process is gone, and worker {worker} with it")

    def slam(self) -> None:
        """The process is gone."""
        self.error = StoreFailed("the process is gone")
        if isinstance(self.store, SQLiteStore):
            # A beat that is under way on its thread must not lock the file of a dead process.
            self.store._presence._enlist = self._refuse  # type: ignore[method-assign]
            self.store._presence.close()
        else:
            for worker in self.workers:
                self.store.kill(worker)


class Theatre:
    """Apps on one store, and the time they live in."""

    #: What stands between an app and the store.
    door: Callable[[Any], Door] = Door
    #: How far the clock goes on at each look, where nothing else is said.
    step = 0.05

    def __init__(
        self,
        settings: Settings = EVICTING,
        *,
        file: Path | None = None,
        store: MemoryStore | None = None,
        now_ms: float = START_MS,
        in_real_time: bool = False,
    ) -> None:
        """``in_real_time``: the clock is the machine's, and can't be moved."""
        self.settings = settings
        self.clock: Any = SystemClock()
        if in_real_time:
            self.step = 0.0
        else:
            self.clock = FakeClock(int(now_ms))
            self.clock.rule(asyncio.get_running_loop())
        self.ports = Ports(clock=self.clock)
        self._file = file
        #: The store as people see it.
        self.store: Any = store or self._new_store()
        if store is not None:
            store._clock = self.clock
        self.doors: dict[App, Any] = {}
        #: Moments of a process at which something is to happen: called by name.
        self.moments: dict[str, Callable[[], object]] = {}
        self._posted = 0

    def _new_store(self) -> Any:
        if self._file is None:
            return MemoryStore(ports=self.ports, lease_seconds=self.settings.lease_seconds)
        return SQLiteStore(self._file, ports=self.ports, lease_seconds=self.settings.lease_seconds)

    # processes

    def open(self, settings: Settings | None = None, *, drive: bool = True) -> App:
        """Another process on the same data."""
        door: Any = self.door(self.store if self._file is None else self._new_store())
        ports = Ports(clock=self.clock, failpoint=self._pass_by)
        app = App(door, ports=ports, settings=settings or self.settings, drive=drive)
        self.doors[app] = door
        return app

    def _pass_by(self, moment: str) -> None:
        if moment in self.moments:
            self.moments[moment]()

    def kill(self, app: App) -> None:
        """Nothing of this process is written from here on; what it does meanwhile is lost."""
        self.doors[app].slam()

    async def crash(self, app: App) -> None:
        """Kill this process, and wait until nothing of it is left."""
        self.kill(app)
        await app.aclose()

    async def close(self) -> None:
        """Every process ends."""
        for app, door in self.doors.items():
            await app.aclose()
            if door.store is not self.store:
                run_immediate(door.store.close())
        run_immediate(self.store.close())

    # time

    def pass_time(self, seconds: float) -> None:
        """Let the clock go on; whoever is alive beats."""
        self.clock.advance(seconds)
        for app, door in self.doors.items():
            try:
                if door.error is None:
                    self._beat(app)
            except OutliveError:
                if door.error is None:  # else it was slammed just now
                    raise

    def _beat(self, app: App) -> None:
        for workers in list(app._workers.own.values()):
            for worker in workers:
                if worker._pulse is not None:
                    worker._pulse.beat()  # type: ignore[attr-defined]

    async def until(self, condition: Callable[[], Any], step: float | None = None) -> Any:
        """Wait until it is true (maybe a coroutine's answer), the clock going on by steps."""
        step = self.step if step is None else step
        began = time.monotonic()
        while True:
            met = condition()
            met = await met if asyncio.iscoroutine(met) else met
            if met:
                return met
            assert time.monotonic() - began < PATIENCE_SECONDS, "it never came true"
            if step:
                self.pass_time(step)
            await breathe()

    async def outcome(self, handle: Handle[Any], step: float = 0.05) -> Any:
        """The outcome, time passing meanwhile."""
        waiting = asyncio.ensure_future(handle.outcome())
        try:
            await self.until(waiting.done, step)
        finally:
            waiting.cancel()
        return waiting.result()

    # looking

    async def read(self, run_id: str) -> Reading | None:
        """Everything about a run, as people see it."""
        reading: Reading | None = await self.store.read(run_id)
        return reading

    async def events(self, run: Named, *kinds: type[Any]) -> list[Any]:
        """The journal's events of these kinds (all, if none is named)."""
        reading = await self.read(_id(run))
        found: list[Event] = [] if reading is None else read_events(reading)
        return [event for event in found if not kinds or isinstance(event, kinds)]

    async def fold(self, run_id: str) -> Run:
        """Where the run stands by its journal."""
        return fold(await self.events(run_id))

    async def status(self, run: Named, *wanted: str, step: float | None = None) -> None:
        """Wait until the run has one of these statuses."""

        async def is_so() -> bool:
            reading = await self.read(_id(run))
            return reading is not None and reading.header.status in wanted

        await self.until(is_so, step)

    async def has(
        self, run_id: str, kind: type[Any], count: int = 1, step: float | None = None
    ) -> Any:
        """Wait until the journal has so many events of a kind; returns the last of them."""

        async def found() -> Any:
            events = await self.events(run_id, kind)
            return len(events) >= count and events[count - 1]

        return await self.until(found, step)

    async def asked(self, run_id: str, step: float | None = None) -> QuestionAsked:
        """Wait until the run has an open question."""

        async def found() -> Any:
            questions = (await self.fold(run_id)).questions
            return next(iter(questions.values()), None)

        question: QuestionAsked = await self.until(found, step)
        return question

    # people

    async def post(self, run_id: str, mail_id: str, letter: Letter) -> str:
        """Leave mail."""
        return await post_one(self.store, run_id, mail_id, write_letter(run_id, mail_id, letter))

    async def signal(self, run_id: str, name: str, value: object, id: str | None = None) -> str:
        """Send a signal."""
        self._posted += 1
        letter = Signal(name, encode_own(value))
        return await self.post(run_id, f"signal/{id or self._posted}", letter)

    async def answer(self, run_id: str, question: str, json: bytes, by: str = "ann") -> str:
        """Answer a question."""
        return await self.post(run_id, f"answer/{question}", Answer(question, json, by))

    async def cancel(self, run_id: str, by: str = "ann") -> str:
        """Ask a run to stop."""
        return await self.post(run_id, f"cancel/{by}", Cancel(by))


def _id(run: Named) -> str:
    return run if isinstance(run, str) else run.id


async def breathe() -> None:
    """Let loop and threads get on for a real moment, whatever the clock says."""
    await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.0003)
