"""Code that no longer does what the journal says: told with both sides, parked, never guessed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import ReplayMismatch
from outlive.model.events import Claimed, Parked
from outlive.stores.memory import MemoryStore
from tests.order.changes import (
    RUN,
    a_flow,
    first,
    mismatch,
    old,
    pay,
    recorded,
    renamed,
    second,
    unsure,
)
from tests.order.journals import STAYING, drive_on, write


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


@pytest.mark.parametrize("mail", ["nudge", "resolve"])
async def test_mail_does_not_drive_a_run_that_does_not_fit_in_circles(mail: str) -> None:
    """It is tried once for whoever asks, not again and again; the mail waits for better code."""

    async def doubted() -> int:
        return await unsure(1)

    async def new() -> list[int]:
        return [await renamed(1)]

    store = MemoryStore()
    async with App(store, settings=STAYING) as app:
        handle = await app.start(a_flow(doubted), id=RUN)
        while await handle.status() != "in_doubt":
            await asyncio.sleep(0.001)
        before = await handle.read()
    async with App(store, settings=STAYING) as app:
        if mail == "resolve":
            await app.resolve(RUN, "0/unsure#1", "happened", b"5")
        handle = await app.start(a_flow(new), id=RUN)
        await app.nudge(RUN, "now")
        with pytest.raises(ReplayMismatch):
            await handle.outcome("10s")
        for _ in range(10):
            await asyncio.sleep(STAYING.poll_seconds)
        after = (await handle.read())[len(before) :]
        await app.start(a_flow(doubted), id=RUN)
        if mail == "nudge":
            await app.resolve(RUN, "0/unsure#1", "happened", b"5")

        assert [type(event) for event in after] == [Claimed, Parked]
        assert await handle.outcome("10s") == 5
