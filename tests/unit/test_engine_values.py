"""Live equals replay: what a flow gets from a step is what the record says, its own copy."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

import outlive
from outlive.errors import (
    InDoubt,
    KeyTaken,
    NotHappened,
    RunFailed,
    StepFailed,
    TimedOut,
    ValueRefused,
)
from outlive.model.events import StepDone, StepRaised
from outlive.store import Store
from tests.order.journals import drive_on
from tests.unit.scene import Scene


@dataclass
class Basket:
    items: list[str] = field(default_factory=list)


class BankError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


async def live_and_replayed(scene: Scene, flow: outlive.Flow[[], Any]) -> list[Any]:
    """What a flow returns when it runs, and what it returns when it is replayed."""
    handle = await scene.open().start(flow, id="r")
    live = await scene.outcome(handle)
    replayed = await drive_on((await handle.read())[:-1], flow, run_id="r")
    return [live, replayed.outcome[1]]


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


# ---------------------------------------------------------------- exceptions


async def caught(scene: Scene, error: BaseException, **options: Any) -> list[Any]:
    """(type, args) that a flow catches when a step raises this, live and replayed."""

    @outlive.step(**options)
    async def breaking() -> int:
        raise error

    @outlive.flow
    async def catching() -> list[Any]:
        try:
            await breaking()
        except Exception as met:
            return [type(met).__name__, list(map(str, met.args)), str(met)]
        return []

    live, replayed = await live_and_replayed(scene, catching)
    assert live == replayed
    return live


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no good", 3),
        KeyError("gone"),
        ZeroDivisionError(),
        FileNotFoundError(2, "not here"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        TimeoutError("late"),
        StopAsyncIteration(),
        TimedOut("a limit"),
        NotHappened("nothing"),
        InDoubt("0/pay#1", "key", "why"),
        KeyTaken("key", "holder", "wanted"),
        StepFailed("Inner", "text"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_errors_that_everybody_knows_come_back(scene: Scene, error: Exception) -> None:
    """Built-in ones and ours, with their arguments and their text."""
    name, _, text = await caught(scene, error)

    assert [name, text] == [type(error).__name__, str(error)]


async def test_declared_errors_come_back(scene: Scene) -> None:
    """raises= names the types that the flow wants to catch."""
    got = await caught(scene, BankError(7, "closed"), raises=(BankError,))

    assert got[:2] == ["BankError", ["7", "closed"]]


class ApiError(Exception):
    def __init__(self, status: Any) -> None:
        super().__init__(f"HTTP {status}")


class NoCover(BankError):
    """One of a bank's errors."""


async def test_a_declared_error_never_says_something_else(scene: Scene) -> None:
    """If its type makes another text of its arguments, it is told by name."""
    name, _, text = await caught(scene, ApiError(404), raises=(ApiError,))

    assert [name, text] == ["StepFailed", "ApiError: HTTP 404"]


@pytest.mark.parametrize(("base", "name"), [(BankError, "NoCover"), (Exception, "StepFailed")])
async def test_what_is_derived_from_a_declared_error_comes_back(
    scene: Scene, base: type[Exception], name: str
) -> None:
    """As itself, if it was there when the step was declared; not with what is built in."""
    got = await caught(scene, NoCover(7, "closed"), raises=(base,))

    assert got[0] == name


async def test_an_error_that_came_to_be_after_its_step_is_told_by_name(scene: Scene) -> None:
    """A body's own import is not there on replay: the flow must see the same."""

    @outlive.step(raises=(BankError,))
    async def bad() -> None:
        late: Any = type("Late", (BankError,), {})
        raise late(7, "closed")

    @outlive.flow
    async def flow() -> str:
        try:
            await bad()
        except Exception as error:
            return type(error).__name__
        return ""

    live, replayed = await live_and_replayed(scene, flow)

    assert live == replayed == "StepFailed"


async def test_declared_errors_of_one_name_are_told_apart(scene: Scene) -> None:
    """By their modules; a third that nobody declared comes back as none of them."""
    one, other, third, twin = (
        type("Broken", (Exception,), {"__module__": module}) for module in ("a", "b", "c", "a")
    )
    seen = []

    @outlive.step(raises=(one, other))
    async def bad(which: int) -> None:
        raise (one, other, third, twin)[which]("x")

    @outlive.flow
    async def flow() -> None:
        for which in range(4):
            try:
                await bad(which)
            except Exception as error:
                seen.append(type(error))

    await scene.run(flow)
    assert seen == [one, other, StepFailed, StepFailed]


async def test_undeclared_errors_are_told_by_name(scene: Scene) -> None:
    """Live as on replay: no type is looked up by a name found in data."""
    name, args, text = await caught(scene, BankError(7, "closed"))

    assert name == "StepFailed"
    assert "BankError" in text
    assert len(args) == 1


async def test_a_foreign_error_is_not_taken_for_a_built_in_one(scene: Scene) -> None:
    """Some libraries name theirs like Python's: they are other types all the same."""
    foreign = type("ConnectionError", (Exception,), {})

    name, _, text = await caught(scene, foreign("refused"))

    assert name == "StepFailed"
    assert "ConnectionError" in text


async def test_a_foreign_error_is_not_taken_for_a_declared_one(scene: Scene) -> None:
    """A type of the same name from elsewhere was not declared."""
    foreign = type("BankError", (Exception,), {"__module__": "elsewhere"})

    name, _, _ = await caught(scene, foreign(1, "x"), raises=(BankError,))

    assert name == "StepFailed"


async def test_an_error_that_cannot_be_made_again_is_told_by_name(scene: Scene) -> None:
    """Arguments that can't be recorded, or that its type does not take."""

    class Odd(Exception):
        def __init__(self, *, reason: str) -> None:
            super().__init__(object())
            self.reason = reason

        def __str__(self) -> str:
            return f"odd: {self.reason}"

    name, _, text = await caught(scene, Odd(reason="why"), raises=(Odd,))

    assert name == "StepFailed"
    assert "odd: why" in text


async def test_an_effects_error_comes_back_like_a_steps(scene: Scene) -> None:
    """What is declared to mean "nothing happened" reaches the flow with its type."""

    @outlive.effect(not_happened=(BankError,), raises=(BankError,))
    async def pay() -> None:
        raise BankError(3, "no cover")

    @outlive.flow
    async def paying() -> list[Any]:
        try:
            await pay()
        except BankError as error:
            return [error.code, error.text]
        return []

    live, replayed = await live_and_replayed(scene, paying)

    assert live == replayed == [3, "no cover"]


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
