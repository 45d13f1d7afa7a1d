"""Attempts: bodies in tasks and threads, retries with back-off, time limits."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from typing import Any

import pytest

import outlive
from outlive.app.handle import Handle
from outlive.errors import RunFailed, StepFailed
from outlive.model.events import AttemptFailed, Parked, RunStarted, StepDone, StepRaised
from outlive.testing.clock import FakeClock
from tests.harness.scene import EVICTING, Scene

#: Set by a test; bodies see what the flow that called them set.
tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


async def test_bodies_see_the_context_of_the_flow(scene: Scene) -> None:
    """Context variables of a branch reach its bodies, in a task as in a thread."""

    @outlive.step
    async def in_task() -> str:
        return tenant.get()

    @outlive.step
    def in_thread() -> list[str]:
        return [tenant.get(), threading.current_thread().name[:12]]

    @outlive.flow
    async def serving() -> list[Any]:
        async def branch(name: str) -> list[Any]:
            tenant.set(name)
            return [await in_task(), await in_thread()]

        return [await asyncio.gather(branch("a"), branch("b")), tenant.get()]

    got = await scene.run(serving)

    seen = [["a", ["a", "outlive-body"]], ["b", ["b", "outlive-body"]]]
    assert got == [seen, "nobody"]


async def test_what_a_body_sets_stays_in_the_body(scene: Scene) -> None:
    """A body has a copy of the flow's context, as a replay has no body at all."""

    @outlive.step
    async def spoil() -> None:
        tenant.set("spoilt")

    @outlive.flow
    async def clean() -> str:
        tenant.set("clean")
        await spoil()
        return tenant.get()

    assert await scene.run(clean) == "clean"


async def test_a_body_knows_its_attempt_and_run(scene: Scene) -> None:
    """attempt(), run_id() and key() answer inside a body, in threads as well."""

    @outlive.effect
    def pay() -> list[Any]:
        return [outlive.run_id(), outlive.attempt(), len(outlive.key())]

    @outlive.flow
    async def paying() -> list[Any]:
        return [outlive.run_id(), await pay()]

    assert await scene.run(paying, id="r7") == ["r7", ["r7", 1, 32]]


class Flaky:
    """Fails until its n-th attempt; remembers when it was tried."""

    def __init__(self, scene: Scene, succeeds_at: int) -> None:
        self.scene, self.succeeds_at = scene, succeeds_at
        self.tried: list[tuple[int, float]] = []

    def __call__(self) -> str:
        number = outlive.attempt()
        self.tried.append((number, self.scene.clock.now_ms() / 1000))
        if number < self.succeeds_at:
            raise OSError(f"attempt {number}")
        return f"done at {number}"


async def delays(scene: Scene, handle: Handle) -> list[int]:
    """How long each failed attempt is followed by nothing, in ms, as the journal has it."""
    started, *events = await handle.read()
    assert isinstance(started, RunStarted)
    failed = [event for event in events if isinstance(event, AttemptFailed)]
    return [event.retry_at - event.at - started.started_at for event in failed]


def flaky_flow(flaky: Flaky, **retry: Any) -> outlive.Flow[[], Any]:
    @outlive.step(retry=outlive.Retry(**({"jitter": False, "delay": "10s"} | retry)))
    async def flaky_step() -> str:
        return flaky()

    @outlive.flow
    async def patient() -> str:
        return await flaky_step()

    return patient


async def test_back_offs_grow_up_to_their_limit(scene: Scene) -> None:
    """Delay times factor, capped by delay_max."""
    flaky = Flaky(scene, succeeds_at=5)
    flow = flaky_flow(flaky, attempts=5, factor=2, delay_max="30s")

    handle = await scene.open().start(flow, id="r")

    assert await scene.outcome(handle, step=0.5) == "done at 5"
    assert [number for number, _ in flaky.tried] == [1, 2, 3, 4, 5]
    assert await delays(scene, handle) == [10_000, 20_000, 30_000, 30_000]
    assert flaky.tried[-1][1] - flaky.tried[0][1] >= 90


async def test_the_count_of_attempts_survives_a_crash(scene: Scene) -> None:
    """A new process goes on with the next attempt, at the time that was recorded for it."""
    flaky = Flaky(scene, succeeds_at=3)
    flow = flaky_flow(flaky, attempts=3, factor=1)
    app = scene.open()
    handle = await app.start(flow, id="r")
    await scene.until(lambda: flaky.tried)
    await scene.until(lambda: len(scene.doors[app].batches) >= 2)
    scene.kill(app)
    scene.clock.advance(4)

    handle = await scene.open().start(flow, id="r")

    assert await scene.outcome(handle, step=0.5) == "done at 3"
    assert [number for number, _ in flaky.tried] == [1, 2, 3]
    assert await delays(scene, handle) == [10_000, 10_000]
    assert flaky.tried[1][1] - flaky.tried[0][1] >= 10


async def test_a_back_off_leaves_memory(scene: Scene) -> None:
    """A run that only waits for its next attempt is parked until then."""
    flaky = Flaky(scene, succeeds_at=2)
    handle = await scene.open(EVICTING).start(flaky_flow(flaky, attempts=2), id="r")

    await scene.status(handle, "waiting")
    assert await scene.outcome(handle, step=0.5) == "done at 2"
    (failed,) = await scene.events(handle, AttemptFailed)
    (parked,) = await scene.events(handle, Parked)
    assert parked.wake_at == failed.retry_at
    assert [number for number, _ in flaky.tried] == [1, 2]


async def test_the_last_attempt_decides(scene: Scene) -> None:
    """When the attempts are used up the flow gets the last error."""
    flaky = Flaky(scene, succeeds_at=9)

    handle = await scene.open().start(flaky_flow(flaky, attempts=2, delay=0), id="r")

    with pytest.raises(RunFailed, match="OSError: attempt 2"):
        await scene.outcome(handle)
    assert len(await scene.events(handle, AttemptFailed)) == 1
    assert len(await scene.events(handle, StepRaised)) == 1


async def test_only_errors_that_are_worth_it_are_tried_again(scene: Scene) -> None:
    """Retry(only=...) names them."""
    flaky = Flaky(scene, succeeds_at=9)

    with pytest.raises(RunFailed, match="attempt 1"):
        await scene.run(flaky_flow(flaky, attempts=5, only=(KeyError,)))

    assert [number for number, _ in flaky.tried] == [1]


async def test_jitter_stays_within_its_bounds(scene: Scene) -> None:
    """Between half of the delay and all of it."""
    flaky = Flaky(scene, succeeds_at=6)

    handle = await scene.open().start(flaky_flow(flaky, attempts=6, jitter=True, factor=1), id="r")

    await scene.outcome(handle, step=0.2)
    assert all(5000 <= delay <= 10_000 for delay in await delays(scene, handle))
    assert len(set(await delays(scene, handle))) > 1


# ---------------------------------------------------------------- time limits


async def test_a_step_past_its_limit_is_cancelled(scene: Scene) -> None:
    """The flow gets TimedOut, which is a TimeoutError, too."""
    cancelled: list[str] = []

    @outlive.step(timeout="30s")
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("yes")
            raise

    @outlive.flow
    async def limited() -> str:
        try:
            await endless()
        except TimeoutError as error:
            return f"{type(error).__name__}: {error}"
        return "no"

    handle = await scene.open().start(limited, id="r")

    assert (
        await scene.outcome(handle, step=0.5) == "TimedOut: step 0/endless#1 took longer than 30 s"
    )
    assert cancelled == ["yes"]
    (raised,) = await scene.events(handle, StepRaised)
    assert raised.at >= 30_000


async def test_a_time_out_is_tried_again_like_any_error(scene: Scene) -> None:
    """Every attempt has the whole limit."""
    tried: list[int] = []

    @outlive.step(timeout="10s", retry=outlive.Retry(attempts=3, delay=0))
    async def slow() -> int:
        tried.append(outlive.attempt())
        if outlive.attempt() < 3:
            await asyncio.Event().wait()
        return outlive.attempt()

    @outlive.flow
    async def limited() -> int:
        return await slow()

    handle = await scene.open().start(limited, id="r")

    assert await scene.outcome(handle, step=0.5) == 3
    assert tried == [1, 2, 3]


async def test_a_thread_past_its_limit_is_waited_for(scene: Scene) -> None:
    """It can't be stopped: it is never repeated beside itself, and what it returns counts."""
    running: list[int] = []
    release = threading.Event()

    @outlive.step(timeout="1s", retry=outlive.Retry(attempts=3, delay=0))
    def stubborn() -> int:
        running.append(outlive.attempt())
        release.wait(20)
        return outlive.attempt()

    @outlive.flow
    async def limited() -> int:
        return await stubborn()

    handle = await scene.open().start(limited, id="r")
    await scene.until(lambda: running)
    scene.clock.advance(5)
    for _ in range(20):
        await asyncio.sleep(0)
    assert running == [1]
    release.set()

    assert await scene.outcome(handle) == 1
    assert running == [1]


async def test_an_error_of_an_unknown_type_is_told_by_name(scene: Scene) -> None:
    """StepFailed has the type's name and the text; live as on replay."""

    class Strange(Exception):
        pass

    @outlive.step
    async def odd() -> None:
        raise Strange("very")

    @outlive.flow
    async def flow() -> list[str]:
        try:
            await odd()
        except StepFailed as error:
            return [error.type_name.rpartition(".")[2], error.message]
        return []

    assert await scene.run(flow) == ["Strange", "very"]


async def test_outcomes_carry_the_attempt_that_made_them(scene: Scene) -> None:
    """The journal says which attempt returned."""
    flaky = Flaky(scene, succeeds_at=3)
    handle = await scene.open().start(flaky_flow(flaky, attempts=3, delay=0), id="r")

    await scene.outcome(handle)

    (done,) = await scene.events(handle, StepDone)
    assert done.attempt == 3
    assert [1, 2] == [event.attempt for event in await scene.events(handle, AttemptFailed)]


def test_tests_do_not_wait_for_clocks() -> None:
    """A fake clock moves only when told."""
    clock = FakeClock()
    before = clock.monotonic(), clock.now_ms()
    time.sleep(0.002)

    assert (clock.monotonic(), clock.now_ms()) == before
    clock.advance(1.5)
    assert (clock.monotonic(), clock.now_ms()) == (before[0] + 1.5, before[1] + 1500)
    clock.set_wall(5)
    assert (clock.monotonic(), clock.now_ms()) == (before[0] + 1.5, 5)
