"""What happens when the disk is behind, or gone, or the lease is somebody else's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.engine.steps import UNDURABLE_MAX
from outlive.errors import StoreFailed
from outlive.model.events import EffectIntended, StepDone
from outlive.stores.types import Offer
from outlive.worker.entries import claim_entry
from tests.harness.scene import STAYING, Scene

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
            scene.kill(app)
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
    entry, _ = claim_entry(offer, "rival", scene.clock.now_ms())
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
    return {
        run for workers in app._workers.own.values() for each in workers for run in each.driving
    }


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
