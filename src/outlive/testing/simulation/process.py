"""A simulated process: the real worker, keeper and engine on a loop that can be stopped and killed.

Where a real process has threads (the journal keeper, the pulse, plain bodies) this one has tasks
and callbacks at seeded instants on its own loop. ``pause`` is SIGSTOP, ``crash`` is SIGKILL; a
*silent* crash is a machine that is cut off: nobody is told that its lock is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from outlive.engine.end import FlowEnd
from outlive.engine.place import RunStopped
from outlive.errors import OutliveError, StoreFailed
from outlive.journal.keeper import Answer, Keeper, Log, Loose
from outlive.journal.lane import run_immediate
from outlive.journal.retention.archive import StoreArchive
from outlive.journal.retention.sweep import Rules
from outlive.model.events import RunStarted
from outlive.ports import Ports, RemoteClock
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store, timed_by
from outlive.stores.types import Entry
from outlive.testing.simulation.faults import JUMP_MS, PROCESS_FAULTS, FaultKind, FaultPlan, skew_of
from outlive.testing.simulation.flows import tell_story
from outlive.testing.simulation.loop import Nature, SimClock, SimCrash, SimLoop, new_loop
from outlive.testing.simulation.store import SimStore
from outlive.testing.simulation.witness import Witness
from outlive.testing.simulation.world import ProcessContext, World, here
from outlive.worker.dependencies import Setting
from outlive.worker.entries import start_entry
from outlive.worker.heartbeat import BEATS_PER_LEASE, LeaseTime
from outlive.worker.repertoire import all_of
from outlive.worker.worker import Worker

if TYPE_CHECKING:  # what seals need not be installed
    from outlive.testing.simulation.store import SimSeal

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """The objects that all processes of a simulation share."""

    nature: Nature
    plan: FaultPlan
    disk: MemoryStore
    world: World
    witness: Witness
    open_line: Callable[[], SimStore]
    #: The seal of the store, if it has one.
    seal: SimSeal | None


class SimHost:
    """The engine's door to the loop of a simulated process."""

    def __init__(self, loop: SimLoop, nature: Nature, context: Context) -> None:
        self.loop = loop
        self.call_soon = loop.call_soon
        self.call_later = loop.call_later
        self.time = loop.time
        self._nature, self._context = nature, context
        self._heard_until = 0.0

    def call_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        # Another thread's word arrives a little later, but never before an earlier one.
        when = self._nature.now + self._nature.mostly_short(0.004)
        self._heard_until = max(self._heard_until, when)
        self.loop.call_at(self._heard_until, callback, *args, context=self._context)

    def create_task(
        self, work: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> asyncio.Task[Any]:
        return self.loop.create_task(work, context=context)

    def run_in_thread(self, context: Context, fn: Callable[[], Any]) -> asyncio.Future[Any]:
        future = self.loop.create_future()

        def work() -> None:
            try:
                end: Callable[[], None] = _setter(future.set_result, context.run(fn))
            except Exception as error:
                end = _setter(future.set_exception, error)
            self.loop.call_later(self._nature.mostly_short(1.0), _unless_done, future, end)

        self.loop.call_later(self._nature.mostly_short(0.5), work, context=self._context)
        return future


def _setter(verb: Callable[[Any], None], value: object) -> Callable[[], None]:
    return lambda: verb(value)


def _unless_done(future: asyncio.Future[Any], end: Callable[[], None]) -> None:
    if not future.done():
        end()


class SimKeeper(Keeper):
    """The real keeper, flushing at seeded instants and seen by a witness."""

    def __init__(self, store: Store, loop: SimLoop, nature: Nature, witness: Witness) -> None:
        super().__init__(store, self._rung)
        self._loop, self._nature, self._witness = loop, nature, witness
        self._is_rung = self._is_flushing = False
        self.context: Context

    def _rung(self) -> None:
        self._is_rung = True
        if not self._is_flushing:
            self._is_flushing = True
            delay = self._nature.mostly_short(0.006)
            self._loop.call_later(delay, self._begin, context=self.context)

    def _begin(self) -> None:
        self._loop.create_task(self._flush(), context=self.context)

    async def _flush(self) -> None:
        try:
            while self._is_rung:
                self._is_rung = False
                await self.flush_once()
        except Exception as error:
            self.end(StoreFailed(f"the journal keeper died: {error!r}"))
            raise
        self._is_flushing = False

    def _tell(self, batch: list[Entry], answers: Any, loose: list[Loose], logs: list[Log]) -> None:
        for entry, conflict in zip(batch, answers, strict=True):
            if conflict is None:
                self._witness.told(entry.run_id, entry.last)
        super()._tell(batch, answers, loose, logs)

    def queued(self) -> frozenset[str]:
        """The kinds of events that wait to be written."""
        kinds = set()
        for log in self._logs:
            for item in log.queue:
                kinds.add(type(getattr(item, "event", item)).__name__)
        return frozenset(kinds)


class SimPulse:
    """Beats from a task of its own."""

    def __init__(
        self, process: SimProcess, worker: str, failed: Callable[[OutliveError], None]
    ) -> None:
        self._process, self._worker, self._failed = process, worker, failed
        self._lease = process.lease
        self._period = self._lease.seconds / BEATS_PER_LEASE
        run_immediate(process.disk.beat(worker))
        self._lease.renewed(process.clock.monotonic())
        self._task = process.loop.create_task(self._main(), context=process.context)

    async def _main(self) -> None:
        while True:
            await asyncio.sleep(self._period)
            sent_at, jumps = self._process.clock.monotonic(), self._process.wall_jumps
            try:
                await self._process.store.beat(self._worker)
            except OutliveError as error:
                self._lease.revoke()
                self._failed(error)
                return
            self._lease.renewed(sent_at)
            if jumps == self._process.wall_jumps:
                self._process.check_clock(sent_at)

    def stop(self) -> None:
        self._task.cancel()


class SimProcess:
    """One process with one worker."""

    def __init__(self, name: str, surroundings: Surroundings) -> None:
        self.name = name
        self.world = surroundings.world
        self.disk = surroundings.disk
        self._around = surroundings
        nature = self._nature = surroundings.nature
        self.loop = new_loop(nature.timeline, name)
        skew = skew_of(nature.seed, name)
        self.clock = SimClock(nature, skew or 0)
        self.context = copy_context()
        self.context.run(here.set, self._as_bodies_see_it())
        self._line = surroundings.open_line()
        self._line.loop, self._line.strike = self.loop, self.strike
        if skew is not None:  # the server has a clock of its own, and says so when it is opened
            self._line.clock = RemoteClock(self.clock, "the server")
            self._line.clock.notice(SimClock(nature).now_ms(), nature.now)
            surroundings.witness.faults["skewed_clocks"] += 1
        seal = surroundings.seal
        self.store: Store = self._line if seal is None else seal.over(self._line)
        self.keeper = SimKeeper(self.store, self.loop, nature, surroundings.witness)
        self.keeper.context = self.context
        self.lease = LeaseTime(self.clock, surroundings.plan.lease_seconds)
        self._host = SimHost(self.loop, nature, self.context)
        self.worker = self._make_worker()
        self.is_leaving = False
        self.loop.call_soon(self.worker.start, context=self.context)

    def _as_bodies_see_it(self) -> ProcessContext:
        return ProcessContext(
            name=self.name, loop=self.loop, world=self.world, worker_id=lambda: self.worker.id
        )

    def _make_worker(self) -> Worker:
        plan, nature = self._around.plan, self._nature
        ports = Ports(clock=self.clock, entropy=nature.entropy, failpoint=self._failpoint)
        self._ports = ports = timed_by(self.store, ports)
        setting = Setting(
            store=self.store,
            keeper=self.keeper,
            lane=_lane,
            ports=ports,
            host=self._host,
            lease=self.lease,
            start_pulse=lambda worker, failed: SimPulse(self, worker, failed),
            idle_ms=plan.idle_ms,
            poll_seconds=plan.poll_seconds,
            retention=self._rules(),
        )
        return Worker(setting, all_of([tell_story]), everything=True)

    def _rules(self) -> Rules | None:
        plan, archive = self._around.plan, StoreArchive(self._around.witness.archive)
        if plan.retention is None:
            return None
        return Rules(retention=plan.retention, archive=archive, period_seconds=plan.retain_seconds)

    @property
    def wall_jumps(self) -> int:
        """How often the server's clock was set; there and back is twice."""
        return self._nature.wall_jumps

    def check_clock(self, sent_at: float) -> None:
        """Check that a process that was just told the server's time follows it closely."""
        if self._line.clock is None:
            return
        off = abs(self._ports.clock.now_ms() - SimClock(self._nature).now_ms())
        if off > (self._nature.now - sent_at) * 1000 + 2:
            self._around.witness.broken.append(f"{self.name} goes by a clock that is {off} ms off")
            self._around.witness.is_off = True

    # what clients ask of it

    def start_run(self, run_id: str, event: RunStarted, started: Callable[[bool], None]) -> None:
        """``outlive.start`` in this process."""

        async def start() -> None:
            is_new = await self.worker.start_run(run_id, event)
            started(is_new)
            if is_new and run_id in self.worker.driving:
                self.worker.watch(run_id).add_done_callback(partial(self._ended, run_id))

        self.loop.call_soon(lambda: self.loop.create_task(_quietly(start)), context=self.context)

    def submit_run(self, run_id: str, event: RunStarted, started: Callable[[bool], None]) -> None:
        """``outlive.submit`` in this process."""
        self.commit(start_entry(run_id, event), started)

    def commit(self, entry: Entry, told: Callable[[bool], None]) -> None:
        """An entry of somebody who does not drive the run: it is in, or it was refused."""

        def answer(said: Answer) -> None:
            if not isinstance(said, OutliveError):
                told(said is None)

        def submit() -> None:
            if self.keeper.failure is None:
                self.keeper.submit(Loose(entry, self._host, answer))

        self.loop.call_soon(submit, context=self.context)

    def _ended(self, run_id: str, watcher: asyncio.Future[FlowEnd | None]) -> None:
        if watcher.cancelled() or watcher.exception() is not None:
            return
        verdict = watcher.result()
        if verdict is not None:
            value = verdict.value if verdict.status == "completed" else None
            self._around.witness.outcome(run_id, (value, verdict.error))

    # faults

    @property
    def is_alive(self) -> bool:
        """It runs, or it will again after a pause."""
        return not self.loop.is_dead

    @property
    def is_failed(self) -> bool:
        """Its worker gave up; the process is about to exit."""
        return self.worker.failure is not None

    @property
    def is_serving(self) -> bool:
        """It takes what it is given."""
        return self.is_alive and not self.is_failed and not self.is_leaving

    def strike(self, fault: FaultKind) -> None:
        """Suffer a fault now."""
        if self.loop.is_dead:
            return
        in_air = self._line.in_air | self.keeper.queued()
        self._around.witness.strike(fault, in_air)
        match fault:
            case "crash":
                self.die(certain=True)
            case "silent_crash":
                self.die(certain=False)
            case "pause":
                self._pause()
            case "clock_jump":
                self._jump()
            case "lost_reply" | "slow_store" | "store_down":
                raise AssertionError(f"{fault} is the store's")

    def _pause(self) -> None:
        rng, lease = self._nature.rng, self._around.plan.lease_seconds
        seconds = rng.choice((0.3, 2.0, lease + 2.0, lease * 3)) * (0.5 + rng.random())
        self.loop.pause()
        self._nature.after(seconds, self.loop.resume)

    def _jump(self) -> None:
        rng = self._nature.rng
        by = rng.choice((-JUMP_MS, JUMP_MS, -7000, 7000))
        seconds = rng.uniform(2.0, 15.0)
        if rng.random() < 0.5:
            self.clock.offset_ms += by
            self._nature.after(seconds, self._set_clock_right)
        else:
            self._nature.set_wall(by)

    def _set_clock_right(self) -> None:
        self.clock.offset_ms = 0

    def _failpoint(self, moment: str) -> None:
        chance = 0.0 if self.world.calm else self._around.plan.misfortune
        if chance and self._nature.chance(chance):
            self.strike(self._nature.rng.choice(PROCESS_FAULTS))
            if self.loop.is_dead:
                raise SimCrash

    def leave(self) -> None:
        """Stop in good order, as a worker does that is told to; bodies may run on for a while."""

        async def stop() -> None:
            await self.worker.stop()
            seconds = self._nature.mostly_short(3.0)
            self._nature.after(seconds, lambda: self.die(certain=True))

        self.is_leaving = True
        self.loop.call_soon(lambda: self.loop.create_task(stop()), context=self.context)

    def die(self, *, certain: bool) -> None:
        """Everything of this process vanishes at once; what it sent may still arrive."""
        if self.loop.is_dead:
            return
        self.loop.is_dead = True
        if certain:
            self._line.settle_sent(lands=lambda: self._nature.chance(0.5))
            self.disk.kill(self.worker.id)
        self._nature.after(0.0, self.bury)

    def bury(self) -> None:
        """Close the frames of a dead process."""
        for drive in list(self.worker._drives.values()):  # noqa: SLF001  # the dead have no secrets
            drive.context.stopped = True
            drive.loop.kill(RunStopped)
        self.loop.bury()


async def _lane(work: Coroutine[Any, Any, T]) -> T:
    return await work


async def _quietly(call: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A client's call fails with its worker; the client tries elsewhere."""
    with suppress(OutliveError):
        await call()
