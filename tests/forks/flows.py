"""Flows that are forked, and the world that sees what they did."""

from __future__ import annotations

import asyncio

import outlive


class Seen:
    """What happened outside, in order."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.planned: list[str] = []
        self.undone: list[str] = []


seen = Seen()


def undo_pay(order: str) -> None:
    seen.undone.append(order)


@outlive.step(name="fork_plan")
async def plan(topic: str) -> list[str]:
    seen.planned.append(topic)
    return [f"{topic}-1", f"{topic}-2"]


@outlive.effect(name="fork_pay", doubt="retry", undo=undo_pay)
async def pay(order: str) -> str:
    seen.paid.append(order)
    return f"receipt {order}"


@outlive.effect(name="fork_keyed", key="fork:{order}", doubt="retry")
async def pay_once(order: str) -> str:
    seen.paid.append(order)
    return f"receipt {order} of {outlive.run_id()}"


@outlive.flow(name="fork_buy")
async def buy(topic: str) -> list[str]:
    return [await pay(order) for order in await plan(topic)]


@outlive.flow(name="fork_chance")
async def chance(topic: str) -> list[str]:
    first = str(outlive.uuid())
    await plan(topic)
    second = str(outlive.uuid())
    return [first, second]


@outlive.flow(name="fork_once")
async def once(topic: str) -> str:
    await plan(topic)
    return await pay_once(topic)


@outlive.flow(name="fork_fails")
async def fails(topic: str) -> None:
    await pay(topic)
    await plan(topic)
    await pay(f"{topic}-own")
    raise ValueError("no")


@outlive.flow(name="fork_child")
async def child(number: int) -> int:
    return number * 2


@outlive.flow(name="fork_parent")
async def parent() -> int:
    got: int = await outlive.call(child, 4)
    await plan("kids")
    more: int = await outlive.call(child, got)
    return more


@outlive.flow(name="fork_asks")
async def asks() -> str:
    answer: str = await outlive.ask("Which?", type=str)
    return answer.upper()


@outlive.flow(name="fork_sleeps")
async def sleeps() -> str:
    await plan("a")
    await outlive.sleep("0.05s")
    await plan("b")
    return "slept"


@outlive.flow(name="fork_chapters")
async def chapters(left: int, heard: list[str]) -> list[str]:
    heard = heard + await plan(f"c{left}")
    if left:
        await outlive.carry(left - 1, heard)
    return heard


@outlive.flow(name="fork_gathers")
async def gathers() -> list[str]:
    plans = await asyncio.gather(plan("x"), plan("y"), plan("z"))
    return [await pay(each[0]) for each in plans]


@outlive.flow(name="fork_retried")
async def retried(topic: str) -> str:
    await plan(topic)
    await plan(f"{topic}-b")
    if topic not in seen.paid:
        raise ValueError("not yet")
    return "paid"


FLOWS = [buy, chance, once, fails, child, parent, asks, sleeps, chapters, gathers, retried]
