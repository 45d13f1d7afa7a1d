"""What waits for the disk and what does not, counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.journal.log import RunLog
from outlive.model.events import EffectIntended, StepDone
from outlive.settings import Settings
from outlive.stores.sqlite.store import SQLiteStore
from tests.harness.scene import Door, Scene

Figure = Callable[[str, object], None]
BUSY = Settings(lease_seconds=60.0, poll_seconds=5.0, idle_seconds=60.0)


@outlive.step
async def look(number: int) -> int:
    return number


@outlive.effect
async def change(number: int) -> int:
    await asyncio.sleep(0)
    return number


@outlive.flow
async def changing(times: int) -> int:
    total = 0
    for number in range(times):
        total += await change(number)
    return total


async def test_a_sequential_effect_awaits_one_flush(tmp_path: Path, figure: Figure) -> None:
    """Outcome n and intent n+1 travel together: n effects cost n flushes, and start and end."""
    door = Door(SQLiteStore(tmp_path / "runs.db"))
    async with App(door, settings=BUSY) as app:
        assert await (await app.start(changing, 20, id="r")).outcome("20s") == 190
        flushes = app._writer.keeper.counters.flushes
        await door.store.close()

    assert flushes == len(door.batches) == 20 + 2
    figure("counters: flushes of 20 sequential effects, start and end included", flushes)


async def test_steps_before_an_effect_travel_with_its_intent(tmp_path: Path) -> None:
    """Plain steps add no flush of their own to an effect's, however many they are."""

    @outlive.flow
    async def mixed() -> int:
        for number in range(5):
            for _ in range(3):
                await look(number)
            await change(number)
        return 5

    door = Door(SQLiteStore(tmp_path / "runs.db"))
    async with App(door, settings=BUSY) as app:
        assert await (await app.start(mixed, id="r")).outcome("20s") == 5
        await door.store.close()

    intents = [batch for batch in door.batches if any(has_intent(e.record) for e in batch)]
    assert len(intents) == 5


def has_intent(record: bytes) -> bool:
    """The envelope's bits say which kinds of event a record holds."""
    return bool(record[5] & 8)


async def test_plain_steps_wait_for_no_flush(scene: Scene) -> None:
    """They go on while the disk hangs; only the run's end waits for it."""
    app = scene.open()
    door = scene.doors[app]
    ran: list[int] = []

    @outlive.step
    async def hang_then_count(number: int) -> int:
        if number == 0:
            door.open.clear()
        ran.append(number)
        return number

    @outlive.flow
    async def counting() -> int:
        return sum([await hang_then_count(number) for number in range(100)])

    handle = await app.start(counting, id="r")
    outcome = asyncio.ensure_future(handle.outcome())
    await scene.until(lambda: len(ran) == 100)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not outcome.done()
    door.open.set()

    await scene.until(outcome.done)
    assert outcome.result() == 4950


async def test_an_effect_waits_for_everything_before_it(scene: Scene) -> None:
    """Also for what other branches did: causality between them can't be seen."""
    app = scene.open()
    door = scene.doors[app]
    begun: list[int] = []
    gate = asyncio.Event()

    @outlive.effect
    async def pay() -> None:
        begun.append(len(door.batches))

    @outlive.step
    async def shut() -> None:
        await gate.wait()
        door.open.clear()

    @outlive.flow
    async def paying() -> None:
        async def one() -> None:
            await shut()

        async def other() -> None:
            await shut()
            await pay()

        await asyncio.gather(one(), other())

    handle = await app.start(paying, id="r")
    gate.set()
    await scene.until(lambda: not door.open.is_set())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not begun
    door.open.set()

    await scene.outcome(handle)
    assert len(begun) == 1
    (intent,) = await scene.events(handle, EffectIntended)
    events = await handle.read()
    assert len([e for e in events[: events.index(intent)] if isinstance(e, StepDone)]) == 2


async def test_all_runs_of_a_tick_share_one_transaction(tmp_path: Path, figure: Figure) -> None:
    """Two hundred runs go on in one turn of the loop: one commit, an entry for each."""
    gate = asyncio.Event()
    waiting: list[int] = []

    @outlive.step
    async def wait_for_gate(number: int) -> int:
        waiting.append(number)
        await gate.wait()
        return number

    @outlive.flow
    async def gated(number: int) -> int:
        return await wait_for_gate(number)

    door = Door(SQLiteStore(tmp_path / "runs.db"))
    async with App(door, settings=BUSY) as app:
        handles = await asyncio.gather(*(app.start(gated, n, id=str(n)) for n in range(200)))
        while len(waiting) < 200:
            await asyncio.sleep(0)
        before = len(door.batches)
        gate.set()
        outcomes = await asyncio.gather(*(handle.outcome("20s") for handle in handles))
        await door.store.close()

    assert outcomes == list(range(200))
    assert [len(batch) for batch in door.batches[before:]] == [200]
    figure("counters: commits of one step's outcome and the end of 200 runs in one tick", 1)
    figure("counters: commits that started 200 runs", before)


async def test_no_outcome_waits_for_more_than_two_flushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    """With 200 runs busy: the one that is under way, and its own."""
    ages = note_ages(monkeypatch)

    @outlive.flow
    async def busy(number: int) -> int:
        for turn in range(10):
            await look(turn)
            await change(turn)
        return number

    store = SQLiteStore(tmp_path / "runs.db")
    async with App(store, settings=BUSY) as app:
        handles = await asyncio.gather(*(app.start(busy, n, id=str(n)) for n in range(200)))
        outcomes = await asyncio.gather(*(handle.outcome("60s") for handle in handles))
        counters = app._writer.keeper.counters

    assert outcomes == list(range(200))
    assert counters.flushes_waited_max <= 2
    ages.sort()
    figure(
        "counters: most flushes that anything waited for, 200 runs busy",
        counters.flushes_waited_max,
    )
    figure("counters: flushes for 200 runs of 10 steps and 10 effects", counters.flushes)
    figure("counters: p99 age of an event when durable, ms", round(ages[len(ages) * 99 // 100], 1))


def note_ages(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each event waited from its append until its run knew it to be durable, in ms."""
    ages: list[float] = []
    born: dict[tuple[str, int], float] = {}
    append, append_all, settle = RunLog.append, RunLog.append_all, RunLog.settle

    def noting_append(log: RunLog, *args: Any) -> int:
        born[log.run_id, log.seq + 1] = perf_counter()
        return append(log, *args)

    def noting_append_all(log: RunLog, events: Sequence[Any]) -> None:
        for seq in range(log.seq + 1, log.seq + 1 + len(events)):
            born[log.run_id, seq] = perf_counter()
        append_all(log, events)

    def noting_settle(log: RunLog, upto: int, error: Any) -> None:
        now = perf_counter()
        for seq in range(log.durable + 1, upto + 1):
            ages.append((now - born.pop((log.run_id, seq))) * 1000)
        settle(log, upto, error)

    monkeypatch.setattr(RunLog, "append", noting_append)
    monkeypatch.setattr(RunLog, "append_all", noting_append_all)
    monkeypatch.setattr(RunLog, "settle", noting_settle)
    return ages


async def test_an_outcome_is_flushed_though_nothing_follows(scene: Scene) -> None:
    """On the next tick, not with the next intent: a slow step may come next."""
    gate = asyncio.Event()

    @outlive.step
    async def slow() -> None:
        await gate.wait()

    @outlive.flow
    async def two() -> None:
        await look(1)
        await slow()

    handle = await scene.open().start(two, id="r")

    await scene.until(lambda: scene.events(handle, StepDone))
    gate.set()
    await scene.outcome(handle)


async def test_a_tick_with_large_outcomes_is_written_in_several_records(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record outgrows what a store takes; nothing is lost, and the order is kept."""
    monkeypatch.setattr("outlive.journal.log.RECORD_FULL_BYTES", 100)
    monkeypatch.setattr("outlive.journal.record.BODY_BYTES_MAX", 1000)

    @outlive.step
    async def large(number: int) -> bytes:
        return bytes([number]) * 300

    @outlive.flow
    async def many() -> int:
        return sum(map(len, await asyncio.gather(*(large(number) for number in range(20)))))

    handle = await scene.open().start(many, id="r")

    assert await scene.outcome(handle) == 6000
    steps = [event.step for event in await scene.events(handle, StepDone)]
    assert steps == [f"0.{number}/large#1" for number in range(1, 21)]
    reading = await scene.store.read("r")
    assert reading is not None
    assert len(reading.records) >= 20
