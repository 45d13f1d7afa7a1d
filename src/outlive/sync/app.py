"""An app for plain code: the verbs of the async app, each of which blocks until it is done.

The async app lives on an event loop in its own thread; each call here is awaited there.
"""

from __future__ import annotations

import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from outlive.app import app as async_app
from outlive.app import open as opening
from outlive.app.lists import RunChange, RunDoubt, RunQuestion, TimelinePage, WorkerListed
from outlive.app.log import PlainLog
from outlive.app.schedules import Schedule
from outlive.app.signatures import AppRunVerb
from outlive.engine.blob import Blob
from outlive.engine.definitions import Flow
from outlive.engine.notices import OnWait, check_on_wait
from outlive.engine.place import Body, place, refuse_in_run
from outlive.engine.signatures import typed
from outlive.errors import OutliveError, RunError
from outlive.journal.retention.archive import Archived
from outlive.journal.retention.sweep import Swept
from outlive.model.defaults import SCHEDULE_MISSED, SCHEDULE_OVERLAP, SCHEDULE_TIME_ZONE
from outlive.model.mail import Verdict
from outlive.model.queues import Queue
from outlive.model.redaction import Redaction
from outlive.model.retention import Retention
from outlive.model.retry import Duration
from outlive.model.schedules import Missed, Overlap
from outlive.portal import LoopThread, at_exit, check_may_block, interrupted, interrupts
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.types import PAGE_MAX, Count, Health, Page, QueueState
from outlive.sync.handle import Handle, PlainEnsureVerb, PlainStartVerb, PlainSubmitVerb
from outlive.worker.worker import Worker

T = TypeVar("T")

CALL = "start a child run from the flow with outlive.call(...) or outlive.spawn(...)"
READ = "do this in a step: only step bodies touch the outside"


class App:
    """Outlive on one store, for plain code. Use it as a context manager."""

    def __init__(self, app: async_app.App) -> None:
        self._app = app
        self._loop = LoopThread("outlive-sync")
        at_exit.watch(self)

    # verbs

    @typed[PlainStartVerb]()
    def start(
        self, flow: Flow[..., Any], /, *args: Any, id: str | None = None, **kwargs: Any
    ) -> Handle[Any]:
        """Start a run here, or continue the one of that id; durable when this returns."""
        refuse_in_run("outlive.start", CALL)
        return self._handle(partial(self._app.start, flow, *args, id=id, **kwargs))

    @typed[PlainSubmitVerb]()
    def submit(
        self,
        flow: Flow[..., Any] | str,
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

        With a ``connection`` to the store's own database it begins when your transaction commits.
        """
        options: dict[str, Any] = {"id": id, "queue": queue, "tags": tags, "deadline": deadline}
        options |= {"queue_key": queue_key, "priority": priority, "units": units}
        if connection is not None and type(place.get()) in (Body, type(None)):
            begun = self._app.submit_within(connection, flow, (args, kwargs), options)
            return Handle(begun, self.call)
        refuse_in_run("outlive.submit", CALL)
        return self._handle(partial(self._app.submit, flow, *args, **options, **kwargs))

    @typed[PlainEnsureVerb]()
    def ensure(self, flow: Flow[..., Any], /, *args: Any, id: str, **kwargs: Any) -> Handle[Any]:
        """Start a run unless there is one of that id, whatever its arguments."""
        refuse_in_run("outlive.ensure", CALL)
        return self._handle(partial(self._app.ensure, flow, *args, id=id, **kwargs))

    @typed[AppRunVerb]()
    def run(
        self,
        flow: Flow[..., Any],
        /,
        *args: Any,
        id: str | None = None,
        on_wait: OnWait = "log",
        **kwargs: Any,
    ) -> Any:
        """Start a run, or continue the one of that id, and return its outcome."""
        refuse_in_run("outlive.run", CALL)
        check_on_wait(on_wait)
        begun, is_over = id, False

        async def outcome() -> Any:
            nonlocal is_over
            found = await handle._handle.outcome(on_wait=on_wait)  # noqa: SLF001  # its twin
            is_over = True
            return found

        try:
            handle = self.start(flow, *args, id=id, **kwargs)
            begun = handle.id
            return self.call(outcome)
        except KeyboardInterrupt:
            module, under_way = flow.fn.__module__, self._under_way(begun)
            raise interrupted(begun, module, under_way, is_over=is_over) from None
        except RunError as told:
            raise told.with_traceback(None) from told.__cause__  # the user's frames, not ours

    def get(self, run_id: str, flow: Flow[Any, Any] | None = None) -> Handle[Any]:
        """The handle of an existing run."""
        return self._handle(partial(self._app.get, run_id, flow))

    def resume(self, run_id: str, flows: Iterable[Flow[Any, Any]] = ()) -> Handle[Any]:
        """Drive an existing run here, at once unless it sleeps or another worker drives it."""
        refuse_in_run("outlive.resume", CALL)
        return self._handle(partial(self._app.resume, run_id, flows))

    def fork(
        self,
        run_id: str,
        *,
        at: int | None = None,
        set: Mapping[str, object] | None = None,
        id: str | None = None,
        by: str = "",
    ) -> Handle[Any]:
        """Start a run that continues after event ``at`` of another one, or after a step."""
        refuse_in_run("outlive.fork", CALL)
        return self._handle(partial(self._app.fork, run_id, at=at, set=set, id=id, by=by))

    def retry(self, run_id: str, by: str = "") -> Handle[Any]:
        """Continue a run that failed or is quarantined, on any worker."""
        refuse_in_run("outlive.retry", CALL)
        return self._handle(partial(self._app.retry, run_id, by))

    def drain(self, seconds: float | None = None) -> bool:
        """Bring what is driven here to a durable point, and let other workers claim it."""
        return self.call(partial(self._app.drain, seconds))

    def find(self, **query: Any) -> Page:
        """A page of runs, in the order of their start, the newest first with ``newest``."""
        return self.call(partial(self._app.find, **query))

    def count(self, **query: Any) -> Count:
        """How many runs ``find`` would find, up to ``most``."""
        return self.call(partial(self._app.count, **query))

    def questions(self, limit: int = PAGE_MAX) -> list[RunQuestion]:
        """The questions of all runs that wait for an answer, those of the oldest runs first."""
        return self.call(partial(self._app.questions, limit))

    def doubts(self, limit: int = PAGE_MAX) -> list[RunDoubt]:
        """The effects in doubt that somebody has to settle, and the command that does."""
        return self.call(partial(self._app.doubts, limit))

    def timeline(self, run_id: str, after: str | None = None, **how: Any) -> TimelinePage:
        """What happened to a run, row by row, a page at a time."""
        return self.call(partial(self._app.timeline, run_id, after, **how))

    def workers(self) -> list[WorkerListed]:
        """The workers of all processes: where they run, what they drive and hold."""
        return self.call(self._app.workers)

    def changes(self, after: str | None = None) -> Iterator[RunChange]:
        """Runs as they move, from the ``cursor`` of a change on, or from now on."""
        changes = self._app.changes(after)
        try:
            while (change := self.call(partial(_next_change, changes))) is not None:
                yield change
        finally:
            self.call(changes.aclose)

    def chunks(self, blob: Blob) -> Iterator[bytes]:
        """The bytes of a blob, one verified chunk at a time."""
        chunks = aiter(self._app.chunks(blob))
        while (chunk := self.call(partial(_next_chunk, chunks))) is not None:
            yield chunk

    def set_queue(self, queue: Queue, *, replace: bool = True) -> None:
        """Set a queue's limits for all workers, from now on."""
        self.call(partial(self._app.set_queue, queue, replace=replace))

    def queues(self) -> Sequence[QueueState]:
        """Every queue that has limits or runs: how many wait, how many are claimed, since when."""
        return self.call(self._app.queues)

    def resolve(
        self, run_id: str, step: str, verdict: Verdict, value: bytes = b"null", by: str = ""
    ) -> None:
        """Settle an effect in doubt by a human's word; ``value`` is JSON."""
        self.call(partial(self._app.resolve, run_id, step, verdict, value, by))

    def retain(self, retention: Retention | None = None, *, dry_run: bool = False) -> Swept:
        """Delete what these rules, or the app's own, allow; returns what was deleted."""
        return self.call(partial(self._app.retain, retention, dry_run=dry_run))

    def archived(self, path: str | os.PathLike[str]) -> Iterator[Archived]:
        """The runs in an archive's file; a sealed file opens with the key of its store."""
        return self._app.archived(path)

    def delete(self, run_id: str) -> bool:
        """Delete a run that has ended; its id and keys stay taken. False: it is still needed."""
        return self.call(partial(self._app.delete, run_id))

    def restore(self, run: Archived) -> bool:
        """Put an archived run back as it was; False: a run of that id is there."""
        return self.call(partial(self._app.restore, run))

    def health(self) -> Health:
        """The store's own report, after a check of its file."""
        return self.call(self._app.health)

    def schedule(
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
        """Start a run of this flow at each instant of ``cron``, or ``every`` so often."""
        options: dict[str, Any] = {"cron": cron, "every": every, "tz": tz, "missed": missed}
        options |= {"overlap": overlap, "queue": queue, "tags": tags, "queue_key": queue_key}
        options |= {"priority": priority, "units": units}
        return self.call(partial(self._app.schedule, name, flow, *args, **options, **kwargs))

    def unschedule(self, name: str) -> bool:
        """Remove a schedule; False: there was no such schedule."""
        return self.call(partial(self._app.unschedule, name))

    def pause_schedule(self, name: str) -> Schedule:
        """Fire nothing until it is resumed."""
        return self.call(partial(self._app.pause_schedule, name))

    def resume_schedule(self, name: str) -> Schedule:
        """Fire again, from the next instant on."""
        return self.call(partial(self._app.resume_schedule, name))

    def fire_schedule(self, name: str) -> Handle[Any]:
        """Start a run of a schedule now, in addition to its instants, even if it is paused."""
        return self._handle(partial(self._app.fire_schedule, name))

    def schedules(self) -> list[Schedule]:
        """All schedules, by name."""
        return self.call(self._app.schedules)

    @contextmanager
    def worker(self, flows: Iterable[Flow[Any, Any]], **options: Any) -> Iterator[Worker]:
        """Drive every run of these flows that is due, as long as this context is open."""
        refuse_in_run("outlive.worker", CALL)
        working = self._app.worker(flows, **options)
        worker: Worker = self.call(working.__aenter__)
        try:
            yield worker
        finally:
            self.call(partial(working.__aexit__, None, None, None))

    def log(self, name: str, *, keep: Duration | None = None, type: Any = None) -> PlainLog:
        """A log of your own: entries by key. Its verbs work on the caller's thread."""
        return self._app.log(name, keep=keep, type=type).sync

    # parts

    def _under_way(self, run_id: str | None) -> list[tuple[str, bool]]:
        async def look() -> list[tuple[str, bool]]:
            return self._app._workers.under_way(run_id or "")  # noqa: SLF001  # its twin

        try:
            return self._loop.call(look)
        except OutliveError:
            return []

    def _handle(self, work: Callable[[], Awaitable[Any]]) -> Handle[Any]:
        return Handle(self.call(work), self.call)

    def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await this on the app's loop, and block here until it ends."""
        if type(place.get()) is not Body:
            refuse_in_run("outlive.sync", READ)
        check_may_block("outlive.sync")
        return self._loop.call(work)

    def on_app(self, work: Callable[[async_app.App], Awaitable[T]]) -> T:
        """Await a function of the async app on its loop, and block here until it ends."""
        return self.call(partial(work, self._app))

    # ends

    def close(self) -> None:
        """Hand over what is driven here, write what is queued, and close the store."""
        with interrupts.held():
            if self._loop.is_running:
                self._loop.call(self._app.aclose)
            self._loop.close()
            self._app.close()
            at_exit.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()


async def _next_change(changes: AsyncIterator[RunChange]) -> RunChange | None:
    return await anext(changes, None)


async def _next_chunk(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


def open_app(
    url: str | None = None,
    *,
    key: str | None = None,
    blobs: str | None = None,
    drive: bool = True,
    ports: Ports | None = None,
    settings: Settings | None = None,
    retention: Retention | None = None,
    redaction: Redaction | None = None,
) -> App:
    """An explicit Outlive on one store (default: ``OUTLIVE_STORE``, or a file in this folder).

    With a ``key`` (default: ``OUTLIVE_KEY``) what is stored is sealed. ``blobs`` (default:
    ``OUTLIVE_BLOBS``) is the URL of another store, which keeps blobs.
    """
    rules: dict[str, Any] = {"retention": retention, "redaction": redaction}
    places: dict[str, Any] = {"key": key, "blobs": blobs}
    return App(
        opening.open_app(url, drive=drive, ports=ports, settings=settings, **places, **rules)
    )
