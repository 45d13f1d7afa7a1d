"""Waits: a run that only waits leaves memory, wakes at its time, and nothing of it leaks."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from datetime import UTC, datetime, timedelta
from typing import Any

import outlive
from outlive.engine.place import RunStopped
from outlive.model.events import Claimed, Event, Parked, StepDone, TimerFired
from tests.harness.scene import EVICTING, STAYING, Scene
from tests.order.journals import drive_on

span: contextvars.ContextVar[str] = contextvars.ContextVar("span", default="outside")


@outlive.step
async def note(text: str) -> str:
    return text


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


async def test_a_sleep_leaves_memory_and_wakes(scene: Scene) -> None:
    """The journal says until when; a worker wakes it then, and it goes on behind the sleep."""

    @outlive.flow
    async def sleepy() -> list[str]:
        first = await note("before")
        await outlive.sleep("1h")
        return [first, await note("after")]

    app = scene.open(EVICTING)
    handle = await app.start(sleepy, id="r")
    await scene.status(handle, "waiting")
    (parked,) = await scene.events(handle, Parked)
    assert parked.wake_at - scene.clock.now_ms() <= 3600 * 1000
    assert all("r" not in worker.driving for ws in app._workers.own.values() for worker in ws)

    assert await scene.outcome(handle, step=60) == ["before", "after"]
    assert kinds(await handle.read()) == [
        "RunStarted",
        "Claimed",
        "StepDone",
        "Parked",
        "Claimed",
        "TimerFired",
        "StepDone",
        "RunCompleted",
    ]


async def test_a_short_sleep_stays_in_memory(scene: Scene) -> None:
    """Below the idle limit nothing is parked."""

    @outlive.flow
    async def sleepy() -> str:
        await outlive.sleep(5)
        return "awake"

    handle = await scene.open(STAYING).start(sleepy, id="r")

    assert await scene.outcome(handle, step=0.5) == "awake"
    assert not await scene.events(handle, Parked)


async def test_asyncio_sleep_is_as_durable(scene: Scene) -> None:
    """A timer is a timer, whoever set it; its time counts from the run's own clock."""

    @outlive.flow
    async def sleepy() -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(7200)
        return round(asyncio.get_running_loop().time() - began)

    handle = await scene.open(EVICTING).start(sleepy, id="r")
    await scene.status(handle, "waiting")

    assert await scene.outcome(handle, step=100) >= 7200
    assert len(await scene.events(handle, TimerFired)) == 1


async def test_a_sleep_until_an_instant(scene: Scene) -> None:
    """A datetime is as good as a duration; one in the past is over at once."""
    until = datetime.fromtimestamp(scene.clock.now_ms() / 1000, UTC) + timedelta(hours=3)

    @outlive.flow
    async def sleepy() -> list[bool]:
        await outlive.sleep(until)
        woken = outlive.now()
        await outlive.sleep(until)
        return [woken >= until, outlive.now() - woken < timedelta(hours=1)]

    handle = await scene.open(EVICTING).start(sleepy, id="r")

    assert await scene.outcome(handle, step=100) == [True, True]


async def test_a_sleep_survives_a_crash(scene: Scene) -> None:
    """The time already slept counts; a sleep that is over meanwhile ends at once."""

    @outlive.flow
    async def sleepy() -> str:
        await note("before")
        await outlive.sleep("1h")
        return "awake"

    app = scene.open(STAYING)
    await app.start(sleepy, id="r")
    await scene.until(lambda: len(scene.doors[app].batches) >= 2)
    scene.kill(app)
    scene.clock.advance(3600)

    handle = await scene.open(STAYING).start(sleepy, id="r")

    assert await scene.outcome(handle, step=0) == "awake"


async def test_a_branch_that_works_keeps_the_others_in_memory(scene: Scene) -> None:
    """A run leaves memory only when every branch waits."""
    gate = asyncio.Event()

    @outlive.step
    async def work() -> str:
        await gate.wait()
        return "worked"

    @outlive.flow
    async def mixed() -> list[Any]:
        return list(await asyncio.gather(work(), outlive.sleep("1h")))

    app = scene.open(EVICTING)
    handle = await app.start(mixed, id="r")
    for _ in range(50):
        await asyncio.sleep(0)
    assert await handle.status() == "running"
    gate.set()
    await scene.status(handle, "waiting")

    assert await scene.outcome(handle, step=60) == ["worked", None]
    assert len(await scene.events(handle, StepDone)) == 1


async def test_a_clock_that_is_set_back_ends_no_sleep_early(scene: Scene) -> None:
    """Timers go by the wall clock; the run's own time never runs backwards."""

    @outlive.flow
    async def sleepy() -> list[bool]:
        before = outlive.now()
        await note("x")
        middle = outlive.now()
        await outlive.sleep("1h")
        return [before <= middle, middle + timedelta(hours=1) <= outlive.now()]

    handle = await scene.open(STAYING).start(sleepy, id="r")
    await scene.until(lambda: scene.events(handle, StepDone))
    scene.clock.set_wall(scene.clock.now_ms() - 1800 * 1000)

    assert await scene.outcome(handle, step=60) == [True, True]
    times = [event.at for event in await handle.read() if hasattr(event, "at")]
    assert times == sorted(times)


async def test_time_and_chance_are_the_runs_own(scene: Scene) -> None:
    """now(), random() and uuid() need no events, differ by place, and replay."""

    @outlive.flow
    async def drawing() -> list[Any]:
        async def draw() -> list[Any]:
            return [outlive.random(), str(outlive.uuid()), outlive.now().isoformat()]

        both = await asyncio.gather(draw(), draw())
        await outlive.sleep(60)
        return [*both, await draw()]

    handle = await scene.open(EVICTING).start(drawing, id="r")
    live = await scene.outcome(handle, step=1)

    replayed = await drive_on((await handle.read())[:-1], drawing, run_id="r")

    assert replayed.outcome == ("returned", live)
    assert len({each[0] for each in live}) == 3
    assert len({each[1] for each in live}) == 3
    assert live[0][2] < live[2][2]
    assert all(0 <= each[0] < 1 for each in live)


# ---------------------------------------------------------------- eviction


class Witness:
    """What a flow's clean-up saw when its run left memory."""

    def __init__(self) -> None:
        self.seen: list[Any] = []


def guarded_flow(witness: Witness) -> outlive.Flow[[], Any]:
    @outlive.effect
    async def pay() -> str:
        witness.seen.append("paid!")
        return "paid"

    async def try_call(name: str, call: Any) -> None:
        try:
            await call()
        except RunStopped:
            witness.seen.append(f"{name} refused")
        except BaseException as error:
            witness.seen.append(f"{name} {error!r}")
            raise
        else:
            witness.seen.append(f"{name} returned")

    @outlive.flow
    async def guarded() -> str:
        token = span.set("inside")
        try:
            await outlive.sleep("1h")
        finally:
            if not witness.seen:
                witness.seen += [span.get(), threading.current_thread().name]
                await try_call("effect", pay)
                await try_call("step", lambda: note("x"))
                await try_call("sleep", lambda: outlive.sleep(1))
                await try_call("asyncio.sleep", lambda: asyncio.sleep(1))
            span.reset(token)
        return "done"

    return guarded


async def test_clean_up_runs_at_eviction_in_its_own_context(scene: Scene) -> None:
    """Right thread, right context; durable calls are refused and record nothing."""
    witness = Witness()
    handle = await scene.open(EVICTING).start(guarded_flow(witness), id="r")
    await scene.status(handle, "waiting")

    assert witness.seen[:5] == [
        "inside",
        threading.current_thread().name,
        "effect refused",
        "step refused",
        "sleep refused",
    ]
    assert kinds(await handle.read()) == ["RunStarted", "Claimed", "Parked"]
    assert await scene.outcome(handle, step=60) == "done"
    assert "paid!" not in witness.seen
    assert issubclass(RunStopped, BaseException)
    assert not issubclass(RunStopped, Exception)


async def test_except_exception_sees_nothing_of_an_eviction(scene: Scene) -> None:
    """Neither does a handler of CancelledError: nothing is thrown into user code."""
    caught: list[str] = []

    @outlive.flow
    async def careful() -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(outlive.sleep("1h"))
                await outlive.sleep("1h")
        except (Exception, asyncio.CancelledError) as error:
            caught.append(repr(error))
            raise
        return "done"

    handle = await scene.open(EVICTING).start(careful, id="r")
    await scene.status(handle, "waiting")

    assert await scene.outcome(handle, step=60) == "done"
    assert caught == []


async def test_clean_up_that_swallows_everything_is_got_rid_of(scene: Scene) -> None:
    """A finally that catches BaseException and awaits again does not hang the worker."""
    rounds: list[int] = []

    @outlive.flow
    async def stubborn() -> str:
        while True:
            try:
                await outlive.sleep("1h")
                return "done"
            except BaseException:
                rounds.append(1)
                if len(rounds) > 20:
                    raise

    handle = await scene.open(EVICTING).start(stubborn, id="r")
    await scene.status(handle, "waiting")

    assert kinds(await handle.read()) == ["RunStarted", "Claimed", "Parked"]


async def test_an_evicted_run_leaves_nothing_in_memory(scene: Scene) -> None:
    """Frames, tasks and what they held are gone without the garbage collector's help."""

    class Held:
        pass

    refs: list[weakref.ref[Held]] = []

    @outlive.flow
    async def holding() -> str:
        async def branch() -> None:
            held = Held()
            refs.append(weakref.ref(held))
            await outlive.sleep("1h")
            del held

        held = Held()
        refs.append(weakref.ref(held))
        await asyncio.gather(branch(), branch())
        del held
        return "done"

    gc.collect()
    gc.disable()
    try:
        handle = await scene.open(EVICTING).start(holding, id="r")
        await scene.status(handle, "waiting")
        alive = sum(ref() is not None for ref in refs)
    finally:
        gc.enable()

    assert len(refs) == 3
    assert alive == 0


async def test_asynchronous_generators_are_closed_with_their_run(scene: Scene) -> None:
    """Their finally runs at eviction, not later in a foreign place."""
    closed: list[str] = []

    @outlive.flow
    async def generating() -> int:
        async def numbers() -> Any:
            try:
                for number in range(3):
                    await outlive.sleep("1h")
                    yield number
            finally:
                closed.append(span.get())

        span.set("inside")
        return sum([number async for number in numbers()])

    handle = await scene.open(EVICTING).start(generating, id="r")
    await scene.status(handle, "waiting")

    assert closed == ["inside"]
    assert await scene.outcome(handle, step=120) == 3


async def test_waking_again_and_again_repeats_no_step(scene: Scene) -> None:
    """Each waking replays what was and goes on; bodies run once."""
    ran: list[int] = []

    @outlive.step
    async def count(number: int) -> int:
        ran.append(number)
        return number

    @outlive.flow
    async def daily() -> int:
        total = 0
        for day in range(5):
            total += await count(day)
            await outlive.sleep("1d")
        return total

    handle = await scene.open(EVICTING).start(daily, id="r")

    assert await scene.outcome(handle, step=3600) == 10
    assert ran == [0, 1, 2, 3, 4]
    assert len(await scene.events(handle, Claimed)) == 6
