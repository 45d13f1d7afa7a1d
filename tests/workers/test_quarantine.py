"""A quarantined run: what is posted to it is kept, a nudge frees it, a cancel ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import outlive
from outlive.app.app import App
from outlive.app.handle import Handle
from outlive.engine.inputs import encode_own
from outlive.errors import CorruptRecord, RunCancelled, RunQuarantined, StoreFailed
from outlive.journal.lane import run_immediate
from outlive.journal.mail import write_letter
from outlive.model.decide import CLAIMS_MAX
from outlive.model.events import EffectRaised, SignalReceived
from outlive.model.mail import Cancel, Signal
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.types import StoredRecord
from outlive.testing.suite.entries import post_one
from outlive.worker.repertoire import all_of

QUICK = Settings(lease_seconds=60, poll_seconds=0.01, idle_seconds=0.0, drain_seconds=2)

is_poison = True
undone: list[str] = []


@outlive.step
async def swallow() -> str:
    while is_poison:
        await asyncio.sleep(0.01)
    return "swallowed"


async def take_back() -> None:
    undone.append("paid")


@outlive.effect(undo=take_back)
async def pay() -> None:
    pass


@outlive.flow
async def poisoned() -> str:
    """Pays, and never gets any further while there is poison; then a signal is read."""
    await pay()
    await swallow()
    return str(await outlive.wait_signal("go", type=str))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(lease_seconds=60)


@pytest.fixture
async def app(store: MemoryStore) -> AsyncIterator[App]:
    global is_poison
    is_poison = True
    undone.clear()
    async with App(store, settings=QUICK) as app:
        await app.submit(poisoned, id="r")
        await die_often(store, CLAIMS_MAX + 1)
        async with app.worker([poisoned]):
            await reaches(app, "quarantined")
        yield app


async def die_often(store: MemoryStore, times: int) -> None:
    """Workers that drive the run and die of it, with nothing to show for it."""
    for _ in range(times):
        doomed = App(store, settings=QUICK)
        worker = doomed._workers.make(all_of([poisoned]), everything=True, concurrency=1)
        worker.start()
        while "r" not in worker.driving or worker.log_of("r").seq != worker.log_of("r").durable:
            await asyncio.sleep(0.002)
        while "0/swallow#1" not in [op.id for op in worker._drives["r"].waiting.all()]:
            await asyncio.sleep(0.002)
        doomed._writer.keeper.end(StoreFailed("the process is gone"))
        await worker.stop()
        store.kill(worker.id)
        doomed._reader.is_closed = True


async def reaches(app: App, status: str) -> Handle:
    handle = await app.get("r", poisoned)
    async with asyncio.timeout(10):
        while await handle.status() != status:
            await asyncio.sleep(0.005)
    return handle


async def post(store: MemoryStore, mail_id: str, letter: Signal | Cancel) -> None:
    assert "posted" == await post_one(store, "r", mail_id, write_letter("r", mail_id, letter))


async def test_other_mail_waits_and_nobody_is_killed_for_it(app: App, store: MemoryStore) -> None:
    """Workers look at it and claim nothing; once the run is freed it is all there."""
    global is_poison
    before = (await app.read("r")).head.seq
    await post(store, "s1", Signal("go", encode_own("early")))
    for _ in range(2):
        async with app.worker([poisoned]):
            await asyncio.sleep(0.1)
    reading = await app.read("r")
    assert (before, "quarantined") == (reading.head.seq, reading.header.status)
    assert 1 == len(reading.mail)
    with pytest.raises(RunQuarantined):
        await (await app.get("r")).outcome(timeout=5)

    is_poison = False
    await app.nudge("r", "cured")
    async with app.worker([poisoned]):
        assert "early" == await (await app.get("r", poisoned)).outcome(timeout=5)
    head = (await app.read("r")).head
    assert head.posted == head.consumed
    events = await (await app.get("r")).read()
    assert 1 == sum(isinstance(event, SignalReceived) for event in events)


async def test_many_quarantined_runs_with_mail_keep_nobody_out(
    app: App, store: MemoryStore
) -> None:
    """What is offered in vain does not count against what a worker may take."""
    await post(store, "s1", Signal("go", encode_own("early")))

    async with app.worker([poisoned, fine], concurrency=1):
        for number in range(3):
            handle = await app.submit(fine, id=f"f{number}")
            assert "fine" == await handle.outcome(timeout=5)


@outlive.flow
async def fine() -> str:
    return "fine"


async def test_a_cancelled_one_that_can_be_driven_ends_as_others_do(
    app: App, store: MemoryStore
) -> None:
    """It gets one more chance: cancelled where it waits, and what it did is undone."""
    await post(store, "c1", Cancel("ann"))
    async with app.worker([poisoned]):
        handle = await reaches(app, "cancelled")
    assert ["paid"] == undone
    with pytest.raises(RunCancelled):
        await handle.outcome(timeout=5)


async def test_a_cancelled_one_that_kills_again_ends_without_its_code(
    app: App, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one more death it is over; its last event says that nothing was undone."""
    await post(store, "c1", Cancel("ann"))
    doomed = App(store, settings=QUICK)
    worker = doomed._workers.make(all_of([poisoned]), everything=True, concurrency=1)
    monkeypatch.setattr(worker, "_drive", None)
    worker._loading._take = lambda *claimed: doomed._writer.keeper.end(StoreFailed("gone"))
    worker.start()
    await worker.wait()
    store.kill(worker.id)
    doomed._reader.is_closed = True

    async with app.worker([poisoned]):
        handle = await reaches(app, "cancelled")
    reading = await app.read("r")
    assert "nothing was undone" in reading.header.reason
    assert reading.head.posted == reading.head.consumed
    assert reading.header.ended_at is not None
    assert [] == [event for event in await handle.read() if isinstance(event, EffectRaised)]


async def test_a_damaged_run_is_reported_and_given_back(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Each worker claims it once; nobody keeps its lease, and its header says why."""
    async with App(store, settings=QUICK) as app:
        await app.submit(fine, id="d")
        journal = store._journals["d"]
        record = journal.records[0]
        journal.records[0] = StoredRecord(record.seq, record.body[:-1] + b"\x00")
        async with app.worker([fine]):
            await asyncio.sleep(0.1)
            reading = run_immediate(store.read("d"))
            assert reading is not None
            assert (None, 3) == (reading.head.worker, reading.head.seq)
            assert None is reading.header.wake_at
            assert "run d, seq 1" in reading.header.reason
    assert 1 == sum("run d, seq 1" in line.message for line in caplog.records)
    with pytest.raises(CorruptRecord):
        async with App(store, settings=QUICK) as again:
            await (await again.get("d")).read()
