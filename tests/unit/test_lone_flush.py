"""A lone run on a quick disk flushes on its own thread; nobody else waits for a disk there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import StoreFailed
from outlive.journal import lane as immediate
from outlive.journal.lane import QUICK_TIMES
from outlive.stores.memory import MemoryStore

EFFECTS = 3 * QUICK_TIMES
PATIENT_SECONDS = 30.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no slow disk."""
    monkeypatch.setattr(immediate, "SLOW_SECONDS", PATIENT_SECONDS)


class Watched(MemoryStore):
    """Says on which thread it was written."""

    def __init__(self) -> None:
        super().__init__()
        self.writers: list[str] = []
        self.fails_here = False
        #: How often somebody else is found writing.
        self.busy = 0

    async def commit(self, batch: Sequence[Any], *, wait: bool = True) -> Any:
        if not wait:
            self.busy -= 1
            if self.busy >= 0:
                return None
        self.writers.append(threading.current_thread().name)
        if self.fails_here and self.writers[-1] != "outlive-keeper":
            raise StoreFailed("the disk is gone")
        return await super().commit(batch)

    @property
    def here(self) -> int:
        """Flushes on the loop's own thread."""
        return sum(name != "outlive-keeper" for name in self.writers)


@outlive.effect
async def touch(number: int) -> int:
    return number


@outlive.flow
async def touching(count: int) -> int:
    for number in range(count):
        await touch(number)
    return count


async def test_a_lone_run_flushes_by_itself_once_the_disk_proved_quick() -> None:
    """Its first flushes are the keeper's; most of the others are its own."""
    store = Watched()
    async with App(store) as app:
        assert EFFECTS == await (await app.start(touching, EFFECTS, id="r")).outcome()

    assert 0 == sum(name != "outlive-keeper" for name in store.writers[:QUICK_TIMES])
    assert store.here > QUICK_TIMES


async def test_runs_that_share_flushes_leave_them_to_the_keeper() -> None:
    """While one flush is under way the others must get on."""
    store = Watched()
    async with App(store) as app:
        handles = [await app.start(touching, EFFECTS, id=f"r{number}") for number in range(3)]
        together = store.here
        await handles[0].outcome()
        assert together == store.here
        await asyncio.gather(*(handle.outcome() for handle in handles))


async def test_a_slow_disk_is_the_keepers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever appends does not wait for it."""
    store = Watched()
    async with App(store) as app:
        writer = app._writer.thread
        time = writer._pace._clock.monotonic

        class Slow:
            """Every look at the clock finds that much time gone."""

            passed = 0.0

            def monotonic(self) -> float:
                self.passed += 2 * PATIENT_SECONDS
                return time() + self.passed

        monkeypatch.setattr(writer._pace, "_clock", Slow())
        assert EFFECTS == await (await app.start(touching, EFFECTS, id="r")).outcome()

    assert 0 == store.here


async def test_a_failure_there_is_the_keepers_end() -> None:
    """As on its own thread: the run stops, nothing is tried again."""
    store = Watched()
    store.fails_here = True
    async with App(store) as app:
        handle = await app.start(touching, EFFECTS, id="r")
        with pytest.raises(StoreFailed, match="the disk is gone"):
            await handle.outcome()
        assert isinstance(app._writer.keeper.failure, StoreFailed)
    assert 1 == store.here


async def test_nobody_waits_for_another_writer_there() -> None:
    """What was taken is kept and left to the keeper, and everything that came since with it."""
    store = Watched()
    store.busy = 2
    async with App(store) as app:
        assert EFFECTS == await (await app.start(touching, EFFECTS, id="r")).outcome("10s")
    assert -1 >= store.busy
    assert store.here > 0


async def test_a_store_that_may_have_to_wait_is_never_written_there() -> None:
    """A network is quick until it is gone."""
    store = Watched()
    store.busy = 1_000_000
    async with App(store) as app:
        assert EFFECTS == await (await app.start(touching, EFFECTS, id="r")).outcome()
    assert 0 == store.here
