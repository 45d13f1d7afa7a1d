"""What it costs to take a run up again: each journal is read once, many in one go."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.journal.mail import Outbox
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Reading

QUIET = Settings(lease_seconds=60, poll_seconds=600, idle_seconds=0.0, drain_seconds=2)
COUNT = 50

dying = False


class Gate:
    """Where the first new step of a run that was taken up says that it has begun, and waits."""

    reached = released = asyncio.Event()


class Counted(MemoryStore):
    """Counts the records that are read, by run, and the verbs."""

    def __init__(self) -> None:
        super().__init__(lease_seconds=60)
        self.records: Counter[str] = Counter()
        self.verbs: Counter[str] = Counter()
        #: Their leases stand, whatever is left of their process says.
        self.dead: set[str] = set()

    async def release(self, worker: str) -> None:
        if worker not in self.dead:
            await super().release(worker)

    async def read(
        self, run_id: str, after: int = 0, *, limit: int | None = None
    ) -> Reading | None:
        reading = await super().read(run_id, after, limit=limit)
        self.verbs["read"] += 1
        self.records[run_id] += 0 if reading is None else len(reading.records)
        return reading

    async def claim(self, *args: Any) -> Any:
        self.verbs["claim"] += 1
        return await super().claim(*args)


@outlive.step
async def count_up(number: int) -> int:
    return number + 1


@outlive.step
async def last() -> str:
    if dying:
        await asyncio.sleep(3600)
    Gate.reached.set()
    await Gate.released.wait()
    return "done"


@outlive.flow
async def long() -> str:
    for number in range(COUNT):
        await count_up(number)
        await asyncio.sleep(0)
    return await last()


@outlive.flow
async def doze(seconds: float) -> float:
    await outlive.sleep(seconds)
    return seconds


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Gate.reached, Gate.released = asyncio.Event(), asyncio.Event()


async def die_with(store: Counted, *run_ids: str) -> None:
    """Let a process die that drives these runs."""
    global dying
    dying = True
    app = App(store, settings=QUIET)
    for run_id in run_ids:
        await app.start(long, id=run_id)
    worker = app._workers.of_loop()
    while any(d.log.durable < COUNT + 2 for d in worker._drives.values()):
        await asyncio.sleep(0.001)
    store.dead.add(worker.id)
    store.kill(worker.id)
    for drive in list(worker._drives.values()):
        drive.leaving.abandon()
    await app.aclose()
    dying = False
    store.records.clear()
    store.verbs.clear()


@pytest.mark.parametrize("way", ["start", "resume", "worker"])
async def test_a_run_whose_driver_died_is_read_once(way: str) -> None:
    """Whoever takes it up, and though it is on probation before it is claimed."""
    store = Counted()
    await die_with(store, "r")
    whole = await MemoryStore.read(store, "r")
    assert whole is not None

    async with App(store, settings=QUIET) as app, AsyncExitStack() as open_while:
        if way == "worker":
            await open_while.enter_async_context(app.worker([long]))
        elif way == "resume":
            await app.resume("r", [long])
        else:
            await app.start(long, id="r")
        await asyncio.wait_for(Gate.reached.wait(), 5)
        read = store.records["r"]
        Gate.released.set()

    assert len(whole.records) == read


async def test_many_runs_are_claimed_in_one_round() -> None:
    """A round per portion, not per run."""
    store = Counted()
    ids = [f"r{number}" for number in range(30)]
    await die_with(store, *ids)
    Gate.released.set()

    async with App(store, settings=QUIET) as app, app.worker([long]) as worker:
        for run_id in ids:
            await (await app.get(run_id)).outcome(timeout=5)
        assert not worker.driving

    assert store.verbs["claim"] < 15


async def test_a_worker_wakes_up_when_a_run_gets_due() -> None:
    """Though it would look again only in ten minutes."""
    settings = Settings(lease_seconds=60, poll_seconds=600, idle_seconds=0.0)
    async with App(MemoryStore(), settings=settings) as app:
        handle = await app.start(doze, 0.2)

        assert 0.2 == await handle.outcome(timeout=5)


async def test_what_is_submitted_and_posted_here_is_seen_here_at_once() -> None:
    """By a worker of the same process that would look again only in ten minutes."""

    @outlive.flow
    async def listening() -> str:
        return await outlive.wait_signal("s", type=str)

    async with App(MemoryStore(), settings=QUIET) as app, app.worker([listening, doze]) as worker:
        submitted = await app.submit(listening, id="r")
        while "waiting" != await submitted.status() or worker.driving:
            await asyncio.sleep(0.001)
        await submitted.signal("s", "hello")

        assert "hello" == await submitted.outcome(timeout=5)


async def test_an_app_with_many_sleepers_looks_at_few(tmp_path: Path) -> None:
    """Of a thousand that it started, a round looks only at those that may be due."""
    store = SQLiteStore(tmp_path / "o.db", connect=None)
    async with App(store, settings=QUIET) as app:
        await asyncio.gather(*(app.start(doze, 3600.0, id=f"r{n}") for n in range(1000)))
        worker = app._workers.of_loop()
        while worker.driving:
            await asyncio.sleep(0.01)
        statements: list[str] = []
        with store._connections.reading() as db:
            db.set_trace_callback(statements.append)  # type: ignore[attr-defined]
        await worker._round()

    assert 0 < len(statements) < 100


# mail on its way out


class SlowRoom(MemoryStore):
    """Counts flushes of mail."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    async def post(self, batch: Any) -> Any:
        self.batches.append(len(batch))
        if any(letter.mail_id == "odd" for letter in batch):
            raise ValueError("an odd letter")
        return await super().post(batch)

    async def mail_of(self, run_ids: Any) -> Any:
        return {}


async def later(work: Any) -> Any:
    await asyncio.sleep(0)
    return await work


async def test_mail_posted_together_shares_flushes() -> None:
    """Everybody gets an answer of their own."""
    store = SlowRoom()
    outbox = Outbox(store, later, asyncio.create_task)

    answers = await asyncio.gather(*(outbox.post("r", str(n), b"") for n in range(100)))

    assert (["unknown"] * 100, [100]) == (answers, store.batches)


async def test_one_odd_letter_does_not_keep_the_others() -> None:
    """Who posted it hears what is wrong with it."""
    store = SlowRoom()
    outbox = Outbox(store, later, asyncio.create_task)

    told = await asyncio.gather(
        *(outbox.post("r", each, b"") for each in ("a", "odd", "b")), return_exceptions=True
    )

    assert ("unknown", "unknown") == (told[0], told[2])
    assert isinstance(told[1], ValueError)


async def test_who_no_longer_waits_keeps_nobody() -> None:
    """A poster that was cancelled leaves the others their answers."""
    outbox = Outbox(SlowRoom(), later, asyncio.create_task)
    gone = asyncio.ensure_future(outbox.post("r", "1", b""))
    stays = asyncio.ensure_future(outbox.post("r", "2", b""))
    await asyncio.sleep(0)
    gone.cancel()

    assert "unknown" == await stays
    assert "unknown" == await outbox.post("r", "3", b"")


async def test_a_run_that_is_asked_for_twice_is_driven_once() -> None:
    """Both callers read it before either claims it; claims of one worker may be the same bytes."""
    store = Counted()
    await die_with(store, "r")
    Gate.released.set()
    drives: list[str] = []

    async with App(store, settings=QUIET) as app:
        worker = app._workers.of_loop()
        drive = worker._drive

        def counted(log: Any, *args: Any) -> None:
            drives.append(log.run_id)
            drive(log, *args)

        worker._loading._take = counted
        handles = await asyncio.gather(
            *(app.start(long, id="r") for _ in range(5)), app.resume("r", [long])
        )
        for handle in handles:
            await handle.outcome(timeout=5)

    assert drives == ["r"]
