"""What code in a body may count on before it waits for the first time: a task of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import outlive
from outlive.app.app import App
from outlive.errors import TimedOut
from outlive.stores.memory import MemoryStore


async def _outcome(flow: Any) -> Any:
    async with App(MemoryStore()) as app:
        return await (await app.start(flow)).outcome("10s")


async def _tasks() -> tuple[bool, bool, int]:
    """Whether there is a task, a timeout that ends, and a group, all before the first wait."""
    task = asyncio.current_task()
    timed_out = False
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(10)
    except TimeoutError:
        timed_out = True
    return task is not None, timed_out, task.cancelling() if task is not None else -1


async def test_a_body_has_a_current_task_and_timeouts_before_its_first_wait() -> None:
    """``asyncio.current_task`` and ``asyncio.timeout`` work in steps and effects."""

    @outlive.step
    async def look() -> tuple[bool, bool, int]:
        return await _tasks()

    @outlive.effect
    async def change() -> tuple[bool, bool, int]:
        return await _tasks()

    @outlive.flow
    async def both() -> list[tuple[bool, bool, int]]:
        return [await look(), await change()]

    assert [(True, True, 0)] * 2 == await _outcome(both)


async def test_a_body_may_begin_a_task_group_before_its_first_wait() -> None:
    """``asyncio.TaskGroup`` works in an effect, and cancels its tasks when one fails."""

    @outlive.effect
    async def change() -> list[str]:
        ended: list[str] = []

        async def linger() -> None:
            try:
                await asyncio.sleep(10)
            finally:
                ended.append("cancelled")

        async def fail() -> None:
            raise ValueError("no")

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(linger())
                group.create_task(fail())
        except* ValueError:
            ended.append("failed")
        return ended

    @outlive.flow
    async def grouped() -> list[str]:
        return await change()

    assert ["cancelled", "failed"] == await _outcome(grouped)


async def test_a_limit_ends_a_body_wherever_it_waits() -> None:
    """A limit counts from the body's begin, is told at its first wait, and can be caught once."""

    @outlive.step(timeout=0.05)
    async def catches() -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # it may still wait
            raise
        return "late"

    @outlive.effect(timeout=0.05, doubt="fail")
    async def change() -> None:
        for _ in range(1000):
            await asyncio.sleep(0.01)

    @outlive.flow
    async def limited() -> list[str]:
        told = []
        for call in (catches, change):
            try:
                await call()
            except (TimedOut, outlive.errors.InDoubt) as error:
                told.append(type(error).__name__)
        return told

    assert ["TimedOut", "InDoubt"] == await _outcome(limited)


async def test_a_body_that_never_waits_sets_no_timer() -> None:
    """Its limit costs nothing: no timer is made for what is over at once."""
    waiting: list[int] = []

    @outlive.effect(timeout=7.25)
    async def change(n: int) -> int:
        return n

    @outlive.flow
    async def quick() -> int:
        return sum([await change(n) for n in range(5)])

    async with App(MemoryStore()) as app:
        assert 10 == await (await app.start(quick)).outcome("10s")
        scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
        waiting += [
            1 for timer in scheduled if 7 < timer.when() - asyncio.get_running_loop().time() < 7.3
        ]
    assert [] == waiting
