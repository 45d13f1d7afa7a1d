"""What users' editors infer. Never run: mypy in strict mode must accept every line, and every
``type: ignore`` here marks a mistake that it must find."""

from __future__ import annotations

from datetime import datetime
from typing import Any, assert_type

import outlive


class Receipt:
    """Some type of the user's."""


@outlive.step
async def plan(question: str) -> list[str]:
    return [question]


@outlive.step(retry=outlive.Retry(attempts=5), timeout="60s")
async def search(query: str, *, limit: int = 3) -> int:
    return len(query) + limit


@outlive.effect(key="refund:{order_id}", doubt="retry")
async def refund(order_id: str, cents: int) -> Receipt:
    return Receipt()


@outlive.step(transaction=True, timeout="5s")
async def store(connection: Any, order_id: str) -> int:
    return len(order_id)


@outlive.flow
async def support(question: str) -> str:
    assert_type(await store("7"), int)
    assert_type(await store.plain(object(), "7"), int)
    await store(7)  # type: ignore[arg-type]  # and the connection is not given by callers
    assert_type(await plan(question), list[str])
    assert_type(await search(question, limit=1), int)
    assert_type(await refund("7", 1999), Receipt)
    assert_type(await refund.plain("7", 1999), Receipt)
    assert_type(outlive.key(), str)
    assert_type(outlive.run_id(), str)
    assert_type(outlive.attempt(), int)
    assert_type(outlive.random(), float)
    assert_type(outlive.fired_at(), datetime)
    await outlive.sleep("1h")
    await search(5)  # type: ignore[arg-type]  # a query is a string
    await refund("7")  # type: ignore[call-arg]  # cents are missing
    return question


async def asynchronous() -> None:
    handle = await outlive.start(support, "Where is my parcel?", id="ticket-1")
    assert_type(await handle, str)
    assert_type(await handle.outcome(), str)
    assert_type(handle.id, str)
    assert_type(await handle.signal("go", 5, id="s1"), bool)
    assert_type(await handle.questions(), list[outlive.Question])
    assert_type(await handle.answer(True), outlive.Question)
    await handle.cancel()
    assert_type(await outlive.ensure(support, "Where?", id="ticket-1"), outlive.Handle[str])
    later = await outlive.submit(support, "Where?", tags={"customer": "7"}, deadline="1h")
    assert_type(later, outlive.Handle[str])
    nightly = await outlive.schedule("nightly", support, "Where?", cron="@daily", tz="UTC")
    assert_type(nightly, outlive.Schedule)
    assert_type(nightly.next_at, datetime | None)
    assert_type(await outlive.schedules(), list[outlive.Schedule])
    assert_type(await outlive.unschedule("nightly"), bool)
    await outlive.schedule("x", support, every="1h", missed="all")  # type: ignore[arg-type]
    await outlive.ensure(support, "Where?")  # type: ignore[call-overload]  # an id is needed
    support.options(queu="slow")  # type: ignore[call-arg]  # there is no such option


def blocking() -> None:
    assert_type(outlive.run(support, "Where is my parcel?", id="ticket-1"), str)
