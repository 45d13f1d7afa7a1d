"""Steps, effects and flows are functions for whoever looks: tool registries, web frameworks."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, get_type_hints

import pytest

import outlive


@outlive.step
async def search(query: str, limit: int = 3) -> list[str]:
    """Look it up."""
    return [query] * limit


@outlive.effect
async def refund(order: str) -> None:
    """Pay it back."""


@outlive.flow
async def support(question: str) -> str:
    """Answer it."""
    return question


@outlive.step
def plain_step(query: str) -> str:
    """Compute it."""
    return query


@outlive.flow
def plain_flow(query: str) -> str:
    """Compute it in a run."""
    return query


class Caller:
    async def __call__(self, query: str) -> str:
        return query


ASYNC: list[Any] = [search, refund, support, support.options(id="x")]
PLAIN: list[Any] = [plain_step, plain_flow]


def name_of(call: Any) -> str:
    return str(call.__name__)


@pytest.mark.parametrize("call", ASYNC, ids=name_of)
def test_what_is_awaited_is_a_coroutine_function(call: Any) -> None:
    """For both modules that are asked."""
    assert inspect.iscoroutinefunction(call)
    assert asyncio.iscoroutinefunction(call)
    assert callable(call)


@pytest.mark.parametrize("call", PLAIN, ids=name_of)
def test_what_is_called_plainly_is_none(call: Any) -> None:
    """A registry would await what it returns."""
    assert not inspect.iscoroutinefunction(call)
    assert not asyncio.iscoroutinefunction(call)


def test_an_object_that_is_called_is_one_too() -> None:
    """Not only what was written with ``async def``."""
    step = outlive.step(name="caller")(Caller())

    assert inspect.iscoroutinefunction(step)
    assert "hi" == asyncio.run(step("hi"))


@pytest.mark.parametrize("call", [*ASYNC, *PLAIN], ids=name_of)
def test_it_has_the_name_the_text_and_the_types_of_what_was_written(call: Any) -> None:
    """So that a schema can be made of it."""
    fn = getattr(call, "definition", call).fn

    assert inspect.signature(call) == inspect.signature(fn)
    assert get_type_hints(call) == get_type_hints(fn)
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        assert getattr(call, name) == getattr(fn, name)
    assert inspect.getdoc(call) == inspect.getdoc(fn)


def test_a_transactional_step_does_not_show_its_connection() -> None:
    """Nobody gives it: a tool's schema must not ask for it."""

    @outlive.step(transaction=True)
    async def save(connection: Any, name: str) -> None:
        """Keep it."""

    assert ["name"] == list(inspect.signature(save).parameters)


async def test_a_registry_can_call_what_it_was_given() -> None:
    """As frameworks for agents do: look, bind by name, call, await."""
    tools: dict[str, Any] = {call.__name__: call for call in (search, plain_step)}

    @outlive.flow
    async def agent() -> list[Any]:
        made = []
        for name, given in (("search", {"query": "x", "limit": 1}), ("plain_step", {"query": "y"})):
            tool = tools[name]
            bound = inspect.signature(tool).bind(**given)
            outcome = tool(*bound.args, **bound.kwargs)
            made.append(await outcome)
        return made

    async with outlive.open("memory://") as app:
        handle = await app.start(agent, id="r")
        assert [["x"], "y"] == await handle.outcome()
