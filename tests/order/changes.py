"""Flows that change while their runs are under way, as after a deployment."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import outlive
from outlive.errors import ReplayMismatch
from outlive.model.events import Event, Parked
from outlive.stores.memory import MemoryStore
from tests.order.journals import drive, write

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


@outlive.effect(doubt="ask")
async def unsure(cents: int) -> int:
    raise OSError(cents)


@outlive.effect
async def pay(cents: int) -> int:
    return cents


def a_flow(code: Code) -> outlive.Flow[[], Any]:
    """Whatever the code: always the same flow, as after a deployment."""
    code.__qualname__ = "changing"  # whoever changes code defines it anew at the same place
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
    assert f"mismatch: {error}" == met.events[-1].reason
    assert met.events[: len(events)] == events

    gone_on = await drive(store, a_flow(old), run_id=RUN)

    assert gone_on.outcome == (await drive(MemoryStore(), a_flow(old), run_id=RUN)).outcome
    assert isinstance(error, ReplayMismatch)
    return error


async def old() -> list[int]:
    return [await first(1), await second(2)]
