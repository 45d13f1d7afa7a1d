"""What waits for the disk and what does not; what happens when the disk or the lease is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

import outlive
from outlive.app import App
from outlive.engine.drive import UNDURABLE_MAX
from outlive.errors import StoreFailed
from outlive.journal.log import RunLog
from outlive.model.events import EffectIntended, StepDone
from outlive.settings import Settings
from outlive.store import Offer
from outlive.stores.sqlite import SQLiteStore
from outlive.worker.claims import claim_entry
from tests.unit.scene import STAYING, Door, Scene

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


@outlive.flow
async def looking(times: int) -> int:
    total = 0
    for number in range(times):
        total += await look(number)
    return total


# ---------------------------------------------------------------- counters, on SQLite


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
    append, settle = RunLog.append, RunLog.settle

    def noting_append(log: RunLog, *args: Any) -> int:
        seq = append(log, *args)
        born[log.run_id, seq] = perf_counter()
        return seq

    def noting_settle(log: RunLog, upto: int, error: Any) -> None:
        now = perf_counter()
        for seq in range(log.durable + 1, upto + 1):
            ages.append((now - born.pop((log.run_id, seq))) * 1000)
        settle(log, upto, error)

    monkeypatch.setattr(RunLog, "append", noting_append)
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


# ---------------------------------------------------------------- back-pressure


async def test_a_disk_that_is_behind_holds_back_new_steps(scene: Scene) -> None:
    """What is not durable is bounded; when the disk has caught up the run goes on."""
    app = scene.open()
    door = scene.doors[app]
    ran: list[int] = []

    @outlive.step
    async def count(number: int) -> int:
        ran.append(number)
        if number == 0:
            door.open.clear()
        return number

    @outlive.flow
    async def counting() -> int:
        return sum([await count(number) for number in range(3 * UNDURABLE_MAX)])

    handle = await app.start(counting, id="r")
    await scene.until(lambda: len(ran) > UNDURABLE_MAX)
    for _ in range(500):
        await asyncio.sleep(0)
    held_at = len(ran)
    door.open.set()

    assert held_at <= UNDURABLE_MAX + 3
    assert await scene.outcome(handle) == sum(range(3 * UNDURABLE_MAX))


# ---------------------------------------------------------------- the disk is gone


async def test_nothing_starts_behind_a_failed_flush(scene: Scene) -> None:
    """The effect whose intent was not written never runs, and the flow notices nothing."""
    app = scene.open()
    door = scene.doors[app]
    seen: list[str] = []

    @outlive.effect
    async def pay() -> None:
        seen.append("paid")

    gate = asyncio.Event()

    @outlive.step
    async def wait_for_gate() -> None:
        await gate.wait()

    @outlive.flow
    async def paying() -> None:
        try:
            await wait_for_gate()
            seen.append("before")
            await pay()
            seen.append("after")
        except Exception as error:
            seen.append(repr(error))

    handles = [await app.start(paying, id=str(n)) for n in range(3)]
    door.error = StoreFailed("fsync failed")
    gate.set()
    for handle in handles:
        with pytest.raises(StoreFailed, match="fsync failed"):
            await scene.outcome(handle)

    with pytest.raises(StoreFailed):
        await app.start(paying, id="later")
    assert seen == ["before"] * 3


async def test_runs_go_on_elsewhere_after_a_failed_flush(scene: Scene) -> None:
    """What was acknowledged is there; what was not is done again."""
    app = scene.open()
    door = scene.doors[app]
    ran: list[int] = []

    @outlive.step
    async def count(number: int) -> int:
        ran.append(number)
        if number == 3 and door.error is None:
            scene.crash(app)
        return number

    @outlive.effect(doubt="retry")
    async def honoured() -> None: ...

    @outlive.flow
    async def counting() -> int:
        total = 0
        for number in range(5):
            total += await count(number)
            await honoured()
        return total

    first = await app.start(counting, id="r")
    with pytest.raises(StoreFailed):
        await scene.outcome(first)

    handle = await scene.open().start(counting, id="r")

    assert await scene.outcome(handle) == 10
    assert ran == [0, 1, 2, 3, 3, 4]


# ---------------------------------------------------------------- the lease is gone


async def fence(scene: Scene, run_id: str) -> None:
    """Another worker, alive, takes the run over."""
    await scene.store.beat("rival")
    reading = await scene.store.read(run_id)
    assert reading is not None
    offer = Offer(head=reading.head, header=reading.header, certain=False)
    entry = claim_entry(offer, "rival", scene.clock.now_ms())
    assert await scene.store.commit([entry]) == [None]


async def test_a_fenced_run_stops_where_it_is(scene: Scene) -> None:
    """Its next append is refused; nothing that was queued reaches user code or the world."""
    gates = {name: asyncio.Event() for name in ("fenced", "free")}
    seen: list[str] = []

    @outlive.step
    async def wait_for_gate(name: str) -> None:
        await gates[name].wait()

    @outlive.effect
    async def pay(name: str) -> str:
        seen.append(f"paid for {name}")
        return "paid"

    @outlive.flow
    async def paying(name: str) -> str:
        try:
            await wait_for_gate(name)
            return await pay(name)
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                seen.append(f"{name} saw {error!r}")
            raise

    app = scene.open()
    fenced = await app.start(paying, "fenced", id="fenced")
    free = await app.start(paying, "free", id="free")
    await fence(scene, "fenced")
    for gate in gates.values():
        gate.set()

    assert await scene.outcome(free) == "paid"
    await scene.until(lambda: "fenced" not in driven(app))
    assert seen == ["paid for free"]
    epochs = [event.epoch for event in await fenced.read() if hasattr(event, "epoch")]
    assert epochs == [1, 2]
    assert not await scene.events(fenced, StepDone, EffectIntended)


def driven(app: App) -> set[str]:
    return {run for workers in app._workers.values() for each in workers for run in each.driving}


async def test_an_effect_that_runs_when_its_run_is_fenced_runs_out(scene: Scene) -> None:
    """Its outcome is refused; the new owner settles it as in doubt."""
    gate = asyncio.Event()
    paid: list[str] = []

    def find(key: str) -> Any:
        return "found" if paid else outlive.NOT_HAPPENED

    @outlive.effect(check=find, timeout="10s", settle_after="5s")
    async def pay() -> str:
        paid.append("begun")
        await gate.wait()
        return "paid"

    @outlive.flow
    async def paying() -> str:
        return str(await pay())

    app = scene.open(STAYING)
    handle = await app.start(paying, id="r")
    await scene.until(lambda: paid)
    await fence(scene, "r")
    gate.set()
    await scene.until(lambda: not driven(app))
    scene.store.kill("rival")

    other = await scene.open().start(paying, id="r")

    assert await scene.outcome(other) == "found"
    assert await scene.outcome(handle) == "found"
    assert paid == ["begun"]
