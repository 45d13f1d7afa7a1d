"""Cancellation inside a flow: steps are told at once, effects when their attempt is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import outlive
from outlive.model.events import (
    AttemptFailed,
    EffectDone,
    EffectDoubted,
    EffectIntended,
    EffectRaised,
    StepDone,
)
from tests.harness.scene import EVICTING, Scene
from tests.order.journals import drive_on


class Stage:
    """Bodies that wait for their cue, and what became of them."""

    def __init__(self) -> None:
        self.cues: dict[str, asyncio.Event] = {}
        self.seen: list[str] = []

    def cue(self, name: str) -> asyncio.Event:
        return self.cues.setdefault(name, asyncio.Event())

    async def play(self, name: str) -> str:
        self.seen.append(f"{name} begins")
        try:
            await self.cue(name).wait()
        except asyncio.CancelledError:
            self.seen.append(f"{name} is cancelled")
            raise
        self.seen.append(f"{name} ends")
        return name


def group_flow(act: Callable[[], Any], stage: Stage) -> outlive.Flow[[], Any]:
    """One branch acts, the other fails at its cue; what the first one saw is returned."""

    @outlive.step
    async def fails() -> None:
        await stage.play("fails")
        raise ValueError("the other branch")

    @outlive.flow
    async def grouped() -> list[str]:
        seen: list[str] = []

        async def acting() -> None:
            try:
                seen.append(f"got {await act()}")
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(acting())
                group.create_task(fails())
        except* ValueError:
            seen.append("failed")
        return seen

    return grouped


async def replays(scene: Scene, flow: outlive.Flow[[], Any], live: Any) -> None:
    """The run, replayed from its whole journal, sees the same."""
    handle = await scene.open().get("r")
    recorded = (await handle.read())[:-1]
    again = await drive_on(recorded, flow, run_id="r")
    assert again.outcome == ("returned", live)
    assert len(again.events) == len(recorded) + 2


async def test_a_cancelled_step_is_told_at_once(scene: Scene) -> None:
    """Its body is cancelled; nothing is recorded, because a repeat is as good."""
    stage = Stage()

    @outlive.step
    async def slow() -> str:
        return await stage.play("slow")

    flow = group_flow(slow, stage)
    handle = await scene.open().start(flow, id="r")
    await scene.until(lambda: "slow begins" in stage.seen)
    stage.cue("fails").set()

    live = await scene.outcome(handle)

    assert live == ["cancelled", "failed"]
    assert "slow is cancelled" in stage.seen
    assert not await scene.events(handle, StepDone)
    await replays(scene, flow, live)


async def test_a_running_effect_is_shielded(scene: Scene) -> None:
    """The cancellation comes when the attempt has ended; its outcome is in the journal."""
    stage = Stage()

    @outlive.effect
    async def pay() -> str:
        return await stage.play("pay")

    flow = group_flow(pay, stage)
    handle = await scene.open().start(flow, id="r")
    await scene.until(lambda: "pay begins" in stage.seen)
    stage.cue("fails").set()
    await scene.until(lambda: "fails ends" in stage.seen)
    for _ in range(50):
        await asyncio.sleep(0)
    assert "pay is cancelled" not in stage.seen
    stage.cue("pay").set()

    live = await scene.outcome(handle)

    assert live == ["cancelled", "failed"]
    assert stage.seen[-1] == "pay ends"
    assert len(await scene.events(handle, EffectDone)) == 1
    await replays(scene, flow, live)


async def test_a_shielded_effect_ends_at_its_limit(scene: Scene) -> None:
    """The cancellation comes with the doubt; the doubt is settled all the same."""
    stage = Stage()

    @outlive.effect(timeout="10s", settle_after="1s", check=lambda: "found")
    async def pay() -> str:
        return await stage.play("pay")

    flow = group_flow(pay, stage)
    handle = await scene.open().start(flow, id="r")
    await scene.until(lambda: "pay begins" in stage.seen)
    stage.cue("fails").set()

    live = await scene.outcome(handle, step=0.5)

    assert live == ["cancelled", "failed"]
    (doubted,) = await scene.events(handle, EffectDoubted)
    assert doubted.at >= 10_000
    assert len(await scene.events(handle, EffectDone)) == 1
    await replays(scene, flow, live)


async def test_an_effect_that_has_not_begun_never_does(scene: Scene) -> None:
    """Cancelled while its intent was on its way to the disk: it is told that nothing happened."""
    stage = Stage()

    @outlive.effect
    async def pay() -> str:
        return await stage.play("pay")

    @outlive.step
    async def opens() -> None:
        await stage.play("opens")

    async def act() -> str:
        await opens()
        return await pay()

    flow = group_flow(act, stage)
    app = scene.open()
    handle = await app.start(flow, id="r")
    await scene.until(lambda: len(stage.seen) == 2)
    door = scene.doors[app]
    door.open.clear()
    stage.cue("opens").set()
    await scene.until(lambda: "opens ends" in stage.seen)
    stage.cue("fails").set()
    await scene.until(lambda: "fails ends" in stage.seen)
    for _ in range(50):
        await asyncio.sleep(0)
    door.open.set()

    live = await scene.outcome(handle)

    assert live == ["cancelled", "failed"]
    assert "pay begins" not in stage.seen
    (raised,) = await scene.events(handle, EffectRaised)
    assert raised.happened is False
    await replays(scene, flow, live)


async def test_an_effect_in_doubt_is_no_longer_shielded(scene: Scene) -> None:
    """Its attempt is over: the cancellation does not wait for the human who settles it."""
    stage = Stage()

    @outlive.effect(doubt="ask")
    async def pay() -> str:
        raise OSError("lost")

    @outlive.step
    async def after() -> str:
        return await stage.play("after")

    grouped = group_flow(pay, stage)

    @outlive.flow
    async def flow() -> list[str]:
        return [*await grouped(), await after()]

    handle = await scene.open().start(flow, id="r")
    await scene.until(lambda: scene.events(handle, EffectDoubted))
    stage.cue("fails").set()

    await scene.until(lambda: "after begins" in stage.seen)
    stage.cue("after").set()
    await scene.status(handle, "in_doubt")
    await scene.open().resolve("r", "0.1/pay#1", "fail")

    live = await scene.outcome(handle)
    assert live == ["cancelled", "failed", "after"]
    await replays(scene, flow, live)


async def test_an_effect_between_attempts_is_not_shielded(scene: Scene) -> None:
    """Nothing runs: the cancellation does not wait for the back-off, and no attempt follows."""
    stage = Stage()
    tried: list[int] = []

    @outlive.effect(retry=outlive.Retry(attempts=5, delay="1h", delay_max="1h", jitter=False))
    async def pay() -> str:
        tried.append(outlive.attempt())
        raise outlive.NotHappened("busy")

    flow = group_flow(pay, stage)
    handle = await scene.open().start(flow, id="r")
    await scene.until(lambda: scene.events(handle, AttemptFailed))
    stage.cue("fails").set()

    live = await scene.outcome(handle, step=0)

    assert live == ["cancelled", "failed"]
    assert tried == [1]
    await replays(scene, flow, live)


async def test_a_time_limit_over_an_effect_waits_for_its_attempt(scene: Scene) -> None:
    """asyncio.timeout and wait_for alike: TimeoutError, but not before the attempt is over."""
    stage = Stage()

    @outlive.effect
    async def pay(name: str) -> str:
        return await stage.play(name)

    @outlive.flow
    async def flow() -> list[str]:
        seen = []
        try:
            async with asyncio.timeout(5):
                seen.append(await pay("first"))
        except TimeoutError:
            seen.append("first timed out")
        try:
            seen.append(await asyncio.wait_for(pay("second"), 5))
        except TimeoutError:
            seen.append("second timed out")
        return seen

    handle = await scene.open().start(flow, id="r")
    for name in ("first", "second"):
        await scene.until(lambda name=name: f"{name} begins" in stage.seen)
        for _ in range(20):
            scene.clock.advance(1)
            await asyncio.sleep(0)
        stage.cue(name).set()
        await scene.until(lambda name=name: f"{name} ends" in stage.seen)

    live = await scene.outcome(handle)

    assert live == ["first timed out", "second timed out"]
    assert len(await scene.events(handle, EffectDone)) == 2
    await replays(scene, flow, live)


async def test_a_flow_that_cancels_itself_replays_as_it_ran(scene: Scene) -> None:
    """A cancellation that is pending when an effect is called comes after it, live as replayed."""
    ran: list[str] = []

    @outlive.effect
    async def pay() -> str:
        ran.append("pay")
        return "paid"

    @outlive.step
    async def look() -> str:
        ran.append("look")
        return "seen"

    @outlive.flow
    async def flow() -> list[str]:
        seen: list[str] = []

        async def branch(call: Any) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            seen.append(await call())

        for call in (pay, look):
            task = asyncio.create_task(branch(call))
            await asyncio.wait([task])
            seen.append(f"{call.definition.name} cancelled: {task.cancelled()}")
        return seen

    handle = await scene.open().start(flow, id="r")

    live = await scene.outcome(handle)

    await replays(scene, flow, live)
    assert live == ["pay cancelled: True", "look cancelled: True"]


async def test_a_cancelled_wait_can_be_waited_for_again(scene: Scene) -> None:
    """A shielded step goes on; its outcome reaches whoever awaits it later."""
    stage = Stage()

    @outlive.step
    async def slow() -> str:
        return await stage.play("slow")

    @outlive.flow
    async def flow() -> list[str]:
        task = asyncio.create_task(slow())
        seen = []
        try:
            await asyncio.wait_for(asyncio.shield(task), 5)
        except TimeoutError:
            seen.append("not yet")
        return [*seen, await task]

    handle = await scene.open().start(flow, id="r")
    await scene.until(lambda: "slow begins" in stage.seen)
    for _ in range(20):
        scene.clock.advance(1)
        await asyncio.sleep(0)
    stage.cue("slow").set()

    live = await scene.outcome(handle)

    assert live == ["not yet", "slow"]
    await replays(scene, flow, live)


async def test_timed_out_steps_leave_nothing_that_keeps_a_run_in_memory(scene: Scene) -> None:
    """After a replay, too: what was given up on is neither begun again nor waited for."""
    stage = Stage()

    @outlive.step
    async def slow() -> str:
        return await stage.play("slow")

    @outlive.flow
    async def flow() -> int:
        slept = 0
        for _ in range(3):
            try:
                await asyncio.wait_for(slow(), 5)
            except TimeoutError:
                await outlive.sleep("1h")
                slept += 1
        return slept

    handle = await scene.open(EVICTING).start(flow, id="r")

    assert await scene.outcome(handle, step=30) == 3
    assert stage.seen == ["slow begins", "slow is cancelled"] * 3
    assert not await scene.events(handle, EffectIntended)
