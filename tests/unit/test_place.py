"""Places: ids of what is called in them do not depend on the tasks that are made in them."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import outlive
from outlive.engine import calls
from outlive.engine.definitions import Flow
from outlive.errors import DefinitionRefused, RunFailed
from outlive.model.events import Event, SignalReceived, StepDone, TimerFired
from outlive.stores.memory import MemoryStore
from tests.harness.scene import EVICTING, Scene
from tests.order.journals import drive, drive_on

#: The chance of a framework: another one in every process.
CHANCE = random.SystemRandom()


@outlive.step
async def think(text: str) -> str:
    return text.upper()


@outlive.effect(doubt="retry")
async def pay(cents: int) -> str:
    return f"{cents} by {outlive.key()}"


async def unrelated() -> None:
    for _ in range(CHANCE.randrange(4)):
        await asyncio.sleep(0)


async def framework(*parts: Any) -> list[Any]:
    """Await these beside one another, as no two versions of a framework do it."""
    extra = [asyncio.create_task(unrelated()) for _ in range(CHANCE.randrange(5))]
    if CHANCE.random() < 0.5:
        extra.append(asyncio.create_task(asyncio.sleep(CHANCE.random() / 1000)))
    order = CHANCE.sample(range(len(parts)), len(parts))

    async def one(part: Any) -> Any:
        await unrelated()
        return await part()

    done = await asyncio.gather(*(one(parts[i]) for i in order))
    for task in extra:
        task.cancel()
    return [value for _, value in sorted(zip(order, done, strict=True))]


async def use_tool(number: int) -> str:
    """A tool that does durable things itself, in a place of its own."""
    with outlive.place(f"call_{number}"):
        await asyncio.sleep(0.001 * number)
        paid = await pay(number)
        await outlive.sleep(0.001)
        return f"{await think(f'tool {number}')} {paid}"


@outlive.flow
async def agent() -> list[Any]:
    seen: list[Any] = []
    with outlive.place("agent"):
        for turn in range(2):
            seen.append(await think(f"turn {turn}"))
            tools = [lambda n=n: use_tool(n) for n in range(3)]
            asked = [lambda n=n: outlive.do("look", think.plain, f"{n}", id=f"{n}") for n in (7, 8)]
            seen.append(await framework(*tools, *asked))
    seen.append(await think("after"))
    return seen


def ids(events: list[Event]) -> list[str]:
    return sorted(event.step for event in events if type(event) is StepDone)


IDS = sorted(
    [
        *(f"0@agent/think#{n}" for n in (1, 2)),
        *(f"0@agent/look:{n}#{turn}" for n in (7, 8) for turn in (1, 2)),
        *(f"0@agent@call_{n}/think#{turn}" for n in range(3) for turn in (1, 2)),
        "0/think#1",
    ]
)


async def test_ids_do_not_depend_on_tasks(scene: Scene) -> None:
    """Every process makes other tasks in another order, and gives the same ids and keys."""
    handle = await scene.open().start(agent, id="r")
    outcome = await scene.outcome(handle)

    assert IDS == ids(await handle.read())
    again = await scene.open().start(agent, id="s")
    other = await scene.outcome(again)
    assert IDS == ids(await again.read())
    assert [outcome[0], outcome[2], outcome[4]] == [other[0], other[2], other[4]]


async def test_killed_behind_every_event_a_flow_keeps_its_ids(full: bool) -> None:
    """Resumed by a process that makes other tasks, the run ends as it would have."""
    first = await drive(MemoryStore(), agent, run_id="r")

    for cut in [*range(2, len(first.events))] * (40 if full else 1):
        driven = await drive_on(first.events[:cut], agent, run_id="r")
        assert first.outcome == driven.outcome, cut
        assert IDS == ids(driven.events), cut


async def test_a_place_that_is_entered_again_goes_on_counting(scene: Scene) -> None:
    """Left and entered again, in loops and in places within places."""

    @outlive.flow
    async def flow() -> None:
        for _ in range(2):
            with outlive.place("a"):
                await think("x")
                with outlive.place("b"):
                    await think("x")
        await think("x")

    handle = await scene.open().start(flow, id="r")
    await scene.outcome(handle)

    done = [event.step for event in await scene.events(handle, StepDone)]
    assert ["0@a/think#1", "0@a@b/think#1", "0@a/think#2", "0@a@b/think#2", "0/think#1"] == done


async def test_branches_of_a_flow_have_places_of_their_own(scene: Scene) -> None:
    """The same name in two branches is two places."""

    async def one(text: str) -> str:
        with outlive.place("agent"):
            return await think(text)

    @outlive.flow
    async def flow() -> list[str]:
        return list(await asyncio.gather(one("a"), one("b")))

    handle = await scene.open().start(flow, id="r")

    assert ["A", "B"] == await scene.outcome(handle)
    done = {event.step for event in await scene.events(handle, StepDone)}
    assert {"0.1@agent/think#1", "0.2@agent/think#1"} == done


async def test_map_in_a_place_counts_by_position(scene: Scene) -> None:
    """Its items are in an order of our own, whatever tasks it makes."""

    @outlive.flow
    async def flow() -> list[str]:
        with outlive.place("agent"):
            return [each.value for each in await outlive.map(think, ["a", "b"])]

    handle = await scene.open().start(flow, id="r")

    assert ["A", "B"] == await scene.outcome(handle)
    done = [event.step for event in await scene.events(handle, StepDone)]
    assert [f"0@agent@map:think#1.{n}/think#1" for n in (0, 1)] == sorted(done)


def _steps() -> Any:
    return asyncio.gather(think("a"), think("b"))


def _anonymous() -> Any:
    return asyncio.gather(*(outlive.do("tool", think.plain, each, id="1") for each in "ab"))


def _sleeps() -> Any:
    return asyncio.gather(outlive.sleep(1), outlive.sleep(2))


def _signals() -> Any:
    return asyncio.gather(outlive.wait_signal("s"), outlive.wait_signal("s"))


def _maps() -> Any:
    return asyncio.gather(outlive.map(think, ["a"]), outlive.map(think, ["b"]))


@pytest.mark.parametrize("calls", [_steps, _anonymous, _sleeps, _signals, _maps])
async def test_what_nothing_tells_apart_is_refused(scene: Scene, calls: Any) -> None:
    """The run fails with the remedy, whoever catches the refusal."""

    @outlive.flow
    async def flow() -> str:
        with outlive.place("agent"):
            try:
                await calls()
            except outlive.errors.UsageError:
                return "caught"
        return "not refused"

    with pytest.raises(RunFailed) as failed:
        await scene.run(flow)
    assert "AmbiguousCall" == failed.value.type_name
    assert "id=call_id" in str(failed.value)
    assert "with outlive.place(call_id)" in str(failed.value)


async def test_a_call_that_was_cancelled_makes_room_for_the_next(scene: Scene) -> None:
    """A framework may give up a call and make it again."""

    @outlive.step
    async def never() -> None:
        await asyncio.Event().wait()

    @outlive.flow
    async def flow() -> str:
        with outlive.place("agent"):
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(never(), 0.01)
        return "done"

    assert "done" == await scene.run(flow)


async def test_a_timer_of_a_framework_may_be_gone_on_replay(scene: Scene) -> None:
    """What fired for a task that is not made any more is passed over; a durable sleep is not."""
    times = [0.01]

    @outlive.flow
    async def flow() -> str:
        with outlive.place("agent"):
            for seconds in times:
                await asyncio.sleep(seconds)
            return await think("x")

    handle = await scene.open().start(flow, id="r")
    await scene.outcome(handle)
    journal = await handle.read()
    assert any(type(event) is TimerFired for event in journal)
    times.clear()

    driven = await drive_on(journal[:-1], flow, run_id="r")
    assert ("returned", "X") == driven.outcome


@pytest.mark.parametrize("name", ["", "a/b", "a#b", "a@b", "x" * 201, 7])
def test_a_place_has_a_name_that_can_stand_in_an_id(name: Any) -> None:
    """Refused where it is written."""
    with pytest.raises(DefinitionRefused, match="can't be"):
        outlive.place(name)


async def test_outside_a_flow_a_place_does_nothing(scene: Scene) -> None:
    """In a body and outside a run nothing is numbered."""

    @outlive.step
    async def body() -> str:
        with outlive.place("agent"):
            return await think("in a body") + str(outlive.in_flow())

    @outlive.flow
    async def flow() -> str:
        return await body()

    with outlive.place("agent"):
        assert "OUTSIDE" == await think("outside")
    assert not outlive.in_flow()
    assert not outlive.replaying()
    assert "IN A BODYFalse" == await scene.run(flow)


def _replays(seen: list[tuple[str, bool]]) -> Flow[[], Any]:
    @outlive.flow
    async def flow() -> str:
        seen.append(("begin", outlive.replaying()))
        await think("a")
        seen.append(("a", outlive.replaying()))
        await outlive.wait_signal("go")
        seen.append(("go", outlive.replaying()))
        await think("b")
        seen.append(("b", outlive.replaying()))
        return "end"

    return flow


async def test_a_flow_can_tell_whether_it_is_replayed(scene: Scene) -> None:
    """True as long as the journal has something to come; False from the first thing that is new."""
    seen: list[tuple[str, bool]] = []
    flow = _replays(seen)
    handle = await scene.open().start(flow, id="r")
    await handle.signal("go")
    assert "end" == await scene.outcome(handle)
    assert ["begin", "a", "go", "b"] == [where for where, is_again in seen if not is_again]

    journal = await handle.read()
    cut = next(i for i, event in enumerate(journal) if type(event) is SignalReceived) + 1
    seen.clear()
    await drive_on(journal[:cut], flow, run_id="r")
    assert [("begin", True), ("a", True), ("go", False), ("b", False)] == seen


# ---------------------------------------------------------------- on_host


async def test_a_cleanup_runs_on_the_loop_of_bodies_and_not_on_replay(scene: Scene) -> None:
    """What a step opened is closed where it was opened, once; the flow waits for it."""
    told: list[Any] = []
    opened: list[Any] = []

    @outlive.step
    async def open_session() -> str:
        opened.append(asyncio.get_running_loop())
        return "open"

    async def close(text: str) -> str:
        await asyncio.sleep(0)
        told.append((text, asyncio.get_running_loop() is opened[-1], outlive.in_flow()))
        return "not given to the flow"

    @outlive.flow
    async def flow() -> list[Any]:
        await open_session()
        result: Any = await outlive.on_host(close, "async")
        await outlive.on_host(told.append, "plain")
        await outlive.on_host(_breaks)
        return [result, await think("x")]

    handle = await scene.open().start(flow, id="r")

    assert [None, "X"] == await scene.outcome(handle)
    assert [("async", True, False), "plain"] == told
    driven = await drive_on((await handle.read())[:-1], flow, run_id="r")
    assert ("returned", [None, "X"]) == driven.outcome
    assert 2 == len(told)


def _breaks() -> None:
    raise OSError("the session is gone")


async def test_nothing_else_of_the_run_goes_on_during_a_cleanup(scene: Scene) -> None:
    """No event says when it ended: so it can't matter."""
    order: list[str] = []

    async def close() -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        order.append("closed")

    async def one(name: str) -> None:
        await think(name)
        order.append(name)

    @outlive.flow
    async def flow() -> None:
        async def first() -> None:
            await outlive.on_host(close)
            order.append("after")

        await asyncio.gather(first(), one("b"), one("c"))

    await scene.run(flow)

    assert ["closed", "after"] == order[:2]


async def test_a_cleanup_runs_where_the_run_leaves_memory(scene: Scene) -> None:
    """The ``finally`` of a flow closes what its step opened, before the run waits for days."""
    closed: list[str] = []

    @outlive.flow
    async def flow() -> str:
        await think("open")
        try:
            return str(await outlive.wait_signal("go", str))
        finally:
            await outlive.on_host(closed.append, "closed")

    handle = await scene.open(EVICTING).start(flow, id="r")
    await scene.status(handle, "waiting")
    for _ in range(20):
        await asyncio.sleep(0)
    assert ["closed"] == closed
    await handle.signal("go", "on")
    assert "on" == await scene.outcome(handle)


async def test_a_deadline_does_not_wait_for_a_cleanup(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flow is stopped where it waits for one that hangs; nothing of the run goes on."""
    monkeypatch.setattr(calls, "CLEANUP_SECONDS", 600)

    @outlive.flow(deadline=0.2)
    async def flow() -> None:
        await think("x")
        await outlive.on_host(asyncio.sleep, 600)

    driven = await drive(MemoryStore(), flow, run_id="r")

    assert ("failed", "TimedOut") == driven.outcome


async def test_a_cleanup_that_hangs_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The flow goes on without it, and the log says so."""
    monkeypatch.setattr(calls, "CLEANUP_SECONDS", 0.05)

    @outlive.flow
    async def flow() -> str:
        await outlive.on_host(asyncio.sleep, 600)
        return await think("x")

    driven = await drive(MemoryStore(), flow, run_id="r")

    assert ("returned", "X") == driven.outcome
    assert "outlive.on_host(sleep) raised" in caplog.text
