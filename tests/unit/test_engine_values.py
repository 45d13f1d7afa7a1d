"""Live equals replay: what a flow gets from a step is what the record says, its own copy."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

import outlive
from outlive.errors import (
    RunFailed,
    ValueRefused,
)
from outlive.model.events import StepDone, StepRaised
from outlive.stores.seam import Store
from tests.harness.scene import Scene, live_and_replayed


@dataclass
class Basket:
    items: list[str] = field(default_factory=list)


async def test_a_result_is_the_flows_own_copy(scene: Scene) -> None:
    """What the body keeps and changes later does not reach the flow, nor the other way round."""
    kept: list[Basket] = []

    @outlive.step
    async def fill() -> Basket:
        kept.append(Basket(["bread"]))
        return kept[-1]

    @outlive.flow
    async def shopping() -> list[list[str]]:
        basket = await fill()
        if kept:
            kept[-1].items.append("changed by the body")
        basket.items.append("wine")
        again = await fill()
        return [basket.items, again.items]

    live, replayed = await live_and_replayed(scene, shopping)

    assert live == replayed == [["bread", "wine"], ["bread"]]


async def test_arguments_are_the_bodys_own_copy(scene: Scene) -> None:
    """A body that changes its arguments changes nothing for the flow; a replay has no body."""

    @outlive.step
    async def spoil(basket: Basket, numbers: list[int], *more: list[int]) -> None:
        basket.items.clear()
        numbers.append(99)
        more[0].append(99)

    @outlive.flow
    async def shopping() -> list[Any]:
        basket, numbers, more = Basket(["bread"]), [1], [2]
        await spoil(basket, numbers, more)
        return [basket.items, numbers, more]

    live, replayed = await live_and_replayed(scene, shopping)

    assert live == replayed == [["bread"], [1], [2]]


async def test_arguments_are_those_of_the_call(scene: Scene) -> None:
    """What the flow changes after the call does not reach a body that has not begun."""
    gate = asyncio.Event()

    @outlive.step
    async def slow(numbers: list[int]) -> list[int]:
        await gate.wait()
        return numbers

    @outlive.flow
    async def changing() -> list[int]:
        numbers = [1]
        task = asyncio.create_task(slow(numbers))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        numbers.append(2)
        gate.set()
        return await task

    assert await scene.run(changing) == [1]


async def test_types_that_hints_reach_come_back(scene: Scene) -> None:
    """A dataclass is a dataclass, live and on replay."""

    @outlive.step
    async def fill(items: list[str]) -> list[Basket]:
        return [Basket(items)]

    @outlive.flow
    async def shopping() -> list[Any]:
        (basket,) = await fill(["bread"])
        return [type(basket).__name__, basket.items]

    live, replayed = await live_and_replayed(scene, shopping)

    assert live == replayed == ["Basket", ["bread"]]


# ---------------------------------------------------------------- refused values


async def test_a_result_that_would_not_come_back_is_refused_with_its_path(scene: Scene) -> None:
    """At its first recording; the flow may catch it, live as on replay."""

    @outlive.step
    async def odd() -> Any:
        return {"list": [1, {"deep": object()}]}

    @outlive.flow
    async def flow() -> str:
        try:
            await odd()
        except ValueRefused as error:
            return error.path
        return "?"

    live, replayed = await live_and_replayed(scene, flow)

    assert live == replayed
    assert "list" in live
    assert "deep" in live


async def test_an_effect_whose_result_is_refused_has_happened(scene: Scene) -> None:
    """It is not in doubt and not tried again: only its outcome can't be kept."""
    ran: list[int] = []

    @outlive.effect(retry=outlive.Retry(attempts=3, delay=0))
    async def pay() -> Any:
        ran.append(1)
        return object()

    @outlive.flow
    async def paying() -> str:
        try:
            await pay()
        except ValueRefused:
            return "refused"
        return "?"

    assert await scene.run(paying) == "refused"
    assert ran == [1]


async def test_arguments_that_would_not_come_back_are_refused(scene: Scene) -> None:
    """Before anything is recorded or run."""
    ran: list[int] = []

    @outlive.step
    async def take(thing: Any) -> None:
        ran.append(1)

    @outlive.flow
    async def flow() -> str:
        try:
            await take([float("nan")])
        except ValueRefused as error:
            return error.path
        return "?"

    handle = await scene.open().start(flow, id="r")

    assert "thing" in await scene.outcome(handle)
    assert not await scene.events(handle, StepDone, StepRaised)
    assert not ran


async def test_a_flow_whose_result_is_refused_fails(scene: Scene) -> None:
    """Its outcome is the refusal."""

    @outlive.flow
    async def flow() -> Any:
        return {1, object()}

    with pytest.raises(RunFailed, match="ValueRefused"):
        await scene.run(flow)


async def test_arguments_of_a_flow_are_refused_before_it_starts(scene: Scene) -> None:
    """No run comes into being."""

    @outlive.flow
    async def flow(thing: Any) -> None:
        pass

    app = scene.open()
    with pytest.raises(ValueRefused):
        await app.start(flow, object(), id="r")

    store: Store = scene.store
    assert await store.read("r") is None
