"""Where durable calls may be made, and what flow code may not do."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import (
    InsideStep,
    IoInFlow,
    NotInRun,
    OutliveError,
    RunFailed,
    UsageError,
)
from outlive.model.events import EffectIntended, Parked, StepDone, StepRaised
from outlive.model.events import RunFailed as Failed
from outlive.stores.memory import MemoryStore
from tests.harness.scene import Scene


@outlive.step
async def double(number: int) -> int:
    return number * 2


@outlive.step
def double_plain(number: int) -> int:
    return number * 2


@outlive.effect(key="pay:{cents}")
async def pay(cents: int) -> int:
    return cents


# ---------------------------------------------------------------- outside a run


async def test_a_step_outside_a_run_is_a_plain_call() -> None:
    """Written async it is awaited, written plain it is not."""
    assert await double(2) == 4
    assert double_plain(2) == 4


async def test_an_effect_outside_a_run_is_refused() -> None:
    """The message names the way out."""
    with pytest.raises(NotInRun, match=r"pay\.plain"):
        await pay(1)


async def test_plain_is_the_way_out() -> None:
    """The undecorated function: no record, no key, no settlement."""
    assert await pay.plain(3) == 3
    assert double_plain.plain(3) == 6


@pytest.mark.parametrize("verb", ["sleep", "now", "random", "uuid", "key", "attempt", "run_id"])
async def test_verbs_outside_a_run_are_refused(verb: str) -> None:
    """Each by its own name."""

    async def call() -> None:
        made = getattr(outlive, verb)(*([1] if verb == "sleep" else []))
        await made

    with pytest.raises(NotInRun, match=f"outlive.{verb}") as refused:
        await call()
    assert "plain" not in str(refused.value)


@pytest.mark.parametrize("verb", ["key", "attempt"])
async def test_what_is_about_an_attempt_is_refused_in_a_flow(scene: Scene, verb: str) -> None:
    """That is no place outside a run; the message says where to call it."""

    @outlive.flow
    async def asking() -> str:
        try:
            getattr(outlive, verb)()
        except UsageError as error:
            return str(error)
        return "not refused"

    text = await scene.run(asking)
    assert text.startswith(f"outlive.{verb}() was called in a flow;")
    assert "in the body of a step" in text


# ---------------------------------------------------------------- inside a step


async def test_a_step_inside_a_step_is_a_plain_call(scene: Scene) -> None:
    """It is part of its step: nothing of it is recorded."""

    @outlive.step
    async def outer() -> int:
        return await double(1) + double_plain(2)

    @outlive.flow
    async def flow() -> int:
        return await outer()

    handle = await scene.open().start(flow, id="r")

    assert await scene.outcome(handle) == 6
    assert ["0/outer#1"] == [event.step for event in await scene.events(handle, StepDone)]


@pytest.mark.parametrize("call", ["effect", "sleep", "now", "random", "uuid"])
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_nothing_durable_begins_inside_a_step(scene: Scene, call: str, kind: str) -> None:
    """A step's body is a leaf; the error says what to do."""

    def make() -> Any:
        if call == "effect":
            return pay(1)
        return outlive.sleep(1) if call == "sleep" else getattr(outlive, call)()

    @outlive.step(name="outer")
    async def outer() -> Any:
        made = make()
        return await made if asyncio.iscoroutine(made) else made

    @outlive.step(name="outer")
    def outer_plain() -> Any:
        made = make()
        return asyncio.run(made) if asyncio.iscoroutine(made) else made

    @outlive.flow
    async def flow() -> str:
        try:
            await (outer() if kind == "async" else outer_plain())
        except InsideStep as error:
            return str(error)
        return "not refused"

    handle = await scene.open().start(flow, id="r")
    with pytest.raises(RunFailed, match=r"inside the body of step 0/outer#1.*from the flow"):
        await scene.outcome(handle)
    assert not await scene.events(handle, EffectIntended)


async def test_a_call_made_in_the_flow_and_awaited_in_a_body_is_refused(scene: Scene) -> None:
    """A durable call can't be carried into a body, either."""

    async def take(call: Any) -> str:
        try:
            await call
        except InsideStep as error:
            return f"refused {error.name}"
        return "not refused"

    box: list[Any] = []

    @outlive.step
    async def outer() -> str:
        return await take(box.pop())

    @outlive.flow
    async def flow() -> str:
        box.append(pay(1))
        return await outer()

    with pytest.raises(RunFailed, match="pay was called inside the body of step 0/outer#1"):
        await scene.run(flow)


async def test_a_flow_called_in_a_flow_is_part_of_it(scene: Scene) -> None:
    """Its steps are recorded in the same journal."""

    @outlive.flow
    async def inner(number: int) -> int:
        return await double(number)

    @outlive.flow
    async def outer() -> int:
        return await inner(await inner(1))

    handle = await scene.open().start(outer, id="r")

    assert await scene.outcome(handle) == 4
    steps = [event.step for event in await scene.events(handle, StepDone)]
    assert steps == ["0/double#1", "0/double#2"]


# ---------------------------------------------------------------- direct I/O


async def connect() -> None:
    await asyncio.open_connection("127.0.0.1", 1)


async def use_thread() -> None:
    await asyncio.to_thread(int)


async def use_executor() -> None:
    await asyncio.get_running_loop().run_in_executor(None, int)


async def use_process() -> None:
    await asyncio.create_subprocess_exec("true")


async def use_reader() -> None:
    asyncio.get_running_loop().add_reader(0, int)


async def serve() -> None:
    await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)


@pytest.mark.parametrize(
    "touch",
    [connect, use_thread, use_executor, use_process, use_reader, serve],
    ids=lambda touch: touch.__name__,
)
async def test_io_in_flow_code_is_refused(scene: Scene, touch: Any) -> None:
    """A forgotten decorator is noticed at once: "do this in a step"."""

    @outlive.flow
    async def flow() -> str:
        try:
            await touch()
        except IoInFlow as error:
            return str(error)
        return "not refused"

    with pytest.raises(RunFailed, match="do this in a step"):
        await scene.run(flow)


async def test_a_future_of_another_loop_fails_the_flow_not_the_worker(scene: Scene) -> None:
    """What a flow can't wait for is its own error; other runs go on."""
    foreign = asyncio.get_running_loop().create_future()

    @outlive.flow
    async def flow() -> None:
        await foreign

    with pytest.raises(RunFailed, match="different loop"):
        await scene.run(flow)
    foreign.cancel()


# ---------------------------------------------------------------- flows that lead nowhere


async def test_a_flow_that_nothing_will_wake_fails(scene: Scene) -> None:
    """It says so instead of waiting for ever."""

    @outlive.flow
    async def stuck() -> None:
        await double(1)
        await asyncio.Event().wait()

    handle = await scene.open().start(stuck, id="r")

    with pytest.raises(RunFailed, match="FlowStuck"):
        await scene.outcome(handle)
    (failed,) = await scene.events(handle, Failed)
    assert "will ever set" in failed.error.message


async def test_a_stuck_flow_is_found_behind_a_timed_out_step(scene: Scene) -> None:
    """A step that was given up on keeps nobody waiting."""
    gone: list[str] = []

    @outlive.step
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            gone.append("yes")

    @outlive.flow
    async def stuck() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(endless(), 5)
        await asyncio.Event().wait()

    with pytest.raises(RunFailed, match="FlowStuck"):
        await scene.run(stuck)
    assert gone == ["yes"]


async def test_a_flow_that_spins_is_stopped(scene: Scene, monkeypatch: Any) -> None:
    """A loop around sleep(0) never gets anywhere; the run is parked with what to do."""
    monkeypatch.setattr("outlive.engine.drive.SPIN_MAX", 2000)

    @outlive.flow
    async def spinning() -> None:
        while True:
            await asyncio.sleep(0)

    handle = await scene.open().start(spinning, id="r")

    with pytest.raises(OutliveError, match=r"asyncio\.sleep\(0\)"):
        await scene.outcome(handle)
    (parked,) = await scene.events(handle, Parked)
    assert "outlive.sleep" in parked.reason


async def test_many_branches_are_not_taken_for_spinning(scene: Scene) -> None:
    """A flow with thousands of branches runs many handles between two deliveries."""

    @outlive.flow
    async def wide() -> int:
        return sum(await asyncio.gather(*(double(1) for _ in range(2000))))

    assert await scene.run(wide) == 4000


async def test_a_spinning_flow_does_not_starve_others(monkeypatch: Any) -> None:
    """It gets the loop in slices (of real time)."""
    monkeypatch.setattr("outlive.engine.drive.SPIN_MAX", 1 << 60)

    @outlive.flow
    async def spinning() -> None:
        while True:
            await asyncio.sleep(0)

    @outlive.flow
    async def short() -> int:
        return await double(1)

    async with App(MemoryStore()) as app:
        await app.start(spinning, id="spins")
        handle = await app.start(short, id="r")

        assert await handle.outcome("10s") == 2


async def test_an_error_in_a_forgotten_task_does_not_end_the_run(scene: Scene) -> None:
    """As in asyncio: it is logged, the flow goes on."""

    async def broken() -> None:
        raise ValueError("nobody looks")

    @outlive.flow
    async def flow() -> int:
        task = asyncio.create_task(broken())
        number = await double(1)
        assert task.done()
        assert task.exception()
        return number

    assert await scene.run(flow) == 2


async def test_tasks_left_behind_are_cancelled_at_the_end(scene: Scene) -> None:
    """As asyncio.run does; their clean-up runs, and may make steps."""
    seen: list[str] = []

    @outlive.flow
    async def flow() -> str:
        async def left() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append(str(await double(21)))
                raise

        asyncio.create_task(left())  # noqa: RUF006  # left behind on purpose
        await double(1)
        return "returned"

    handle = await scene.open().start(flow, id="r")

    assert await scene.outcome(handle) == "returned"
    assert seen == ["42"]
    assert len(await scene.events(handle, StepDone)) == 2
    assert not await scene.events(handle, StepRaised)
