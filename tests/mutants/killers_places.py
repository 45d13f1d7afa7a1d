"""One small test per rule of places, anonymous steps and cleanups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import outlive
from outlive.engine.definitions import Flow
from outlive.model.events import StepDone
from outlive.stores.memory import MemoryStore
from tests.order.journals import Driven, drive, drive_on

Scene = Callable[[Path], None]


@dataclass
class Order:
    number: int


@dataclass
class Parcel:
    number: int


async def double(number: int) -> int:
    return number * 2


def killed_behind(kind: type, flow: Flow[[], Any]) -> tuple[Driven, Driven]:
    """A run, and the same run killed behind the first event of a kind and resumed."""

    async def both() -> tuple[Driven, Driven]:
        whole = await drive(MemoryStore(), flow, run_id="r")
        cut = 1 + [type(event) for event in whole.events].index(kind)
        return whole, await drive_on(whole.events[:cut], flow, run_id="r")

    return asyncio.run(both())


def ids_do_not_follow_tasks(_: Path) -> None:
    """A framework that makes other tasks after a crash gets the same ids."""
    tasks = iter([0, 3])
    others: list[Any] = []

    @outlive.flow
    async def flow() -> list[int]:
        with outlive.place("agent"):
            for _ in range(next(tasks)):
                others.append(asyncio.create_task(asyncio.sleep(0)))
            one = asyncio.create_task(outlive.do("tool", double, 1, id="a"))
            two = asyncio.create_task(outlive.do("tool", double, 2, id="b"))
            return [await one, await two]

    whole, resumed = killed_behind(StepDone, flow)

    assert ("returned", [2, 4]) == whole.outcome == resumed.outcome
    done = {event.step for event in resumed.events if type(event) is StepDone}
    assert {"0@agent/tool:a#1", "0@agent/tool:b#1"} == done


def equal_calls_are_refused(_: Path) -> None:
    """Two open calls of one name in a place fail the run."""

    @outlive.flow
    async def flow() -> None:
        with outlive.place("agent"):
            await asyncio.gather(*(outlive.do("tool", double, n) for n in (1, 2)))

    driven = asyncio.run(drive(MemoryStore(), flow, run_id="r"))
    assert ("failed", "AmbiguousCall") == driven.outcome


def an_anonymous_step_is_done_once(_: Path) -> None:
    """Its outcome is in the journal: the function is not called again."""
    called: list[int] = []

    async def note(number: int) -> int:
        called.append(number)
        return number

    @outlive.flow
    async def flow() -> list[int]:
        return [await outlive.do("note", note, number) for number in (1, 2)]

    killed_behind(StepDone, flow)

    assert [1, 2, 2] == called


def a_shape_is_its_functions_own(_: Path) -> None:
    """Functions of one code with other types come back as they were."""

    def made(kind: Any) -> Any:
        async def body() -> Any:
            return kind(1)

        body.__annotations__["return"] = kind
        return body

    @outlive.flow
    async def flow() -> str:
        return repr([await outlive.do("make", made(kind)) for kind in (Order, Parcel)])

    driven = asyncio.run(drive(MemoryStore(), flow, run_id="r"))
    assert ("returned", "[Order(number=1), Parcel(number=1)]") == driven.outcome


def a_cleanup_is_not_replayed(_: Path) -> None:
    """It is called where the step ran that it cleans up after."""
    closed: list[str] = []

    @outlive.flow
    async def flow() -> list[int]:
        first = await outlive.do("open", double, 1)
        await outlive.on_host(closed.append, "closed")
        return [first, await outlive.do("then", double, 2)]

    async def both() -> None:
        whole = await drive(MemoryStore(), flow, run_id="r")
        await drive_on(whole.events[:-1], flow, run_id="r")

    asyncio.run(both())
    assert ["closed"] == closed


KILLERS: dict[str, Scene] = {
    "place follows the task": ids_do_not_follow_tasks,
    "calls in a place not told apart": equal_calls_are_refused,
    "do runs again on replay": an_anonymous_step_is_done_once,
    "shape of another function": a_shape_is_its_functions_own,
    "cleanup on replay": a_cleanup_is_not_replayed,
}
