"""The composition root: makes the parts of an app and gives each public verb to one of them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Self, Unpack
from weakref import finalize

from outlive.app.forks import Forks
from outlive.app.handle import Handle, Handles
from outlive.app.lists import (
    RunChange,
    RunDoubt,
    RunFilters,
    RunLists,
    RunQuestion,
    TimelinePage,
    WorkerListed,
)
from outlive.app.log import KeyedLog, Logs
from outlive.app.mail import Letterboxes
from outlive.app.queues import Queues
from outlive.app.reader import StoreReader
from outlive.app.retention import StoreRetention
from outlive.app.schedules import Schedule, Schedules
from outlive.app.signatures import AppRunVerb, EnsureVerb, StartVerb, SubmitVerb
from outlive.app.start import AnyFlow, Call, Starter
from outlive.app.workers import WorkerOptions, Workers, Writer
from outlive.engine.blob import Blob
from outlive.engine.definitions import Flow
from outlive.engine.notices import Notices, OnWait
from outlive.engine.signatures import typed
from outlive.journal.lane import run_immediate
from outlive.journal.redaction import Hider, LogFilter
from outlive.journal.retention.archive import Archived
from outlive.journal.retention.sweep import Swept
from outlive.journal.seal.places import is_sealed
from outlive.model.defaults import (
    COUNTED_MAX,
    FIND_LIMIT,
    SCHEDULE_MISSED,
    SCHEDULE_OVERLAP,
    SCHEDULE_TIME_ZONE,
    WORKER_CONCURRENCY,
)
from outlive.model.mail import Verdict
from outlive.model.queues import Queue
from outlive.model.redaction import Redaction, parse_redaction
from outlive.model.retention import Retention
from outlive.model.retry import Duration
from outlive.model.schedules import Missed, Overlap
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.seam import Store, timed_by
from outlive.stores.types import PAGE_MAX, Count, Found, Health, Page, QueueState, Reading
from outlive.worker.worker import Worker


class App:
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
        settings = settings or Settings.from_environment()
        ports = timed_by(store, ports or Ports())
        hider = Hider(redaction or parse_redaction(settings.redact, settings.redact_pattern))
        notices = Notices(ports.clock, secret=is_sealed(store))
        self.store = store
        self._leave_logs = _redact_logs(self, hider)
        self._reader = StoreReader(store, ports, hider)
        self._lists = RunLists(self._reader)
        self._writer = Writer(self._reader)
        self._retention = StoreRetention(self._reader, settings, retention)
        options = WorkerOptions(
            settings=settings, notices=notices, retention=self._retention, drives=drive
        )
        self._workers = Workers(self._reader, self._writer, options)
        self._letterboxes = Letterboxes(self._reader, self._workers.wake)
        forks = Forks(self._reader, self._writer.commit)
        self._handles = Handles(self._letterboxes, forks, self._workers, notices)
        self._starter = Starter(self._reader, self._writer, self._workers, self._handles)
        self._queues = Queues(self._reader)
        self._logs = Logs(self._reader)
        self._schedules = Schedules(self._reader, self._starter, self._letterboxes)

    # start

    @typed[StartVerb]()
    async def start(
        self, flow: AnyFlow, /, *args: Any, id: str | None = None, **kwargs: Any
    ) -> Handle[Any]:
        """Start a run here, or continue the one of that id; durable when this returns."""
        return await self._starter.start(flow, (args, kwargs), id)

    @typed[EnsureVerb]()
    async def ensure(self, flow: AnyFlow, /, *args: Any, id: str, **kwargs: Any) -> Handle[Any]:
        """Start a run unless there is one of that id, whatever its arguments.

        An app that does not drive submits it.
        """
        return await self._starter.ensure(flow, (args, kwargs), id)

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
        """Start a run that a worker elsewhere drives; durable when this returns.

        A flow that is given by name needs no code here: the worker binds the arguments, and
        ``version="2"`` says which version of the flow is meant. With a ``connection`` to the
        store's own database the run begins when your transaction commits.
        """
        options = {"id": id, "queue": queue, "tags": tags, "deadline": deadline}
        options |= {"queue_key": queue_key, "priority": priority, "units": units}
        return await self._starter.submit(flow, (args, kwargs), connection, **options)

    def submit_within(
        self, connection: Any, flow: AnyFlow | str, call: Call, options: Mapping[str, Any]
    ) -> Handle[Any]:
        """Start a run in the transaction of a connection of plain code, on its thread."""
        return self._starter.submit_within(connection, flow, call, options)

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
        """Blocking: start a run, or continue the one of that id, and return its outcome.

        What the run waits for meanwhile is logged, or raised with ``on_wait="raise"``.
        """
        return self._starter.run(flow, (args, kwargs), id, on_wait)

    async def get(self, run_id: str, flow: Flow[Any, Any] | None = None) -> Handle[Any]:
        """The handle of an existing run; ``flow`` is needed to decode an outcome of your class."""
        return await self._starter.get(run_id, flow)

    async def resume(self, run_id: str, flows: Iterable[AnyFlow] = ()) -> Handle[Any]:
        """Drive an existing run here, at once unless it sleeps or another worker drives it."""
        return await self._starter.resume(run_id, flows)

    async def retry(self, run_id: str, by: str = "") -> Handle[Any]:
        """Continue a run that failed or is quarantined, on any worker.

        The step that failed runs again; completed steps and effects do not.
        """
        return await self._starter.retry(run_id, by)

    async def fork(
        self,
        run_id: str,
        *,
        at: int | None = None,
        set: Mapping[str, object] | None = None,
        id: str | None = None,
        by: str = "",
    ) -> Handle[Any]:
        """Start a run that continues after event ``at`` of another one; durable when this returns.

        ``set={"plan#1": value}`` gives a step another outcome, and forks after that step. Any
        worker that has the flow drives the fork.

        Raises:
            ForkRefused: it can't be forked there; the message says where it can.
        """
        return await self._handles.fork(None, run_id, at=at, set=set, id=id, by=by)

    # mail

    async def resolve(
        self, run_id: str, step: str, verdict: Verdict, value: bytes = b"null", by: str = ""
    ) -> None:
        """Settle an effect in doubt by a human's word: "happened", "not_happened" or "fail".

        ``value`` is the outcome as JSON, if it happened; ``by`` says whose word it is.
        """
        await self._letterboxes.resolve(run_id, step, verdict, value, by)

    async def nudge(self, run_id: str, why: str) -> None:
        """Make a run due now."""
        await self._letterboxes.nudge(run_id, why)

    # schedules

    async def schedule(
        self,
        name: str,
        flow: Flow[..., Any] | str,
        *args: Any,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = SCHEDULE_TIME_ZONE,
        missed: Missed = SCHEDULE_MISSED,
        overlap: Overlap = SCHEDULE_OVERLAP,
        queue: str | None = None,
        tags: Mapping[str, str] | None = None,
        queue_key: str | None = None,
        priority: int | None = None,
        units: int | None = None,
        **kwargs: Any,
    ) -> Schedule:
        """Start a run of this flow at each instant of ``cron``, or ``every`` so often.

        The same call again changes nothing; another definition replaces the first from now on.
        Of the instants that no worker fired at most the last is made up for; ``missed`` says
        whether that holds for one more than five minutes ago: "skip" it, or fire it "once".
        ``overlap="skip"`` skips an instant while the last run is still going.
        """
        options: dict[str, Any] = {"queue": queue, "tags": tags, "queue_key": queue_key}
        options |= {"priority": priority, "units": units}
        times: dict[str, Any] = {"cron": cron, "every": every, "tz": tz, "missed": missed}
        return await self._schedules.schedule(
            name, flow, (args, kwargs), options, overlap=overlap, **times
        )

    async def unschedule(self, name: str) -> bool:
        """Remove a schedule; runs that it started continue. False: there was no such schedule."""
        return await self._schedules.remove(name)

    async def pause_schedule(self, name: str) -> Schedule:
        """Fire nothing until it is resumed; instants meanwhile do not count as missed."""
        return await self._schedules.pause(name)

    async def resume_schedule(self, name: str) -> Schedule:
        """Fire again, from the next instant on."""
        return await self._schedules.resume(name)

    async def fire_schedule(self, name: str) -> Handle[Any]:
        """Start a run of a schedule now, in addition to its instants, even if it is paused."""
        return await self._schedules.fire(name)

    async def schedules(self) -> list[Schedule]:
        """All schedules, by name."""
        return await self._schedules.all()

    # workers and queues

    def worker(
        self,
        flows: Iterable[Flow[Any, Any]],
        concurrency: int = WORKER_CONCURRENCY,
        *,
        drain: Duration | None = None,
        queues: Iterable[Queue | str] | None = None,
    ) -> AbstractAsyncContextManager[Worker]:
        """Drive every run of these flows that is due, as long as this context is open.

        With ``queues``, only runs of these; a ``Queue`` sets its limits where the store has none.
        At the end the worker waits up to ``drain`` (default: ``OUTLIVE_DRAIN_SECONDS``) until its
        runs reach a durable point; then other workers may claim them.
        """
        return self._workers.open(flows, concurrency, drain, queues)

    async def drain(self, seconds: float | None = None) -> bool:
        """Bring what was started on this loop to a durable point, and let other workers claim it.

        False: something was cut off at the limit (default: ``OUTLIVE_DRAIN_SECONDS``).
        """
        return await self._workers.drain(seconds)

    async def set_queue(self, queue: Queue, *, replace: bool = True) -> None:
        """Set a queue's limits for all workers, from now on.

        Without ``replace`` existing limits stay, and a warning names both if they differ.
        """
        await self._queues.set_queue(queue, replace=replace)

    async def queues(self) -> Sequence[QueueState]:
        """Every queue that has limits or runs: how many wait, how many are claimed, since when."""
        return await self._queues.states()

    # queries

    async def find(
        self, *, limit: int = FIND_LIMIT, after: str | None = None, **query: Unpack[RunFilters]
    ) -> Page:
        """A page of runs, in the order of their start, the newest first with ``newest``.

        All that is given must hold: ``status`` (one, or any of several), ``flow``, ``version``,
        ``tag`` (a mapping, or a pair), ``parent``, ``queue``, ``worker``, ``prefix`` of the id,
        ``error``, started ``since`` and before ``until``, ``ended_since`` and ``ended_until``.
        With ``keys`` also the journals of keys. A page may be short: only ``next`` tells the end.
        """
        return await self._lists.find(limit=limit, after=after, **query)

    async def count(self, *, most: int = COUNTED_MAX, **query: Unpack[RunFilters]) -> Count:
        """How many runs ``find`` would find, up to ``most``: "10,000+"."""
        return await self._lists.count(most=most, **query)

    async def questions(self, limit: int = PAGE_MAX) -> list[RunQuestion]:
        """The questions of all runs that wait for an answer, those of the oldest runs first."""
        return await self._lists.questions(limit)

    async def doubts(self, limit: int = PAGE_MAX) -> list[RunDoubt]:
        """The effects in doubt that somebody has to settle, and the command that does."""
        return await self._lists.doubts(limit)

    async def timeline(
        self, run_id: str, after: str | None = None, limit: int = FIND_LIMIT
    ) -> TimelinePage:
        """What happened to a run, row by row: those of so many records, then the next page.

        The journal is verified page by page; a long one is never in memory as a whole.
        """
        return await self._lists.timeline(run_id, after, limit)

    async def workers(self) -> list[WorkerListed]:
        """The workers of all processes: where they run, what they drive and hold."""
        return await self._lists.workers()

    def changes(self, after: str | None = None) -> AsyncGenerator[RunChange, None]:
        """Runs as they move, from the ``cursor`` of a change on, or from now on."""
        return self._lists.changes(after)

    def chunks(self, blob: Blob) -> AsyncIterator[bytes]:
        """The bytes of a blob, one verified chunk at a time."""
        return self._reader.chunks(blob)

    async def read(self, journal: str, after: int = 0, *, limit: int | None = None) -> Reading:
        """The journal of a run or a key as it is stored, not verified yet."""
        return await self._reader.read(journal, after, limit=limit)

    async def health(self) -> Health:
        """The store's own report, after a check of its file."""
        return await self._reader.health()

    async def unattended(self, found: Iterable[Found]) -> set[str]:
        """The runs among these that are due and that no living worker holds.

        A worker that has their flow claims them within a moment. A run that is named again after
        that has no living worker with its code.
        """
        return await self._reader.unattended(found)

    # logs

    def log(self, name: str, *, keep: Duration | None = None, type: Any = None) -> KeyedLog:
        """A log of your own: entries by key, as durable, sealed and redacted as all values.

        With ``keep`` a key is empty, and may be deleted, so long after the last append to it.
        ``type`` is the class of its values, where they are not plain.
        """
        return self._logs.open(name, keep, type)

    # retention

    @property
    def retention(self) -> Retention | None:
        """What may be deleted; None: nothing."""
        return self._retention.rules

    async def retain(self, retention: Retention | None = None, *, dry_run: bool = False) -> Swept:
        """Delete what these rules, or the app's own, allow; returns what was deleted.

        With ``dry_run`` nothing is changed, and each run is listed.
        """
        return await self._retention.retain(retention, dry_run=dry_run)

    async def delete(self, run_id: str) -> bool:
        """Delete a run that has ended; its id and keys stay taken. False: it is still needed.

        Its parent or a fork of it may need it. A run that has not ended must be cancelled first.
        """
        return await self._retention.delete(run_id)

    async def restore(self, run: Archived) -> bool:
        """Put an archived run back as it was; False: a run of that id is there."""
        return await self._retention.restore(run)

    def archived(self, path: str | os.PathLike[str]) -> Iterator[Archived]:
        """The runs in an archive's file; a sealed file opens with the key of its store.

        Raises:
            CorruptArchive: the file is damaged, cut off, or not an archive.
            WrongKey: it is sealed with another key than this store's.
        """
        return self._retention.archived(path)

    # end

    async def aclose(self) -> None:
        """Hand over what is driven on this loop, write what is queued, and close the store."""
        await self._workers.stop()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """``aclose`` where no loop runs. Closing twice is allowed."""
        if self._reader.is_closed or not self._reader.is_of_this_process:
            return
        self._reader.is_closed = True
        self._writer.close()
        self._reader.close()
        self._leave_logs()
        self._retention.close()
        run_immediate(self.store.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()


def _redact_logs(app: App, hider: Hider) -> finalize[Any, App]:
    """Redact our log records until the app is closed or gone; returns what ends that."""
    redacts = LogFilter(hider, is_sealed=is_sealed(app.store))
    logger = logging.getLogger("outlive")
    logger.addFilter(redacts)
    return finalize(app, logger.removeFilter, redacts)
