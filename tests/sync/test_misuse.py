"""What plain and async code can't do is refused at once, with the remedy in the text."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import pytest

import outlive as awaiting
from outlive import sync as outlive
from outlive.errors import DefinitionRefused, NotInRun, UsageError
from tests.harness.theatre import Theatre
from tests.harness.world import note, pay
from tests.sync.twins import plain_note

#: What the flow below does; a test says it.
deeds: list[Callable[[], Any]] = []


@outlive.flow
def doing() -> str:
    try:
        deeds[-1]()
    except UsageError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


@awaiting.flow
async def doing_async() -> str:
    try:
        found = deeds[-1]()
        if asyncio.iscoroutine(found):
            await found
    except UsageError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


@outlive.step
def body() -> None:
    deeds[-1]()


@outlive.flow
def doing_in_step() -> str:
    try:
        body()
    except UsageError as error:
        return str(error)
    except outlive.errors.StepFailed as error:
        return str(error)
    return "nothing was refused"


async def told(stage: Theatre, flow: Any, deed: Callable[[], Any]) -> str:
    """What the flow caught, or what its run failed with though the flow caught it."""
    deeds.append(deed)
    try:
        return str(await stage.outcome(await stage.open().start(flow)))
    except outlive.errors.RunFailed as failed:
        return f"{failed.type_name}: {failed.message}"


AWAITED: dict[str, Callable[[], Any]] = {
    "sleep": lambda: awaiting.sleep(1),
    "wait_signal": lambda: awaiting.wait_signal("s"),
    "ask": lambda: awaiting.ask("?"),
    "approve": lambda: awaiting.approve(pay, "a"),
    "call": lambda: awaiting.call(doing),
    "spawn": lambda: awaiting.spawn(doing),
    "map": lambda: awaiting.map(note, []),
    "timeout": lambda: awaiting.timeout(1),
    "requests": lambda: awaiting.requests("m"),
    "carry": lambda: awaiting.carry(),
}
PLAIN: dict[str, Callable[[], Any]] = {
    "sleep": lambda: outlive.sleep(1),
    "wait_signal": lambda: outlive.wait_signal("s"),
    "ask": lambda: outlive.ask("?"),
    "approve": lambda: outlive.approve(pay, "a"),
    "call": lambda: outlive.call(doing),
    "spawn": lambda: outlive.spawn(doing),
    "map": lambda: outlive.map(note, []),
    "gather": lambda: outlive.gather(),
    "timeout": lambda: outlive.timeout(1),
    "requests": lambda: outlive.requests("m"),
    "carry": lambda: outlive.carry(),
}


@pytest.mark.parametrize("name", AWAITED)
async def test_a_verb_that_must_be_awaited_is_refused_in_plain_code(
    stage: Theatre, name: str
) -> None:
    """At the call, though nobody awaits it: a coroutine that is dropped would do nothing."""
    assert (
        f"UsageError: outlive.{name} must be awaited, which a plain flow can't; write "
        f"`from outlive import sync as outlive` there, then outlive.{name} returns its outcome"
    ) == await told(stage, doing, AWAITED[name])


OUTSIDE: dict[str, Callable[[], Any]] = {
    "start": lambda: awaiting.start(doing),
    "ensure": lambda: awaiting.ensure(doing, id="r"),
    "submit": lambda: awaiting.submit(doing),
    "get": lambda: awaiting.get("r"),
    "find": lambda: awaiting.find(),
    "fork": lambda: awaiting.fork("r"),
    "schedule": lambda: awaiting.schedule("s", doing, every="1h"),
    "unschedule": lambda: awaiting.unschedule("s"),
    "pause_schedule": lambda: awaiting.pause_schedule("s"),
    "resume_schedule": lambda: awaiting.resume_schedule("s"),
    "fire_schedule": lambda: awaiting.fire_schedule("s"),
    "schedules": lambda: awaiting.schedules(),
}


@pytest.mark.parametrize("flow", [doing, doing_async])
@pytest.mark.parametrize("name", OUTSIDE)
async def test_a_verb_that_touches_the_store_is_refused_in_a_flow(
    stage: Theatre, name: str, flow: Any
) -> None:
    """At the call, though nobody awaits it; runs are started there by other verbs."""
    found = await told(stage, flow, OUTSIDE[name])

    assert found.startswith("UsageError: this touches the store, and was called inside a flow")
    assert "outlive.call or outlive.spawn" in found


@pytest.mark.parametrize("name", PLAIN)
async def test_a_verb_that_blocks_is_refused_in_async_code(stage: Theatre, name: str) -> None:
    """It would block the loop that it waits for."""
    assert (
        f"UsageError: outlive.sync.{name} was called in an async flow, which it would block; "
        f"`import outlive` there and await outlive.{name}"
    ) == await told(stage, doing_async, PLAIN[name])


@pytest.mark.parametrize("name", PLAIN)
async def test_a_verb_that_blocks_is_refused_elsewhere(stage: Theatre, name: str) -> None:
    """Outside a run, and in a step's body."""
    with pytest.raises(NotInRun, match=f"outlive.{name} was called outside a run"):
        PLAIN[name]()
    found = await told(stage, doing_in_step, PLAIN[name])
    assert f"outlive.{name} was called inside the body of step 0/body#1" in found


def in_a_thread(work: Callable[[], Any]) -> None:
    """As flow code might, by mistake: the context goes along, the branch does not."""
    raised: list[BaseException] = []

    def main() -> None:
        try:
            context.run(work)
        except BaseException as error:
            raised.append(error)

    context = copy_context()
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
    for error in raised:
        raise error


@pytest.mark.parametrize(
    "work",
    [lambda: plain_note("x"), lambda: pay("x"), lambda: outlive.sleep(1), lambda: outlive.now()],
    ids=["step", "effect", "verb", "now"],
)
async def test_threads_of_the_flows_own_are_refused(stage: Theatre, work: Any) -> None:
    """No replay could repeat their order."""
    found = await told(stage, doing, lambda: in_a_thread(work))

    assert "was called from a thread that the flow started by itself" in found
    assert "use outlive.sync.map or outlive.sync.gather" in found


async def test_an_effect_in_a_bare_thread_is_outside_the_run(stage: Theatre) -> None:
    """Without the context it does not even look like the flow's."""

    def bare() -> None:
        raised: list[NotInRun] = []

        def main() -> None:
            try:
                pay("x")
            except NotInRun as error:
                raised.append(error)

        thread = threading.Thread(target=main)
        thread.start()
        thread.join()
        raise raised[0]

    assert "pay was called outside a run" in await told(stage, doing, bare)


FROM_OUTSIDE: dict[str, Callable[[], Any]] = {
    "outlive.run": lambda: awaiting.run(doing),
    "outlive.start": lambda: outlive.start(doing),
    "outlive.submit": lambda: outlive.submit(doing),
    "outlive.ensure": lambda: outlive.ensure(doing, id="x"),
}


@pytest.mark.parametrize("name", FROM_OUTSIDE)
@pytest.mark.parametrize("flow", [doing, doing_async], ids=["plain", "async"])
async def test_starting_a_run_from_a_flow_is_refused(
    stage: Theatre, store: str, flow: Any, name: str
) -> None:
    """A flow's children are its own: outlive.call."""
    found = await told(stage, flow, FROM_OUTSIDE[name])

    assert f"UsageError: {name} was called inside a flow; start a child run" in found
    assert "outlive.call(...)" in found


@pytest.mark.parametrize("name", FROM_OUTSIDE)
async def test_starting_a_run_from_a_step_is_refused(stage: Theatre, store: str, name: str) -> None:
    """A repeated step would start it again."""
    found = await told(stage, doing_in_step, FROM_OUTSIDE[name])

    assert f"{name} was called inside the body of step 0/body#1; start a child run" in found


async def test_flows_of_the_other_kind_are_not_called_directly(stage: Theatre) -> None:
    """Plain code can't await, and async code must not block."""
    found = await told(stage, doing, lambda: doing_async())
    assert "flow doing_async is async code and was called in plain code" in found
    assert "outlive.call(doing_async, ...)" in found
    found = await told(stage, doing_async, lambda: doing())
    assert "flow doing is plain code and was called in async code" in found


async def test_blocking_verbs_are_refused_where_a_loop_runs(store: str) -> None:
    """They would block it; a notebook's loop is the exception."""
    for verb in (lambda: outlive.find(), lambda: awaiting.run(doing), lambda: outlive.run(doing)):
        with pytest.raises(UsageError, match=r"a loop is running here.*await outlive.start"):
            verb()


def test_what_can_not_be_a_flow_is_refused() -> None:
    """A generator, or something that is no function."""

    def generator() -> Any:
        yield 1

    with pytest.raises(DefinitionRefused, match="is a generator; return a list instead"):
        outlive.flow(generator)
    with pytest.raises(DefinitionRefused, match="is no function; write `def` or `async def`"):
        outlive.flow(3)  # type: ignore[call-overload]


async def test_gather_wants_functions(stage: Theatre) -> None:
    """Not the outcomes of calls that were made already."""
    outcome: Any = "X"
    found = await told(stage, doing, lambda: outlive.gather(outcome))

    assert "outlive.sync.gather: 'X' can't be called; give it functions, as in" in found


async def test_a_set_has_no_order_to_map_by(stage: Theatre) -> None:
    """As in async code."""
    found = await told(stage, doing, lambda: outlive.map(note, {"a", "b"}))

    assert "a set has another order on replay; sort it" in found


async def test_reading_a_run_in_a_flow_is_refused(stage: Theatre, store: str) -> None:
    """It is input, which belongs in a step."""
    found = await told(stage, doing, lambda: outlive.find())

    assert "outlive.sync was called inside a flow; do this in a step" in found
    assert "nothing was refused" == await told(stage, doing_in_step, lambda: outlive.find())
