"""Small flows for runs that come and go."""

from __future__ import annotations

import asyncio

import outlive


class Till:
    """What effects did, in order."""

    def __init__(self) -> None:
        self.paid: list[str] = []


till = Till()


@outlive.flow(name="kept_double")
async def double(number: int) -> int:
    return await twice(number)


@outlive.step(name="kept_twice")
async def twice(number: int) -> int:
    return number * 2


@outlive.flow(name="kept_other")
async def other(number: int) -> int:
    return number


@outlive.flow(name="kept_fails")
async def fails() -> None:
    raise ValueError("no")


@outlive.flow(name="kept_waits")
async def waits() -> str:
    heard: str = await outlive.wait_signal("go", type=str)
    return heard


@outlive.flow(name="kept_parent")
async def parent(child_id: str) -> int:
    got: int = await outlive.call(double, 4, id=child_id)
    await outlive.wait_signal("go", type=str)
    return got


@outlive.flow(name="kept_failing_parent")
async def failing_parent(child_id: str) -> None:
    await outlive.call(double, 4, id=child_id)
    raise ValueError("after its child")


@outlive.effect(name="kept_pay", key="pay:{order}", doubt="retry")
async def pay(order: str, cents: int) -> str:
    till.paid.append(order)
    return f"receipt {len(till.paid)} for {order}"


@outlive.effect(name="kept_refused", key="refused:{order}", retry=outlive.Retry(attempts=1))
async def refused(order: str) -> str:
    raise outlive.NotHappened(f"{order} is closed")


@outlive.flow(name="kept_shop")
async def shop(order: str, cents: int = 5) -> str:
    return await pay(order, cents)


@outlive.flow(name="kept_twin_shop")
async def twin_shop(order: str) -> list[str]:
    return await asyncio.gather(pay(order, 5), pay(order, 5))


@outlive.flow(name="kept_bad_shop")
async def bad_shop(order: str) -> str:
    return await refused(order)


@outlive.flow(name="kept_chapters")
async def chapters(left: int) -> str:
    await pay(f"chapter-{left}", 1)
    if left:
        await outlive.carry(left - 1)
    return "told"


FLOWS = [double, other, fails, waits, parent, failing_parent, shop, twin_shop, bad_shop, chapters]
