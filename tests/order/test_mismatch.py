"""Code that no longer does what the journal says: told with both sides, parked, never guessed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import outlive
from outlive.app import App
from outlive.errors import ReplayMismatch
from outlive.model.events import Event, Parked, StepDone, TimerFired
from outlive.stores.memory import MemoryStore
from tests.order.journals import STAYING, drive, drive_on, write

Code = Callable[[], Coroutine[Any, Any, Any]]
RUN = "changed"


@outlive.step
async def first(number: int) -> int:
    return number


@outlive.step
async def second(number: int) -> int:
    return number * 10


@outlive.step
async def renamed(number: int) -> int:
    return number * 10


@outlive.step(ignore=("client",))
async def asked(question: str, client: str) -> str:
    return f"{question}: {client}"


@outlive.step
async def counted(table: dict[str, int]) -> int:
    return sum(table.values())


@outlive.effect
async def pay(cents: int) -> int:
    return cents


def a_flow(code: Code) -> outlive.Flow[[], Any]:
    """Whatever the code: always the same flow, as after a deployment."""
    return outlive.flow(name="changing")(code)


async def recorded(code: Code) -> list[Event]:
    """The journal of a run of this code, without its end."""
    return (await drive(MemoryStore(), a_flow(code), run_id=RUN)).events[:-1]


async def mismatch(old: Code, new: Code) -> ReplayMismatch:
    """What the new code meets in the journal of the old; afterwards the old code goes on."""
    events = await recorded(old)
    store = write(MemoryStore(), RUN, events)
    met = await drive(store, a_flow(new), run_id=RUN)
    how, error = met.outcome
    assert how == "mismatch", met
    assert isinstance(met.events[-1], Parked)
    assert str(error) == met.events[-1].reason
    assert met.events[: len(events)] == events

    gone_on = await drive(store, a_flow(old), run_id=RUN)

    assert gone_on.outcome == (await drive(MemoryStore(), a_flow(old), run_id=RUN)).outcome
    assert isinstance(error, ReplayMismatch)
    return error


async def old() -> list[int]:
    return [await first(1), await second(2)]


async def test_a_renamed_step_is_a_mismatch() -> None:
    """The message has what the journal has and what the code asks for."""

    async def new() -> list[int]:
        return [await first(1), await renamed(2)]

    error = await mismatch(old, new)

    assert "0/second#1" in error.recorded
    assert "0/renamed#1" in error.code
    assert error.seq == 4
    assert "put the old code back" in str(error)


async def test_a_removed_step_is_a_mismatch() -> None:
    """Also when the flow then asks for a later one."""

    async def new() -> list[int]:
        return [await second(2)]

    error = await mismatch(old, new)

    assert "0/first#1" in error.recorded
    assert "0/second#1" in error.code


async def test_reordered_steps_are_a_mismatch() -> None:
    """The order of a branch is part of its journal."""

    async def new() -> list[int]:
        return [await second(2), await first(1)]

    error = await mismatch(old, new)

    assert "0/first#1" in error.recorded
    assert "0/second#1" in error.code


async def test_an_early_return_is_a_mismatch() -> None:
    """A flow that returns while the journal goes on has not done what it did."""

    async def new() -> list[int]:
        return [await first(1)]

    error = await mismatch(old, new)

    assert "0/second#1" in error.recorded
    assert error.code == "returned"


async def test_an_early_error_is_a_mismatch() -> None:
    """A bug in the new code does not fail a run that got further with the old."""

    async def new() -> list[int]:
        await first(1)
        raise RuntimeError("a bug")

    error = await mismatch(old, new)

    assert "0/second#1" in error.recorded


@pytest.mark.parametrize("name", ["second", "pay"])
async def test_changed_arguments_are_a_mismatch(name: str) -> None:
    """Of steps and of effects, though place and name are the same."""
    call: Any = {"second": second, "pay": pay}[name]

    async def before() -> list[int]:
        return [await first(1), await call(2)]

    async def after() -> list[int]:
        return [await first(1), await call(3)]

    error = await mismatch(before, after)

    assert f"0/{name}#1" in error.recorded
    assert "other arguments" in error.code


async def test_changed_arguments_in_a_branch_are_a_mismatch() -> None:
    """Also where the outcome has to wait for its turn."""

    async def before() -> list[int]:
        return list(await asyncio.gather(first(1), second(2), pay(3)))

    async def after() -> list[int]:
        return list(await asyncio.gather(first(1), second(3), pay(3)))

    error = await mismatch(before, after)

    assert "0.2/second#1" in error.recorded
    assert "0.2/second#1 with other arguments" in error.code


async def test_a_removed_timer_is_a_mismatch() -> None:
    """Waits are part of the journal."""

    async def before() -> int:
        await asyncio.sleep(0.001)
        return await first(1)

    async def after() -> int:
        return await first(1)

    error = await mismatch(before, after)

    assert "0/timer#1" in error.recorded
    assert "0/first#1" in error.code


async def test_a_step_in_place_of_an_effect_is_told_as_such() -> None:
    """An effect that became a step would lose its settlement."""
    as_step = outlive.step(name="pay")(pay.plain)

    async def before() -> int:
        return await pay(1)

    async def after() -> int:
        return await as_step(1)

    error = await mismatch(before, after)

    assert "effect 0/pay#1" in error.recorded
    assert "0/pay#1 as a step" in error.code


async def test_a_dict_in_another_order_is_the_same_call_at_every_attempt() -> None:
    """Also where the journal repeats only the digest of the arguments, not them."""

    @outlive.effect(retry=outlive.Retry(attempts=2, delay=0.001))
    async def post(table: dict[str, int]) -> int:
        if outlive.attempt() == 1:
            raise outlive.NotHappened("not yet")
        return sum(table.values())

    async def before() -> int:
        return await post({"a": 1, "b": 2})

    async def after() -> int:
        return await post({"b": 2, "a": 1})

    gone_on = await drive_on(await recorded(before), a_flow(after), run_id=RUN)

    assert gone_on.outcome == ("returned", 3)


# ---------------------------------------------------------------- what does not matter


async def test_ignored_arguments_are_not_compared() -> None:
    """What the step declares with ignore= may change between drives."""

    async def before() -> str:
        return await asked("why", client="old")

    async def after() -> str:
        return await asked("why", client="new")

    gone_on = await drive_on(await recorded(before), a_flow(after), run_id=RUN)

    assert gone_on.outcome == ("returned", "why: old")


async def test_the_order_of_a_dict_is_not_compared() -> None:
    """Equal arguments are equal, in whichever order a dictionary was filled."""

    async def before() -> int:
        return await counted({"a": 1, "b": 2})

    async def after() -> int:
        return await counted({"b": 2, "a": 1})

    gone_on = await drive_on(await recorded(before), a_flow(after), run_id=RUN)

    assert gone_on.outcome == ("returned", 3)


async def test_the_order_of_a_set_shows_in_the_arguments() -> None:
    """Iterating a set of texts differs from process to process: the digest notices."""

    async def before() -> list[int]:
        return [await first(number) for number in (1, 2)]

    async def after() -> list[int]:
        return [await first(number) for number in (2, 1)]

    error = await mismatch(before, after)

    assert "0/first#1 with other arguments" in error.code


async def test_code_behind_the_journal_may_change() -> None:
    """What a run has not come to yet is new code's business."""

    async def after() -> list[int]:
        return [await first(1), await second(2), await renamed(3)]

    gone_on = await drive_on(await recorded(old), a_flow(after), run_id=RUN)

    assert gone_on.outcome == ("returned", [1, 20, 30])


# ---------------------------------------------------------------- ids


def ids(events: list[Event]) -> list[str]:
    return [event.step for event in events if isinstance(event, StepDone)] + [
        event.timer for event in events if isinstance(event, TimerFired)
    ]


async def test_an_unrelated_step_moves_no_id() -> None:
    """A step inserted into one branch leaves the ids of all others as they are."""

    async def left(inserted: bool) -> int:
        if inserted:
            await renamed(0)
        await first(1)
        await asyncio.sleep(0)
        return await first(2)

    async def right() -> int:
        await second(1)
        return await asyncio.wait_for(second(2), 5)

    async def before() -> list[int]:
        await first(0)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(left(False)), group.create_task(right())]
        return [task.result() for task in tasks]

    async def after() -> list[int]:
        await first(0)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(left(True)), group.create_task(right())]
        return [task.result() for task in tasks]

    was, is_now = set(ids(await recorded(before))), set(ids(await recorded(after)))

    assert was == {"0/first#1", "0.1/first#1", "0.1/first#2", "0.2/second#1", "0.2/second#2"}
    assert is_now - was == {"0.1/renamed#1"}
    assert was < is_now


async def test_a_branch_added_at_the_end_goes_on_with_an_old_run() -> None:
    """Branches are numbered where they are made: one more behind the others disturbs nobody."""

    async def before() -> list[int]:
        return list(await asyncio.gather(first(1), second(2)))

    async def after() -> list[int]:
        return list(await asyncio.gather(first(1), second(2), renamed(3)))

    gone_on = await drive_on(await recorded(before), a_flow(after), run_id=RUN)

    assert gone_on.outcome == ("returned", [1, 20, 30])


async def test_ids_have_branch_name_and_ordinal() -> None:
    """Of steps given to gather, as_completed and wait_for, and of timers."""

    async def code() -> None:
        await asyncio.gather(first(1), first(2))
        for each in asyncio.as_completed([first(3), second(4)]):
            await each
        await asyncio.wait_for(first(5), 5)
        await asyncio.create_task(first(6))
        await asyncio.sleep(0.001)
        await outlive.sleep(0.001)

    found = set(ids(await recorded(code)))

    assert found == {
        "0.1/first#1",
        "0.2/first#1",
        "0.3/first#1",
        "0.4/second#1",
        "0/first#1",
        "0.5/first#1",
        "0/timer#2",
        "0/sleep#1",
    }


async def test_as_completed_over_a_set_is_refused() -> None:
    """Its order would be another on replay; the error says what to write instead."""

    async def code() -> str:
        given = {first(1), first(2)}
        try:
            for each in asyncio.as_completed(given):
                await each
        except TypeError as error:
            return str(error)
        finally:
            for call in given:
                call.close()
        return "not refused"

    driven = await drive(MemoryStore(), a_flow(code), run_id=RUN)

    assert "needs a list or tuple" in driven.outcome[1]


# ---------------------------------------------------------------- what becomes of the run


async def test_a_run_that_does_not_fit_is_parked_with_its_reason() -> None:
    """Nothing of it is lost, people see why it stands, and other runs go on."""

    async def new() -> list[int]:
        return [await renamed(1)]

    store = write(MemoryStore(), RUN, await recorded(old))
    async with App(store, settings=STAYING) as app:
        handle = await app.start(a_flow(new), id=RUN)
        with pytest.raises(ReplayMismatch):
            await handle.outcome("10s")
        (found,) = (await app.find(flow="changing")).items

        assert found.header.status == "waiting"
        assert "0/renamed#1" in found.header.reason
        assert found.head.worker is None
        other = await app.start(a_flow(new), id="another")
        assert [10] == await other.outcome("10s")
