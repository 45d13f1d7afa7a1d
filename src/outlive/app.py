"""The composition root: the only place that knows all parts and puts them together."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

from outlive.blocking import run_blocking
from outlive.engine.definitions import Flow
from outlive.engine.host import LoopHost
from outlive.engine.starting import start_event
from outlive.errors import (
    AppClosed,
    FlowNotRegistered,
    OutliveError,
    RunIdTaken,
    RunNotFound,
    StepNotInDoubt,
    StoreUnavailable,
    UsageError,
)
from outlive.handle import Handle
from outlive.journal.keeper import Answer, Loose, ThreadKeeper, run_immediate
from outlive.journal.lane import ThreadLane
from outlive.journal.reader import read_events
from outlive.model.events import RunStarted
from outlive.model.ids import check_run_id, is_key_journal
from outlive.model.mail import Nudge, Verdict, encode_letter
from outlive.model.run import fold
from outlive.ports import Ports
from outlive.resolving import check_over, resolve_letter
from outlive.settings import Settings
from outlive.starting import check_same_run
from outlive.store import Health, Page, Query, Reading, Store
from outlive.stores.open import is_there, open_store
from outlive.worker.claims import start_entry
from outlive.worker.pulse import LeaseTime, ThreadPulse
from outlive.worker.worker import Setting, Worker

T = TypeVar("T")

BODY_THREADS = 64


class App:
    """Outlive on one store. Use it as a context manager, async where a loop runs."""

    def __init__(
        self,
        store: Store,
        *,
        ports: Ports | None = None,
        settings: Settings | None = None,
        drive: bool = True,
    ) -> None:
        self.store = store
        self._ports = ports or Ports()
        self._settings = settings or Settings.from_environment()
        self._drives = drive
        self._pid = os.getpid()
        self._closed = False
        self._lane = ThreadLane()
        self._writer = ThreadKeeper(store)
        self._bodies = ThreadPoolExecutor(BODY_THREADS, thread_name_prefix="outlive-body")
        self._workers: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Worker]] = (
            WeakKeyDictionary()
        )

    # verbs

    async def start(
        self,
        flow: Flow[..., Coroutine[Any, Any, T]],
        *args: Any,
        id: str | None = None,
        **kwargs: Any,
    ) -> Handle[T]:
        """Start a run here, or go on with the one of that id; durable when this returns."""
        flow, run_id, bound = self._asked(flow, args, kwargs, id)
        worker = self._own_worker()
        worker.learn(flow)
        now = self._ports.clock.now_ms()
        event = start_event(flow, run_id, bound, seed=self._ports.entropy(16), now=now)
        # Shielded: a run that has begun is driven, whether or not its caller still waits.
        if not await asyncio.shield(worker.start_run(run_id, event)):
            await self._check_same(flow, run_id, event)
            worker.want(run_id)
        return self._handle(run_id, flow, worker)

    def _asked(
        self, flow: Flow[Any, Any], args: Any, kwargs: Any, run_id: str | None
    ) -> tuple[Flow[Any, Any], str, dict[str, Any]]:
        if not isinstance(flow, Flow):
            raise UsageError(f"{flow!r} is not a flow; decorate it with @outlive.flow")
        self._check_open()
        given = run_id if run_id is not None else flow.preset.id
        name = check_run_id(self._ports.entropy(8).hex() if given is None else given)
        return flow, name, flow.bind(*args, **kwargs)

    async def _check_same(self, flow: Flow[Any, Any], run_id: str, asked: RunStarted) -> None:
        reading = await self._lane(self.store.read(run_id))
        if reading is None:
            raise RunIdTaken(run_id, "it belonged to a run that was deleted not long ago")
        check_same_run(flow, run_id, asked, fold(read_events(reading)).start)
        header = reading.header
        if header.status == "quarantined" or (header.reason and header.ended_at is None):
            await self.nudge(run_id, "started again")

    async def nudge(self, run_id: str, why: str) -> None:
        """Make a run due now."""
        letter = encode_letter(Nudge(why))
        answer = await self._lane(
            self.store.post(run_id, f"nudge/{self._ports.entropy(8).hex()}", letter)
        )
        if answer == "unknown":
            raise RunNotFound(run_id)

    async def submit(
        self,
        flow: Flow[..., Coroutine[Any, Any, T]],
        *args: Any,
        id: str | None = None,
        **kwargs: Any,
    ) -> Handle[T]:
        """Start a run that a worker elsewhere will drive; durable when this returns."""
        flow, run_id, bound = self._asked(flow, args, kwargs, id)
        now = self._ports.clock.now_ms()
        event = start_event(flow, run_id, bound, seed=self._ports.entropy(16), now=now)
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        host = LoopHost(asyncio.get_running_loop(), self._bodies)
        self._writer.keeper.submit(Loose(start_entry(run_id, event), host, answered.set_result))
        answer = await answered
        if isinstance(answer, OutliveError):
            raise answer
        if answer is not None:
            await self._check_same(flow, run_id, event)
        return self._handle(run_id, flow, None)

    async def resolve(
        self, run_id: str, step: str, verdict: Verdict, value: bytes = b"null"
    ) -> None:
        """Settle an effect in doubt by a human's word; ``value`` is JSON."""
        reading = await self._lane(self.store.read(check_run_id(run_id)))
        if reading is None:
            raise RunNotFound(run_id)
        events = read_events(reading)
        mail_id, letter = resolve_letter(reading, events, step, verdict, value)
        if verdict == "not_happened":
            check_over(fold(events).effects[step], self._ports.clock.now_ms())
        answer = await self._lane(self.store.post(run_id, mail_id, encode_letter(letter)))
        if answer != "posted":
            raise StepNotInDoubt(f"effect {step} of run {run_id} was answered before ({answer})")

    async def get(self, run_id: str, flow: Flow[Any, Any] | None = None) -> Handle[Any]:
        """The handle of a run that there is."""
        self._check_open()
        if await self._lane(self.store.read(check_run_id(run_id), 1 << 62)) is None:
            raise RunNotFound(run_id)
        return self._handle(run_id, flow, None)

    async def find(
        self,
        *,
        status: str | None = None,
        flow: str | None = None,
        tag: tuple[str, str] | None = None,
        limit: int = 100,
        after: str | None = None,
        keys: bool = False,
    ) -> Page:
        """A page of runs, in the order in which they were started; ``keys`` have journals, too."""
        self._check_open()
        query = Query(status=status, flow=flow, tag=tag)
        page = await self._lane(self.store.find(query, after, limit))
        found = [each for each in page.items if keys or not is_key_journal(each.head.run_id)]
        return Page(items=found, next=page.next)

    async def read(self, journal: str, after: int = 0) -> Reading:
        """A run's or a key's journal as it is stored: nothing of it is verified yet."""
        self._check_open()
        check_run_id(f"~{journal}" if is_key_journal(journal) else journal)
        reading = await self._lane(self.store.read(journal, after))
        if reading is None:
            raise RunNotFound(journal)
        return reading

    async def health(self) -> Health:
        """What the store says of itself, its file looked through."""
        self._check_open()
        return await self._lane(self.store.health())

    async def resume(self, run_id: str, flows: Iterable[Flow[Any, Any]] = ()) -> Handle[Any]:
        """Drive a run that there is, here, at once unless it sleeps or somebody drives it."""
        reading = await self.read(check_run_id(run_id))
        start = fold(read_events(reading)).start
        known = {flow.name: flow for flow in flows}
        if reading.header.ended_at is not None:
            return self._handle(run_id, known.get(start.flow), None)
        if start.flow not in known:
            raise FlowNotRegistered(start.flow, list(known))
        flow = known[start.flow]
        check_same_run(flow, run_id, start, start)
        worker = self._own_worker()
        worker.learn(flow)
        if reading.header.wake_at is None or reading.header.reason:
            await self.nudge(run_id, "resumed")
        worker.want(run_id)
        return self._handle(run_id, flow, worker)

    def run(
        self,
        flow: Flow[..., Coroutine[Any, Any, T]],
        *args: Any,
        id: str | None = None,
        **kwargs: Any,
    ) -> T:
        """Blocking: start or go on, and return the outcome."""

        async def main() -> T:
            try:
                return await (await self.start(flow, *args, id=id, **kwargs)).outcome()
            finally:
                await self._stop_workers()

        return run_blocking(main)

    @asynccontextmanager
    async def worker(self, flows: Iterable[Flow[Any, Any]], concurrency: int = 100) -> Any:
        """Drive whatever runs of these flows may be driven, as long as this is open."""
        self._check_open()
        worker = self._new_worker(flows, everything=True, concurrency=concurrency)
        worker.start()
        try:
            yield worker
        finally:
            await worker.stop()

    # parts

    def _handle(
        self, run_id: str, flow: Flow[Any, Any] | None, worker: Worker | None
    ) -> Handle[Any]:
        return Handle(run_id, self.store, self._lane, flow=flow, worker=worker)

    def _own_worker(self) -> Worker:
        """The worker that drives what was started on this loop."""
        workers = self._workers.setdefault(asyncio.get_running_loop(), [])
        for worker in workers:
            if worker.failure is not None:
                raise worker.failure
            return worker
        if not self._drives:
            raise UsageError("this app does not drive (drive=False); use submit()")
        worker = self._new_worker((), everything=False, concurrency=sys.maxsize)
        worker.start()
        workers.append(worker)
        return worker

    def _new_worker(
        self, flows: Iterable[Flow[Any, Any]], *, everything: bool, concurrency: int
    ) -> Worker:
        clock = self._ports.clock
        lease = LeaseTime(clock, self._settings.lease_seconds)

        def start_pulse(worker: str, failed: Callable[[OutliveError], None]) -> ThreadPulse:
            return ThreadPulse(self.store, worker, lease, clock, failed)

        setting = Setting(
            store=self.store,
            keeper=self._writer.keeper,
            lane=self._lane,
            ports=self._ports,
            host=LoopHost(asyncio.get_running_loop(), self._bodies),
            lease=lease,
            start_pulse=start_pulse,
            idle_ms=self._settings.idle_ms,
            poll_seconds=self._settings.poll_seconds,
        )
        return Worker(setting, flows, everything=everything, concurrency=concurrency)

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise AppClosed("this process was forked; open an app of its own")
        if self._closed:
            raise AppClosed("the app was closed; open another")

    # ends

    async def _stop_workers(self) -> None:
        for worker in self._workers.pop(asyncio.get_running_loop(), []):
            await worker.stop()

    async def aclose(self) -> None:
        """Hand over what is driven here, write what is queued, let go of the store."""
        await self._stop_workers()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """The same, where no loop runs. Closing twice is fine."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self._writer.close()
        self._lane.close()
        self._bodies.shutdown(wait=False, cancel_futures=True)
        run_immediate(self.store.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.aclose()


def open_app(
    url: str | None = None,
    *,
    drive: bool = True,
    ports: Ports | None = None,
    must_exist: bool = False,
) -> App:
    """An explicit Outlive on one store (default: ``OUTLIVE_STORE``, or a file in this folder)."""
    settings = Settings.from_environment()
    ports = ports or Ports()
    url = url or settings.store
    if must_exist and not is_there(url):
        raise StoreUnavailable(f"there is no store at {url}; see --store and OUTLIVE_STORE")
    store = open_store(url, ports=ports, lease_seconds=settings.lease_seconds)
    return App(store, ports=ports, settings=settings, drive=drive)
