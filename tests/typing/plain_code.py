"""What users' editors infer in plain code. Never run: mypy in strict mode must accept every line,
and every ``type: ignore`` here marks a mistake that it must find."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_type

import outlive as awaiting
from outlive import sync as outlive


@outlive.step
def plan(question: str) -> list[str]:
    return [question]


@outlive.effect(doubt="retry")
def refund(order_id: str, cents: int) -> int:
    return cents


@outlive.flow
def support(question: str) -> str:
    assert_type(plan(question), list[str])
    assert_type(refund("7", 1999), int)
    assert_type(outlive.approve(refund, "7", 1999), outlive.Approval)
    assert_type(outlive.map(plan, [question]), list[outlive.Outcome[list[str]]])
    assert_type(outlive.requests("message"), Iterator[outlive.Request[Any]])
    assert_type(outlive.patched("new"), bool)
    with outlive.timeout("10m"):
        outlive.sleep("1h")
    plan(5)  # type: ignore[arg-type]  # a question is a string
    refund("7")  # type: ignore[call-arg]  # cents are missing
    return question


@awaiting.flow
async def support_async(question: str) -> str:
    return question


def script() -> None:
    assert_type(outlive.run(support, "Where is my parcel?", id="ticket-1"), str)
    assert_type(outlive.run(support_async, "Where is my parcel?"), str)
    assert_type(awaiting.run(support, "Where is my parcel?"), str)
    handle = outlive.start(support, "Where is my parcel?")
    assert_type(handle, outlive.Handle[str])
    assert_type(handle.outcome(timeout="1m"), str)
    assert_type(handle.id, str)
    with outlive.open("memory://") as app, app.worker(flows=[support, support_async]):
        assert_type(app.submit(support, "Where?").outcome(), str)


async def asynchronous() -> None:
    handle = await awaiting.start(support, "Where is my parcel?")
    assert_type(await handle, str)
