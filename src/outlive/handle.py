"""A handle: a run as its owner sees it. Whatever it says comes from what is durable."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Generator
from typing import Any, Generic, TypeVar

from outlive.engine.definitions import Flow, registry
from outlive.engine.drive import Drive
from outlive.engine.faults import exception_of
from outlive.errors import (
    AppClosed,
    RunCancelled,
    RunFailed,
    RunNotFound,
    RunQuarantined,
    TimedOut,
)
from outlive.journal.codec import Codec, codec_for
from outlive.journal.lane import Lane
from outlive.journal.reader import read_events
from outlive.model.events import Event, Fault
from outlive.model.retry import Duration, parse_duration
from outlive.model.run import ENDED, Run, fold
from outlive.store import Reading, Store
from outlive.worker.worker import Worker

T = TypeVar("T")

POLL_SECONDS = 0.25


class Handle(Generic[T]):
    """One run: its status, its outcome, its events."""

    def __init__(
        self,
        run_id: str,
        store: Store,
        lane: Lane,
        *,
        flow: Flow[..., Any] | None = None,
        worker: Worker | None = None,
    ) -> None:
        self.id = run_id
        self._store, self._lane = store, lane
        self._flow, self._worker = flow, worker
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"<Handle of run {self.id!r}>"

    def __await__(self) -> Generator[Any, None, T]:
        return self.outcome().__await__()

    async def status(self) -> str:
        """Where the run stands."""
        return (await self._read(after_all=True)).header.status

    async def outcome(self, timeout: Duration | None = None) -> T:
        """What the flow returned, once it has; raises ``RunFailed`` if it failed.

        Raises:
            TimedOut: it was not over in time; the run itself goes on.
        """
        seconds = None if timeout is None else parse_duration(timeout)
        try:
            async with asyncio.timeout(seconds):
                return await self._outcome()
        except TimeoutError:
            raise TimedOut(f"run {self.id} was not over within {timeout}; it goes on") from None

    async def _outcome(self) -> T:
        if self._process != os.getpid():
            raise AppClosed("this process was forked; open an app of its own")
        while True:
            if self._worker is not None and self.id in self._worker.driving:
                drive = await self._driven_here(self._worker)
                if drive is not None:
                    verdict = drive.ending.verdict
                    assert verdict is not None, "a run that ended has a verdict"
                    return self._value(verdict.status, verdict.value, verdict.error)
            reading = await self._read(after_all=True)
            if reading.header.status in ENDED:
                run = await self.run()
                return self._value(run.status, run.value, run.error)
            has_mail = reading.head.posted != reading.head.consumed
            if reading.header.status == "quarantined" and not has_mail:
                raise RunQuarantined(self.id, reading.header.reason)
            if self._worker is None:
                await asyncio.sleep(POLL_SECONDS)
            else:
                await self._driven_here(self._worker, POLL_SECONDS)

    async def _driven_here(self, worker: Worker, seconds: float | None = None) -> Drive | None:
        """The drive of a run that ended in this process; None when the store must be asked."""
        if worker.failure is not None:
            raise worker.failure
        watcher = worker.watch(self.id)
        done, _ = await asyncio.wait([watcher], timeout=seconds)
        if not done:
            watcher.cancel()
            return None
        return watcher.result()

    async def run(self) -> Run:
        """The fold of the journal, as it stands."""
        return fold(await self.read())

    async def read(self) -> list[Event]:
        """All events so far, verified."""
        return read_events(await self._read())

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Every event after a seq, as it becomes durable, until the run is over."""
        while True:
            reading = await self._read()
            events = read_events(reading)
            for event in events[after:]:
                yield event
            after = len(events)
            if reading.header.ended_at is not None:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _read(self, *, after_all: bool = False) -> Reading:
        after = 1 << 62 if after_all else 0
        reading = await self._lane(self._store.read(self.id, after))
        if reading is None:
            raise RunNotFound(self.id)
        return reading

    def _value(self, status: str, value: bytes | None, fault: Fault | None) -> T:
        codec = self._codec()
        if status == "cancelled":
            raise RunCancelled(self.id)
        if fault is not None:
            failed = RunFailed(self.id, fault.type_name, fault.message)
            raise failed from exception_of(fault, {}, codec)
        outcome: T = codec.decode(value or b"")
        return outcome

    def _codec(self) -> Codec:
        if self._flow is not None:
            return self._flow.value_codec
        return codec_for([], registry)
