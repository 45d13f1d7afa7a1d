"""The composition root: the only place that knows all parts and puts them together."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from outlive.app.forks import Forking
from outlive.app.handle import Handle
from outlive.app.mail import Letterbox, check_by, resolve_letter, retry_entry
from outlive.app.schedules import Scheduling
from outlive.app.signatures import AppRunVerb, EnsureVerb, StartVerb, SubmitVerb
from outlive.app.start import (
    Asked,
    Call,
    begin_within,
    begin_within_async,
    by_fitness,
    by_flow,
    check_found,
    fitting,
    hidden,
    start_of,
    to_submit,
)
from outlive.engine.definitions import Flow
from outlive.engine.host import LoopHost, Occupation
from outlive.engine.notices import Notices, OnWait, check_on_wait
from outlive.engine.place import refuse_in_run
from outlive.engine.signatures import typed
from outlive.engine.transactions import transactions_of
from outlive.errors import (
    RetryRefused,
    StepNotInDoubt,
    UsageError,
)
from outlive.journal.codec.restore import read_whole
from outlive.journal.headers import find_or_begin
from outlive.journal.keeper import ThreadKeeper, commit_one
from outlive.journal.lane import run_immediate
from outlive.journal.mail import Outbox, write_letter
from outlive.journal.reader import read_first
from outlive.journal.seal.places import is_sealed
from outlive.model.defaults import BODY_THREADS, WORKER_CONCURRENCY
from outlive.model.ids import check_run_id
from outlive.model.mail import Verdict
from outlive.model.queues import COUNT_MAX, Queue, check_count
from outlive.model.redaction import Redaction
from outlive.model.retention import Retention
from outlive.model.retry import Duration, parse_duration
from outlive.portal import interrupted, run_blocking
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.seam import Store, timed_by
from outlive.stores.types import DEFAULT_QUEUE, LAST_CHAPTER, Entry, Posted, Reading
from outlive.worker.dependencies import Setting
from outlive.worker.entries import start_entry
from outlive.worker.heartbeat import BlockWatch, LeaseTime, thread_pulses
from outlive.worker.repertoire import Repertoire, all_of, check_flows
from outlive.worker.worker import Worker

T = TypeVar("T")
AnyFlow: TypeAlias = Flow[Any, Any]
ByLoop: TypeAlias = WeakKeyDictionary[asyncio.AbstractEventLoop, T]


class App(Scheduling, Forking):
    """Outlive on one store. Use it as a context manager, async where a loop runs."""

    def __init__(
        self,
        store: Store,
        *,
        ports: Ports | None = None,
        settings: Settings | None = None,
        drive: bool = True,
        retention: Retention | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        super().__init__(store)
        self._ports = timed_by(store, ports or Ports())
        self._settings = settings or Settings.from_environment()
        self._set_rules(retention)
        self._set_redaction(redaction)
        self._drives = drive
        self._notices = Notices(self._ports.clock, secret=is_sealed(store))
        self._writer = ThreadKeeper(store)
        self._bodies = ThreadPoolExecutor(BODY_THREADS, thread_name_prefix="outlive-body")
        #: By loop: the worker that drives what is started there, all that drive there, the mail.
        self._workers: ByLoop[list[Worker]] = WeakKeyDictionary()
        self._here: ByLoop[WeakSet[Worker]] = WeakKeyDictionary()
        self._outboxes: ByLoop[Outbox] = WeakKeyDictionary()

    @typed[StartVerb]()
    async def start(
        self, flow: AnyFlow, /, *args: Any, id: str | None = None, **kwargs: Any
    ) -> Handle[Any]:
        """Start a run here, or go on with the one of that id; durable when this returns."""
        self._check_open()
        return await self._start(self._asked(flow, (args, kwargs), id))

    @typed[EnsureVerb]()
    async def ensure(self, flow: AnyFlow, /, *args: Any, id: str, **kwargs: Any) -> Handle[Any]:
        """Start a run unless there is one of that id: then its arguments are not compared.

        An app that does not drive submits it.
        """
        self._check_open()
        asked = self._asked(flow, (args, kwargs), id)
        if self._drives:
            return await self._start(asked, compare=False)
        return await self._submit(asked, compare=False)

    async def _start(self, asked: Asked, *, compare: bool = True) -> Handle[Any]:
        flow, run_id = asked.flow, asked.run_id
        assert flow is not None, "what is driven here has code"
        is_first = asked.is_named and not self._workers.get(asyncio.get_running_loop())
        worker = self._own_worker()
        worker.learn(flow)
        # What a process asks for first is often what it drove when it died: then it is there.
        there = await self._peek(run_id) if is_first else None
        is_new = there is None and await self._begin(worker, asked)
        if not is_new and await self._check_same(asked, there, compare=compare):
            worker.want(run_id)
        return self._handle(run_id, flow, worker)

    async def _begin(self, worker: Worker, asked: Asked) -> bool:
        """Whether the run is new; one of a queue has to wait for its turn like all others."""
        if asked.event.queue == DEFAULT_QUEUE:
            return await worker.start_run(asked.run_id, asked.event)
        await self._check_place(asked.event)
        is_new = await self._commit(start_entry(asked.run_id, asked.event))
        if is_new:
            worker.want(asked.run_id)
        return is_new

    async def _peek(self, run_id: str) -> Reading | None:
        return await self._lane(read_whole(self.store, run_id, LAST_CHAPTER, limit=1))

    async def _check_same(self, asked: Asked, there: Reading | None, *, compare: bool) -> bool:
        """The run of that id is the one that is asked for; whether it is to be driven."""
        run_id = asked.run_id
        entry, read = start_entry(run_id, asked.event), partial(self._peek, run_id)
        found = there or await find_or_begin(self.store, self._lane, entry, read)
        header = check_found(asked, found, compare=compare)
        if header.status == "quarantined" or (header.reason and header.ended_at is None):
            await self.nudge(run_id, "started again")
        return header.ended_at is None

    async def nudge(self, run_id: str, why: str) -> None:
        """Make a run due now."""
        await self._letterbox(run_id).nudge(why)

    @typed[SubmitVerb]()
    async def submit(
        self,
        flow: AnyFlow | str,
        /,
        *args: Any,
        id: str | None = None,
        queue: str | None = None,
        tags: Mapping[str, str] | None = None,
        deadline: Duration | datetime | None = None,
        queue_key: str | None = None,
        priority: int | None = None,
        units: int | None = None,
        connection: Any = None,
        **kwargs: Any,
    ) -> Handle[Any]:
        """Start a run that a worker elsewhere will drive; durable when this returns.

        By name it needs no code here: whoever drives it binds the arguments. ``version="2"`` then
        says which version of the flow is meant. With a ``connection`` to the store's own database
        it begins when your transaction commits, and never if that does not.
        """
        self._check_open()
        options = {"id": id, "queue": queue, "tags": tags, "deadline": deadline}
        options |= {"queue_key": queue_key, "priority": priority, "units": units}
        asked = hidden(to_submit(flow, (args, kwargs), options, self._ports), self._hider)
        if connection is None:
            return await self._submit(asked)
        await self._check_place(asked.event)
        await begin_within_async(self.store, connection, asked)
        return self._handle(asked.run_id, asked.flow, None)

    def submit_within(
        self, connection: Any, flow: AnyFlow | str, call: Call, options: Mapping[str, Any]
    ) -> Handle[Any]:
        """Start a run in the transaction of a connection that plain code has, on its thread."""
        self._check_open()
        asked = hidden(to_submit(flow, call, options, self._ports), self._hider)
        self._check_place_here(asked.event)
        begin_within(self.store, connection, asked)
        return self._handle(asked.run_id, asked.flow, None)

    async def _submit(self, asked: Asked, *, compare: bool = True) -> Handle[Any]:
        await self._check_place(asked.event)
        if await self._commit(start_entry(asked.run_id, asked.event)):
            self._look_at(asked.run_id)
        else:
            await self._check_same(asked, None, compare=compare)
        return self._handle(asked.run_id, asked.flow, None)

    async def _commit(self, entry: Entry) -> bool:
        """Whether the entry is in; it is durable then."""
        self._check_open()
        host = LoopHost(asyncio.get_running_loop(), self._bodies)
        return await commit_one(self._writer.keeper, host, entry)

    async def retry(self, run_id: str, by: str = "") -> Handle[Any]:
        """Give a run that failed, or that is quarantined, another try, by whoever drives it.

        What failed is run again; what was done stays done.
        """
        reading = await self.read(check_run_id(run_id), LAST_CHAPTER)
        if reading.header.status == "quarantined":
            await self.nudge(run_id, "retried")
        else:
            now, events = self._ports.clock.now_ms(), await self._whole(reading)
            entry = retry_entry(reading, now=now, by=check_by(by), events=events)
            if not await self._commit(entry):
                raise RetryRefused(run_id, "somebody else was faster")
        return self._handle(run_id, None, None)

    async def resolve(
        self, run_id: str, step: str, verdict: Verdict, value: bytes = b"null"
    ) -> None:
        """Settle an effect in doubt by a human's word: "happened", "not_happened" or "fail".

        ``value`` is the outcome, if it happened, as JSON.
        """
        now = self._ports.clock.now_ms()
        mail_id, letter = resolve_letter(await self.read(run_id), step, verdict, value, now)
        body = write_letter(run_id, mail_id, self._hider.letter(letter))
        answer = await self._post(run_id, mail_id, body)
        if answer != "posted":
            raise StepNotInDoubt(f"effect {step} of run {run_id} was answered before ({answer})")
        self._look_at(run_id)

    async def get(self, run_id: str, flow: Flow[Any, Any] | None = None) -> Handle[Any]:
        """The handle of a run that there is; an outcome of a class of yours needs the flow."""
        await self.read(check_run_id(run_id), 1 << 62)
        return self._handle(run_id, flow, None)

    async def resume(self, run_id: str, flows: Iterable[AnyFlow] = ()) -> Handle[Any]:
        """Drive a run that there is, here, at once unless it sleeps or somebody drives it."""
        reading = await self.read(check_run_id(run_id), LAST_CHAPTER, limit=1)
        start = start_of(read_first(reading))
        known = by_fitness(flows, start)
        if reading.header.ended_at is not None:
            return self._handle(run_id, known.get(start.flow), None)
        flow = fitting(known, run_id, start)
        worker = self._own_worker()
        worker.learn(flow)
        if reading.header.wake_at is None or reading.header.reason:
            await self.nudge(run_id, "resumed")
        worker.want(run_id)
        return self._handle(run_id, flow, worker)

    @typed[AppRunVerb]()
    def run(
        self,
        flow: AnyFlow,
        /,
        *args: Any,
        id: str | None = None,
        on_wait: OnWait = "log",
        **kwargs: Any,
    ) -> Any:
        """Blocking: start or go on, and return the outcome.

        What the run waits for meanwhile is logged, or raised with ``on_wait="raise"``.
        """
        refuse_in_run("outlive.run", "start a child run from the flow with outlive.call(...)")
        check_on_wait(on_wait)
        begun, under_way = id, list[tuple[str, bool]]()

        async def main() -> Any:
            nonlocal begun
            try:
                handle = await self.start(flow, *args, id=id, **kwargs)
                begun = handle.id
                return await handle.outcome(on_wait=on_wait)
            except asyncio.CancelledError:
                under_way.extend(self._under_way(begun))
                raise
            finally:
                await self._stop_workers()

        try:
            return run_blocking(main)
        except KeyboardInterrupt:
            raise interrupted(begun, flow.fn.__module__, under_way) from None

    @asynccontextmanager
    async def worker(
        self,
        flows: Iterable[Flow[Any, Any]],
        concurrency: int = WORKER_CONCURRENCY,
        *,
        drain: Duration | None = None,
        queues: Iterable[Queue | str] | None = None,
    ) -> AsyncIterator[Worker]:
        """Drive whatever runs of these flows may be driven, as long as this is open.

        With ``queues``, only runs of these; a ``Queue`` sets its limits where there are none.
        At the end what has begun reaches a durable point, for as long as ``drain`` says (default:
        ``OUTLIVE_DRAIN_SECONDS``); then the rest is handed over.
        """
        self._check_open()
        check_count("a worker", "concurrency", concurrency, COUNT_MAX)
        able = check_flows(flows)
        names = None if queues is None else await self._declare(queues)
        known = all_of(able, names)
        worker = self._new_worker(known, everything=True, concurrency=concurrency)
        worker.start()
        try:
            yield worker
        finally:
            await worker.drain(None if drain is None else parse_duration(drain))

    # parts

    def _asked(self, flow: AnyFlow, call: Call, run_id: str | None) -> Asked:
        return hidden(by_flow(flow, call, run_id, self._ports), self._hider)

    def _letterbox(self, run_id: str) -> Letterbox:
        letterbox = Letterbox(run_id, self.store, self._lane, self._ports, self._post)
        letterbox.on_post = partial(self._look_at, run_id)
        letterbox.redact = self._hider.letter
        return letterbox

    async def _post(self, run_id: str, mail_id: str, body: bytes) -> Posted:
        self._check_open()
        own = Outbox(self.store, self._lane, asyncio.create_task)
        outbox = self._outboxes.setdefault(asyncio.get_running_loop(), own)
        return await outbox.post(run_id, mail_id, body)

    def _look_at(self, run_id: str) -> None:
        """Something happened to this run: who drives it here need not wait to find out."""
        for worker in self._here.get(asyncio.get_running_loop(), ()):
            worker.has_mail(run_id)

    def _under_way(self, run_id: str | None) -> list[tuple[str, bool]]:
        """The steps of a run whose bodies run on this loop; of each, whether it is an effect."""
        workers = self._here.get(asyncio.get_running_loop(), ())
        return [each for worker in workers for each in worker.under_way(run_id or "")]

    def _own_worker(self) -> Worker:
        """The worker that drives what was started on this loop."""
        workers = self._workers.setdefault(asyncio.get_running_loop(), [])
        for worker in workers:
            if worker.failure is not None:
                raise worker.failure
            return worker
        if not self._drives:
            raise UsageError("this app does not drive (drive=False); use submit()")
        worker = self._new_worker(Repertoire(()), everything=False, concurrency=sys.maxsize)
        worker.start()
        workers.append(worker)
        return worker

    def _new_worker(self, known: Repertoire, *, everything: bool, concurrency: int) -> Worker:
        clock, host = self._ports.clock, LoopHost(asyncio.get_running_loop(), self._bodies)
        lease, occupation = LeaseTime(clock, self._settings.lease_seconds), Occupation()
        setting = Setting(
            store=self.store,
            keeper=self._writer.keeper,
            lane=self._lane,
            ports=self._ports,
            host=host,
            lease=lease,
            start_pulse=thread_pulses(self.store, lease, BlockWatch(occupation)),
            idle_ms=self._settings.idle_ms,
            poll_seconds=self._settings.poll_seconds,
            drain_seconds=self._settings.drain_seconds,
            transactions=transactions_of(self.store, self._lane, host),
            retention=self._rules_for(known.retentions()) if everything else None,
            hider=self._hider,
            notices=self._notices,
            occupation=occupation,
        )
        worker = Worker(setting, known, everything=everything, concurrency=concurrency)
        self._here.setdefault(asyncio.get_running_loop(), WeakSet()).add(worker)
        return worker

    # ends

    async def _stop_workers(self) -> None:
        for worker in self._workers.pop(asyncio.get_running_loop(), []):
            await worker.stop()

    async def drain(self, seconds: float | None = None) -> bool:
        """Let what was started on this loop reach a durable point and hand it over.

        False: something was cut off at the limit (default: ``OUTLIVE_DRAIN_SECONDS``).
        """
        workers = self._workers.get(asyncio.get_running_loop(), [])
        return all([await worker.drain(seconds) for worker in workers])

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
        self._let_logs_be()
        self._close_archive()
        run_immediate(self.store.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()
