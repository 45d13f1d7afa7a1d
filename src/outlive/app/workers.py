"""The workers of an app, by event loop, and the threads that they share."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from outlive.app.mail import ByLoop
from outlive.app.queues import Queues
from outlive.app.reader import StoreReader
from outlive.app.retention import StoreRetention
from outlive.engine.definitions import Flow
from outlive.engine.host import LoopHost, Occupation
from outlive.engine.notices import Notices
from outlive.engine.transactions import transactions_of
from outlive.errors import UsageError
from outlive.journal.keeper import ThreadKeeper, commit_one
from outlive.model.defaults import BODY_THREADS
from outlive.model.queues import COUNT_MAX, Queue, check_count
from outlive.model.retry import Duration, parse_duration
from outlive.portal import at_exit
from outlive.settings import Settings
from outlive.stores.types import Entry
from outlive.worker.dependencies import Setting
from outlive.worker.heartbeat import BlockWatch, LeaseTime, thread_pulses
from outlive.worker.repertoire import Repertoire, all_of, check_flows
from outlive.worker.worker import Worker


class Writer:
    """Writes to the store: one keeper thread for all runs, and threads for plain bodies."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self.thread = ThreadKeeper(reader.store)
        self.keeper = self.thread.keeper
        self._bodies = ThreadPoolExecutor(BODY_THREADS, thread_name_prefix="outlive-body")
        at_exit.arm()

    def host(self) -> LoopHost:
        """This event loop, as runs use it."""
        return LoopHost(asyncio.get_running_loop(), self._bodies)

    async def commit(self, entry: Entry) -> bool:
        """Write one entry; True: it is durable; False: the store refused it."""
        self._reader.check_open()
        return await commit_one(self.keeper, self.host(), entry)

    def close(self) -> None:
        """Write what is queued and end the keeper's thread; no further body begins."""
        self.thread.close()
        self._bodies.shutdown(wait=False, cancel_futures=True)
        at_exit.leave(getattr(self._bodies, "_threads", ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What an app says about all of its workers."""

    settings: Settings
    notices: Notices
    retention: StoreRetention
    #: False: this app only submits; workers elsewhere drive.
    drives: bool = True


class Workers:
    """Makes workers, finds those of this event loop, and ends them."""

    def __init__(self, reader: StoreReader, writer: Writer, options: WorkerOptions) -> None:
        self._reader, self._writer, self._options = reader, writer, options
        #: The worker that drives what is started on a loop: one, or none yet.
        self.own: ByLoop[list[Worker]] = WeakKeyDictionary()
        #: Every worker of a loop.
        self._all: ByLoop[WeakSet[Worker]] = WeakKeyDictionary()

    @property
    def drives(self) -> bool:
        """Whether runs are driven in this process."""
        return self._options.drives

    @property
    def here(self) -> list[Worker]:
        """The worker that drives what is started on this loop, if there is one yet."""
        return self.own.get(asyncio.get_running_loop(), [])

    def of_loop(self) -> Worker:
        """The worker that drives what is started on this loop; made on first use."""
        workers = self.own.setdefault(asyncio.get_running_loop(), [])
        for worker in workers:
            if worker.failure is not None:
                raise worker.failure
            return worker
        if not self.drives:
            raise UsageError("this app does not drive (drive=False); use submit()")
        worker = self.make(Repertoire(()), everything=False, concurrency=sys.maxsize)
        worker.start()
        workers.append(worker)
        return worker

    @asynccontextmanager
    async def open(
        self,
        flows: Iterable[Flow[Any, Any]],
        concurrency: int,
        drain: Duration | None,
        queues: Iterable[Queue | str] | None,
    ) -> AsyncIterator[Worker]:
        """A worker that claims any run of these flows, as long as this is open."""
        self._reader.check_open()
        check_count("a worker", "concurrency", concurrency, COUNT_MAX)
        able = check_flows(flows)
        names = None if queues is None else await Queues(self._reader).declare(queues)
        worker = self.make(all_of(able, names), everything=True, concurrency=concurrency)
        worker.start()
        try:
            yield worker
        finally:
            await worker.drain(None if drain is None else parse_duration(drain))

    def wake(self, run_id: str) -> None:
        """Have the workers of this loop look at a run at once: it is new, or has mail."""
        for worker in self._all.get(asyncio.get_running_loop(), ()):
            worker.has_mail(run_id)

    def under_way(self, run_id: str) -> list[tuple[str, bool]]:
        """The steps of a run whose bodies run on this loop; of each, whether it is an effect."""
        workers = self._all.get(asyncio.get_running_loop(), ())
        return [each for worker in workers for each in worker.under_way(run_id)]

    async def drain(self, seconds: float | None) -> bool:
        """Hand over what was started on this loop; False: something was cut off."""
        return all([await worker.drain(seconds) for worker in self.here])

    async def stop(self) -> None:
        """Stop the worker of this loop."""
        for worker in self.own.pop(asyncio.get_running_loop(), []):
            await worker.stop()

    def make(self, known: Repertoire, *, everything: bool, concurrency: int) -> Worker:
        """A worker of this loop, not started; ``everything``: it claims any run of its flows."""
        reader, settings, host = self._reader, self._options.settings, self._writer.host()
        lease, occupation = LeaseTime(reader.ports.clock, settings.lease_seconds), Occupation()
        rules = self._options.retention.rules_with(known.retentions()) if everything else None
        setting = Setting(
            store=reader.store,
            keeper=self._writer.keeper,
            lane=reader.lane,
            ports=reader.ports,
            host=host,
            lease=lease,
            start_pulse=thread_pulses(reader.store, lease, BlockWatch(occupation), known.versions),
            idle_ms=settings.idle_ms,
            poll_seconds=settings.poll_seconds,
            drain_seconds=settings.drain_seconds,
            transactions=transactions_of(reader.store, reader.lane, host),
            retention=rules,
            hider=reader.hider,
            notices=self._options.notices,
            occupation=occupation,
        )
        worker = Worker(setting, known, everything=everything, concurrency=concurrency)
        self._all.setdefault(asyncio.get_running_loop(), WeakSet()).add(worker)
        return worker
