"""Ids follow the structure of the code alone; what does not matter moves none of them."""

from __future__ import annotations

import asyncio
from typing import Any

import outlive
from outlive.model.events import Event, StepDone, TimerFired
from outlive.stores.memory import MemoryStore
from tests.order.changes import (
    RUN,
    a_flow,
    asked,
    counted,
    first,
    mismatch,
    old,
    recorded,
    renamed,
    second,
)
from tests.order.journals import drive, drive_on

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


async def test_as_completed_over_other_awaitables_is_refused() -> None:
    """asyncio wraps them in coroutines of its own, whose place nobody can tell."""

    class Later:
        def __await__(self) -> Any:
            return first(1).__await__()

    async def code() -> str:
        try:
            for each in asyncio.as_completed([Later(), Later()]):
                await each
        except TypeError as error:
            return str(error)
        return "not refused"

    driven = await drive(MemoryStore(), a_flow(code), run_id=RUN)

    assert "needs coroutines or tasks" in driven.outcome[1]
