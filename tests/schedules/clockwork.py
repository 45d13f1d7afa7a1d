"""Schedules on a clock moved by hand: workers that come and die, and what was fired by then."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import outlive
from outlive.app.app import App
from outlive.model.schedules import NAME_TAG
from outlive.stores.types import Query
from outlive.worker.repertoire import all_of
from outlive.worker.worker import Worker
from tests.harness.theatre import Theatre

#: How time goes by while everything settles: by a tick at each look, and once it drifted so far
#: from the instant that a test named, at every so many looks. A slow machine looks often; what is
#: defined after settling must still lie near that instant, for what is so near is waited for.
TICK_MS, DRIFT_MS, LOOKS_PER_TICK, SOON_MS = 1, 40, 20, 500
#: What bodies did, by run.
begun: Counter[str] = Counter()


@outlive.step
async def note(what: str) -> str:
    begun[what] += 1
    return what


@outlive.flow
async def tick(word: str = "tick") -> str:
    """Says for which instant it was started."""
    await note(outlive.run_id())
    return f"{word} {outlive.fired_at():%m-%d %H:%M:%S}"


@outlive.flow
async def tock(word: str = "tock") -> str:
    """Another flow."""
    return f"{word} {outlive.fired_at():%m-%d %H:%M:%S}"


@outlive.flow
async def failing() -> None:
    """Never comes off."""
    raise ValueError("no luck")


@outlive.flow
async def long() -> str:
    """Goes on until somebody says so."""
    word: str = await outlive.wait_signal("end", str)
    return word


FLOWS = (tick, tock, failing, long)


def utc(text: str) -> float:
    """An instant in ms since 1970."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000


class Clockwork(Theatre):
    """A theatre whose workers drive whatever there is."""

    def __init__(self, begin: str = "2026-01-10 00:00", **options: Any) -> None:
        super().__init__(now_ms=utc(begin), **options)
        self.working: dict[App, Worker] = {}
        begun.clear()

    async def hire(
        self, app: App | None = None, flows: Any = FLOWS, queues: frozenset[str] | None = None
    ) -> App:
        """A process with a worker."""
        app = app or self.open()
        known = all_of(flows, queues)
        self.working[app] = app._workers.make(known, everything=True, concurrency=100)
        self.working[app].start()
        return app

    async def crash(self, app: App) -> None:
        """Kill a process with its worker."""
        self.kill(app)
        await self.fire(app)

    async def fire(self, app: App) -> None:
        """Let go of a process, dead or alive."""
        worker = self.working.pop(app, None)
        if worker is not None:
            await worker.stop()
        await app.aclose()
        self.doors.pop(app)

    async def close(self) -> None:
        for app in list(self.working):
            await self.fire(app)
        await super().close()

    def _beat(self, app: App) -> None:
        worker = self.working.get(app)
        if worker is not None and worker._pulse is not None:
            worker._pulse.beat()  # type: ignore[attr-defined]

    def set_wall(self, ms: float) -> None:
        """The wall clock jumps; nobody gets older."""
        self.clock.set_wall(ms)

    async def jump(self, until: str | float) -> None:
        """Let time go by until an instant, at once, and everything settle that follows from it."""
        target = utc(until) if isinstance(until, str) else until
        self.pass_time(max(0.0, target - self.clock.now_ms()) / 1000)
        await self.settle()

    async def settle(self) -> None:
        """Until nothing is due, nobody has mail and nobody holds a run, in next to no time."""
        began, looks = self.clock.now_ms(), 0

        async def is_quiet() -> bool:
            nonlocal looks
            if await self._is_quiet():
                return True
            looks += 1
            if self.clock.now_ms() < began + DRIFT_MS or looks % LOOKS_PER_TICK == 0:
                self.pass_time(TICK_MS / 1000)
            return False

        await self.until(is_quiet, step=0)

    async def _is_quiet(self) -> bool:
        if not self.working:
            return True
        # A worker that is about to look must have looked.
        for app, worker in list(self.working.items()):
            if worker.failure is not None or self.doors[app].error is not None:
                return True
            worker._poke.set()
        await asyncio.sleep(0)
        page = await self.store.find(Query(), None, 1000)
        known = {*self._known()}
        runs = [each for each in page.items if each.header.flow in known and _is_open(each)]
        if any(_is_busy(each) for each in runs):
            return False
        now, due = self.clock.now_ms(), [each.header.wake_at for each in runs]
        soon = min((at for at in due if at is not None and at <= now + SOON_MS), default=None)
        if soon is not None:
            self.pass_time(max(0, soon - now) / 1000)
        return soon is None

    def _known(self) -> Iterator[str]:
        for worker in self.working.values():
            yield from worker.versions

    async def fired(self, name: str = "s") -> list[str]:
        """Runs that a schedule started, in the order of their instants."""
        found, after = [], None
        while True:
            page = await self.store.find(Query(tag=(NAME_TAG, name)), after, 1000)
            found += [each.head.run_id for each in page.items]
            after = page.next
            if after is None:
                return sorted(found)

    async def outcomes(self, name: str = "s") -> list[Any]:
        """What those runs returned."""
        reader = App(self.store, drive=False)
        try:
            return [await (await reader.get(run_id)).outcome() for run_id in await self.fired(name)]
        finally:
            reader._reader.close()


def _is_open(each: Any) -> bool:
    return each.header.ended_at is None and each.header.status != "quarantined"


def _is_busy(each: Any) -> bool:
    return each.head.worker is not None or each.head.posted != each.head.consumed
