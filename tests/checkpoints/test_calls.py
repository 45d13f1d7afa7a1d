"""Which step a call is: by its name and its arguments, whatever happened in between."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from outlive.checkpoints import AutoRun, DurableRunner, SnapshotStore
from outlive.checkpoints.auto import CALL, Done, call_of
from outlive.errors import StoreUnavailable, ValueRefused
from outlive.stores.memory import MemoryStore
from outlive.sync import checkpoints as plain
from outlive.testing.crash.failing_store import CallFault, FailingStore
from tests.harness.programs import told_by_python


class Crash(BaseException):
    """The process dies here, as far as this code can tell."""


class Odd:
    """What no store keeps."""


async def steps_of(runner: DurableRunner, run_id: str = "r") -> list[str]:
    return [each.step_id for each in await runner.list_checkpoints(run_id)]


@pytest.mark.parametrize("crash_at", [1, 2, 3])
async def test_code_that_begins_in_the_middle_runs_what_never_ran(
    runner: DurableRunner, crash_at: int
) -> None:
    """The usual way to go on, behind the last step that the state tells of."""
    ran: list[int] = []

    async def play(crash_at: int | None = None) -> None:
        @runner.step
        async def work(state: dict[str, Any], number: int) -> None:
            if number == crash_at:
                raise Crash
            ran.append(number)
            state["last_step"] = number

        async with runner.auto("r", {"last_step": -1}) as run:
            for number in range(run.state["last_step"] + 1, 4):
                await work(run.state, number)

    with pytest.raises(Crash):
        await play(crash_at)
    await play()

    assert [0, 1, 2, 3] == ran
    assert ["work", "work#2", "work#3", "work#4"] == await steps_of(runner)


async def test_calls_are_answered_by_what_they_were(runner: DurableRunner) -> None:
    """In another order, with some left out and some new; the same call twice is two steps."""
    ran: list[str] = []

    async def say(word: str, *, to: Any = None) -> str:
        ran.append(word)
        return f"{word} {len(ran)}"

    async def play(*words: str) -> list[str]:
        async with runner.auto("r") as run:
            return [await run.step("say", say, word, to={"a", "b"}) for word in words]

    assert ["a 1", "b 2", "a 3"] == await play("a", "b", "a")
    assert ["b 2", "c 4", "a 1", "a 3", "a 5"] == await play("b", "c", "a", "a", "a")

    assert ["say", "say#2", "say#3", "say#4", "say#5"] == await steps_of(runner)


def test_the_state_is_no_argument() -> None:
    """Wherever it is passed; of what can't be saved, the class is what is known."""
    state: dict[str, Any] = {"n": 1}
    calls = {
        call_of("s", (each, 1), {"b": each, "a": [Odd(), (each, {"in": each})]}, each)
        for each in (state, {"n": 2}, {"other": []})
    }
    assert 1 == len(calls)
    assert call_of("s", (), {"a": 1, "b": 2}, state) == call_of("s", (), {"b": 2, "a": 1}, state)
    others = [((1,), {}), ((2,), {}), (("1",), {}), ((), {"a": 1}), ((Odd(),), {}), ((), {})]
    assert 6 == len({call_of("s", args, kwargs, state) for args, kwargs in others})
    assert call_of("s", (), {}, state) != call_of("t", (), {}, state)


def test_a_call_is_the_same_in_every_process() -> None:
    """Sets have another order in each, and dicts have that in which they were made."""
    code = (
        "from outlive.checkpoints.auto import call_of; print(call_of('s', ({*'abcdef'},), {}, {}))"
    )
    told = {told_by_python("-c", code, PYTHONHASHSEED=seed) for seed in ("1", "2")}

    assert 1 == len(told)
    one, other = {"a": 1, "b": {2: 3, 4: 5}}, {"b": {4: 5, 2: 3}, "a": 1}
    assert call_of("s", (one,), {}, {}) == call_of("s", (other,), {}, {})


async def test_steps_of_an_earlier_release_are_known_by_their_names(runner: DurableRunner) -> None:
    """They have no arguments, and answer in the order in which they were saved."""
    old = runner.auto("r", {"n": 0})
    await old.begin()
    for step_id in ("work", "work#2"):
        await old.checkpoint(step_id, {"result": f"old {step_id}"})

    async def work(number: int) -> str:
        return f"new {number}"

    async with runner.auto("r") as run:
        told = [await run.step("work", work, number) for number in (7, 8, 9)]

    assert ["old work", "old work#2", "new 9"] == told
    assert ["work", "work#2", "work#3"] == await steps_of(runner)


def test_a_name_with_a_number_is_a_name() -> None:
    """What is free is free, and nobody's call is taken for another's."""
    done = Done()
    done.load({"fetch": {CALL: "x"}, "fetch#2": {CALL: "y"}})
    assert "fetch#3" == done.free("fetch")
    assert (None, "fetch#2") == (done.take("fetch", "z"), done.take("fetch#2", "y"))
    assert ("fetch", None) == (done.take("fetch", "x"), done.take("fetch", "x"))


async def test_a_failed_step_uses_up_no_name(runner: DurableRunner) -> None:
    """Who tries it again by hand finds it done after a crash."""
    ran: list[str] = []

    async def play(*, fails: bool) -> None:
        failures = [OSError("down")] if fails else []

        @runner.step
        async def charge(state: dict[str, Any]) -> None:
            if failures:
                raise failures.pop()
            ran.append("charge")

        async with runner.auto("r") as run:
            with suppress(OSError):
                await charge(run.state)
            if fails:
                await charge(run.state)
                raise Crash

    with pytest.raises(Crash):
        await play(fails=True)
    await play(fails=False)

    assert ["charge"] == ran
    assert ["charge"] == await steps_of(runner)


async def test_who_goes_back_goes_on_behind_that_step(runner: DurableRunner) -> None:
    """With the names as they were there, so that the next process finds them."""
    ran: list[str] = []

    async def note(name: str) -> None:
        ran.append(name)

    async def play(*, goes_back: bool) -> None:
        async with runner.auto("r") as run:
            for name in ("a", "b", "b"):
                await run.step(name, note, name)
            if goes_back:
                await run.rollback("b")
                await run.step("b", note, "b")
                raise Crash

    with pytest.raises(Crash):
        await play(goes_back=True)
    await play(goes_back=False)

    assert ["a", "b", "b", "b"] == ran
    assert ["a", "b", "b#2"] == await steps_of(runner)


async def half(state: dict[str, Any], gate: asyncio.Event) -> None:
    """Takes from one, and would give to the other."""
    state["from"] -= 10
    gate.set()
    await asyncio.Event().wait()
    state["to"] += 10


async def give_up(run: AutoRun) -> None:
    """A step that is given up in the middle."""
    gate = asyncio.Event()
    task = asyncio.create_task(run.step("move", half, run.state, gate))
    await gate.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_step_that_is_given_up_leaves_the_state_as_it_was(runner: DurableRunner) -> None:
    """The next step saves nothing of it; nor of one whose outcome can't be saved."""

    async def odd(state: dict[str, Any]) -> Odd:
        state["from"] = 0
        return Odd()

    async with runner.auto("r", {"from": 100, "to": 0}) as run:
        mine = run.state
        await give_up(run)
        assert {"from": 100, "to": 0} == run.state
        with pytest.raises(ValueRefused):
            await run.step("odd", odd, run.state)
        await run.step("next", asyncio.sleep, 0)
        assert mine is run.state

    assert {"from": 100, "to": 0} == await runner.resume("r")
    assert ["next"] == await steps_of(runner)


async def test_a_save_that_nobody_waits_for_counts_all_the_same(
    runner: DurableRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given up while it is saved, a step is done here as it is in the journal."""
    saving, go_on = asyncio.Event(), asyncio.Event()
    save = SnapshotStore.save

    async def slow(*args: Any, **kwargs: Any) -> Any:
        saving.set()
        await go_on.wait()
        return await save(*args, **kwargs)

    async def add(state: dict[str, Any]) -> None:
        state["n"] += 1

    async with runner.auto("r", {"n": 0}) as run:
        monkeypatch.setattr(SnapshotStore, "save", slow)
        task = asyncio.create_task(run.step("add", add, run.state))
        await saving.wait()
        task.cancel()
        asyncio.get_running_loop().call_soon(go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert {"add"} == run.done

    assert {"n": 1} == run.state == await runner.resume("r")


async def test_a_step_that_was_not_saved_leaves_the_state_as_it_was() -> None:
    """The store was away; tried again by hand, it is done once."""
    fault = CallFault(number=2, verb="commit", when="before", how="reply_lost")
    runner = DurableRunner(SnapshotStore(FailingStore(MemoryStore(), fault)))

    async def add(state: dict[str, Any]) -> None:
        state["n"] += 1

    async with runner.auto("r", {"n": 0}) as run:
        with pytest.raises(StoreUnavailable):
            await run.step("add", add, run.state)
        assert {"n": 0} == run.state
        await run.step("add", add, run.state)

    assert {"n": 1} == await runner.resume("r")
    await runner.store.close()


async def test_a_run_within_a_step_of_another_saves_its_own_steps(runner: DurableRunner) -> None:
    """And steps within its steps are plain calls."""

    @runner.step
    async def deep(state: dict[str, Any]) -> None:
        state["deep"] = True

    @runner.step
    async def inner(state: dict[str, Any]) -> None:
        await deep(state)

    async def outer() -> None:
        async with runner.auto("child") as child:
            await inner(child.state)

    async with runner.auto("parent") as run:
        await run.step("outer", outer)

    assert ["inner"] == await steps_of(runner, "child")
    assert ["outer"] == await steps_of(runner, "parent")


def test_plain_steps_are_known_by_their_arguments(path: Path) -> None:
    """As those that are awaited."""
    ran: list[int] = []

    def work(state: dict[str, Any], number: int) -> None:
        ran.append(number)
        state["last"] = number

    runner = plain.DurableRunner(f"sqlite:///{path}")
    for numbers in ((0, 1), (1, 2)):
        with runner.auto("r", {}) as run:
            for number in numbers:
                run.step("work", work, run.state, number)
    runner.close()

    assert [0, 1, 2] == ran
