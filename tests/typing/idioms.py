"""What users write, as mypy and pyright must see it, both strict: without a complaint."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, assert_type

import outlive
from outlive import approve, call, run, start, submit
from outlive import map as map_


@dataclass
class Order:
    """An order of the user's shop."""

    number: str
    cents: int


@outlive.step(retry=outlive.Retry(attempts=5))
async def look_up(number: str) -> Order:
    return Order(number, 1999)


@outlive.effect(key="refund:{number}", doubt="retry")
async def refund(number: str, cents: int) -> bool:
    return cents > 0


async def find(number: str, cents: int = 5) -> Order:
    return Order(number, cents)


def count(number: str) -> int:
    return len(number)


@outlive.flow
async def child(number: str, cents: int = 5) -> Order:
    return Order(number, cents)


@outlive.flow
def plain_child(number: str) -> int:
    return len(number)


@outlive.flow
async def support(question: str, *, words: int = 20) -> str:
    orders = await asyncio.gather(look_up("1"), look_up("2"))
    assert_type(orders, tuple[Order, Order])
    found = await outlive.map(look_up, ["1", "2"])
    assert_type(found, list[outlive.Outcome[Order]])
    assert_type([each.value.cents for each in found if each.ok], list[int])
    assert_type(await outlive.map(child, ["1"]), list[outlive.Outcome[Order]])
    with outlive.place("agent"):
        assert_type(await outlive.do("find", find, "7"), Order)
        assert_type(await outlive.do("find", find, "7", 3, id="call_1"), Order)
        assert_type(await outlive.do("count", count, "7", effect={"doubt": "retry"}), int)
        assert_type(await outlive.do("find", lambda: find("7")), Order)
        options = outlive.EffectOptions(key="count:{number}")
        assert_type(await outlive.do("count", partial(count, "7"), effect=options), int)
        await outlive.on_host(print, "closed")
    assert_type(outlive.in_flow() and outlive.replaying(), bool)
    assert_type(await outlive.ask("How many?", type=int), int)
    assert_type(await outlive.ask("How?"), str)
    assert_type(await outlive.ask("Which?", type=Order, within="2d"), Order)
    assert_type(await outlive.wait_signal("order", type=Order), Order)
    assert_type(await outlive.call(child, "7"), Order)
    assert_type(await outlive.call(child, "7", 5, id="c-7"), Order)
    assert_type(await outlive.call(plain_child, "7", id="c-8"), int)
    assert_type(await outlive.spawn(child, "7", id="c-9"), str)
    approval = await outlive.approve(refund, "7", 1999, within="2d")
    assert_type(approval, outlive.Approval)
    async for request in outlive.requests("message", type=str, idle="30d"):
        assert_type(request, outlive.Request[str])
        await request.reply(request.value.upper())
    async with outlive.timeout("10m"):
        await outlive.sleep("1h")
    return question[:words]


async def found_runs() -> None:
    page = await outlive.find(status="failed", tag=("customer", "7"))
    for each in page.items:
        assert_type(each.id, str)
        assert_type(each.started_at, datetime)
        assert_type(each.ended_at, datetime | None)
        assert_type(each.tags, Mapping[str, str])


async def followed(handle: outlive.Handle[str]) -> None:
    async for event in handle.events():
        assert_type(event.at, datetime)
        assert_type(event.kind, str)
        assert_type(event.step, str | None)


async def asynchronous() -> None:
    handle = await outlive.start(support, "Where is it?", id="ticket-1")
    assert_type(handle, outlive.Handle[str])
    assert_type(await handle, str)
    assert_type(await handle.outcome(timeout="1m"), str)
    assert_type(await outlive.start(support, "Where?", words=3), outlive.Handle[str])
    assert_type(await outlive.start(support, question="Where?", id="t"), outlive.Handle[str])
    assert_type(await outlive.ensure(support, "Where?", id="t"), outlive.Handle[str])
    assert_type(await outlive.submit(support, "Where?", tags={"a": "b"}), outlive.Handle[str])
    assert_type(await outlive.submit("support", "Where?"), outlive.Handle[Any])
    assert_type(await outlive.start(plain_child, "7", id="p"), outlive.Handle[int])
    named = support.options(id="ticket-2")
    assert_type(await outlive.start(named, "Where?", words=3), outlive.Handle[str])
    async with outlive.open("memory://") as app:
        assert_type(await (await app.start(support, "Where?", id="t")), str)


def blocking() -> None:
    assert_type(outlive.run(support, "Where is it?", id="ticket-1"), str)
    assert_type(outlive.run(child, "7", store="sqlite:///x.db"), Order)
    assert_type(outlive.run(plain_child, "7"), int)


async def mistakes() -> None:
    f, e, g = child, refund, support
    run(f)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]
    run(f, 7)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue]
    run(f, 7, id="a")  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]
    run(f, "7", n=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await start(g)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]
    await start(g, 5)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue]
    await submit(g, 5)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue]
    await call(f, 7)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue]
    await approve(e, "7")  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue]
    await map_(f, [1])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
