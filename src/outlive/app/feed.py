"""The feed of a run: its events as they become durable, until it ends.

A run that is driven in this process announces what has become durable. Any other run is polled,
each time from where the last poll ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from outlive.errors import OutliveError, RunNotFound
from outlive.journal.codec.codec import Codec
from outlive.journal.codec.restore import read_whole
from outlive.journal.lane import Lane
from outlive.journal.log import RunLog
from outlive.journal.reader import Tail
from outlive.model.defaults import HANDLE_POLL_SECONDS
from outlive.model.events import Event, Fault
from outlive.model.ids import readers_of
from outlive.stores.seam import Store
from outlive.stores.types import Reading, instant
from outlive.worker.worker import Worker

#: Errors of decoding a value whose class is not known here.
_UNREADABLE = (OutliveError, ValueError, TypeError, LookupError, AttributeError)

#: The first poll comes sooner: a reply may take only a moment.
POLL_SECONDS_FIRST = 0.01
#: Between two looks while the store's hints come: one may get lost.
TOLD_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One event of a run, decoded. ``raw`` is what is stored."""

    seq: int
    #: Which event it is: the name of its class, as in the reference ("StepDone").
    kind: str
    at: datetime
    raw: Event
    #: The step's id, of events of steps, effects and children.
    step: str | None = None
    attempt: int | None = None
    #: Arguments by name, where the event has some.
    args: Any = None
    #: Its outcome; of a class that is not known here, the fields as plain data.
    value: Any = None
    error: Fault | None = None


def decoded(seq: int, at: int, event: Event, codec: Codec) -> RunEvent:
    """The event that happened at this instant (ms since 1970)."""
    from outlive.views.rows import row_of  # only those who follow a run need views

    row = row_of(seq, at, event)
    return RunEvent(
        seq=seq,
        kind=type(event).__name__,
        at=instant(at),
        raw=event,
        step=getattr(event, "step", None) or None,
        attempt=row.attempt,
        args=value_of(row.args, codec),
        value=value_of(row.value, codec),
        error=row.error,
    )


def value_of(data: bytes | None, codec: Codec) -> Any:
    """A recorded value; of a class that is not known here, its fields as plain data."""
    if data is None:
        return None
    try:
        return codec.decode(data)
    except _UNREADABLE:
        from outlive.views.values import as_json, read_value

        return as_json(read_value(data))


class Follower:
    """Follows one run."""

    def __init__(self, run_id: str, store: Store, lane: Lane, worker: Worker | None) -> None:
        self._run_id, self._store, self._lane, self._worker = run_id, store, lane, worker
        #: Done when the run leaves memory here.
        self._left: asyncio.Future[Any] | None = None
        self._log: RunLog | None = None
        #: Done when that log gets nothing more: the next chapter has another.
        self._closed: asyncio.Future[Any] | None = None
        self._pause = POLL_SECONDS_FIRST
        #: Whoever writes the run tells the store's watchers of what this follows.
        self.is_woken = False
        #: The store's hint that there may be more, and whether its hints have come in time so far.
        self._hint: asyncio.Event | None = None
        self._unwatch: Callable[[], object] | None = None
        self._is_told = False

    async def events(self, tail: Tail) -> AsyncGenerator[tuple[int, Event], None]:
        """Every event after the tail with its seq, until the run is over."""
        try:
            while True:
                reading = await self._read(tail.seq)
                events = tail.take(reading)
                first = tail.seq - len(events) + 1
                self._pause = POLL_SECONDS_FIRST if events else self._pause
                for seq, event in enumerate(events, first):
                    yield seq, event
                if reading.header.ended_at is not None:
                    return
                await self._news(tail.seq)
        finally:
            if self._left is not None:
                self._left.cancel()
            if self._unwatch is not None:
                self._unwatch()

    async def _read(self, after: int) -> Reading:
        reading = await self._lane(read_whole(self._store, self._run_id, after))
        if reading is None:
            raise RunNotFound(self._run_id)
        return reading

    async def _news(self, seq: int) -> None:
        """Wait until there may be more."""
        worker = self._worker
        log = None if worker is None or worker.failure else worker.log_of(self._run_id)
        if worker is None or log is None or log.is_closed:
            await self._look_later()
            return
        durable: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        log.wait(seq + 1, partial(_tell, durable))
        left = self._left = self._left or worker.watch(self._run_id)
        waited_for = (durable, left, self._closing(log))
        await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        if left.done():
            # Why it left, whoever waits for the outcome is told; here the journal says enough.
            left.exception()
            self._left = None

    async def _look_later(self) -> None:
        """Wait for the store's hint, if it gives any; otherwise look from time to time."""
        watchable = self._store.watchable
        if watchable is None or not self.is_woken:
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, HANDLE_POLL_SECONDS)
            return
        if self._hint is None:
            hint, loop = asyncio.Event(), asyncio.get_running_loop()
            self._hint = hint
            self._unwatch = watchable.watch(
                readers_of(self._run_id), lambda: _call_soon(loop, hint.set)
            )
        try:
            seconds = TOLD_POLL_SECONDS if self._is_told else self._pause
            await asyncio.wait_for(self._hint.wait(), seconds)
            self._is_told = True
        except TimeoutError:
            self._is_told = False
            self._pause = min(2 * self._pause, HANDLE_POLL_SECONDS)
        self._hint.clear()

    def _closing(self, log: RunLog) -> asyncio.Future[Any]:
        if self._closed is None or self._log is not log:
            self._log, self._closed = log, asyncio.get_running_loop().create_future()
            log.on_close += (partial(_tell, self._closed),)
        return self._closed


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody listens any more
        loop.call_soon_threadsafe(callback)


def _tell(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
