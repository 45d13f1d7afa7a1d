"""``outlive.do``: steps and effects that nobody declared."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import outlive
from outlive import sync
from outlive.engine import anonymous
from outlive.errors import DefinitionRefused, InsideStep, NotInRun, RunFailed, UsageError
from outlive.model.events import EffectDone, EffectIntended, StepDone
from outlive.stores.memory import MemoryStore
from tests.harness.scene import Scene, live_and_replayed
from tests.order.journals import STAYING, drive

#: Nothing that anybody could mean.
ANYTHING: Any = 7


@dataclass
class Order:
    number: int


@dataclass
class Parcel:
    number: int


outlive.register(Order, "tests.do.Order")
outlive.register(Parcel, "tests.do.Parcel")


async def find(number: int) -> Order:
    return Order(number)


def find_plainly(number: int, more: int = 1) -> Order:
    return Order(number + more)


class Tool:
    def __init__(self, name: str) -> None:
        self.name = name

    async def call(self, text: str) -> str:
        return f"{self.name}:{text}"

    def call_plainly(self, text: str) -> str:
        return f"{self.name}:{text}:{threading.current_thread() is threading.main_thread()}"

    async def __call__(self, text: str) -> str:
        return f"object {self.name}:{text}"


def wrapped(fn: Any) -> Any:
    @functools.wraps(fn)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await fn(*args, **kwargs)

    return wrapper


@outlive.flow
async def every_kind() -> list[Any]:
    seen: list[Any] = [
        await outlive.do("find", find, 1),
        await outlive.do("find", find_plainly, 1),
        await outlive.do("wrapped", wrapped(find), 3),
        await outlive.do("lambda", lambda: "plain"),
        await outlive.do("built in", len, "four"),
    ]
    for name in "ab":
        tool = Tool(name)
        seen.append(await outlive.do("method", tool.call, "x", id=name))
        seen.append(await outlive.do("plain method", tool.call_plainly, "x"))
        seen.append(await outlive.do("object", tool, "x"))
        seen.append(await outlive.do("partial", functools.partial(find_plainly, more=len(seen)), 1))
        seen.append(await outlive.do("coroutine", lambda tool=tool: tool.call("made")))
    return seen


async def test_every_kind_of_function_works_live_as_on_replay(scene: Scene) -> None:
    """Async and plain ones, lambdas, partials, methods, objects, built-in ones."""
    live, replayed = await live_and_replayed(scene, every_kind)

    assert live == replayed
    assert [Order(1), Order(2), Order(3), "plain", 4] == live[:5]
    assert ["a:x", "a:x:False", "object a:x", Order(9), "a:made"] == live[5:10]
    assert ["b:x", "b:x:False", "object b:x", Order(14), "b:made"] == live[10:]


async def test_arguments_are_recorded_and_what_a_function_holds_is_not(scene: Scene) -> None:
    """A partial, a method and a closure may hold what can't be recorded."""
    held = threading.Lock()

    def use(lock: Any, text: str, *, other: Any = None) -> str:
        return f"{text} {lock is held} {other is held}"

    @outlive.flow
    async def flow() -> list[str]:
        return [
            await outlive.do("partial", functools.partial(use, held, other=held), "x"),
            await outlive.do("closure", lambda: str(held is not None)),
        ]

    handle = await scene.open().start(flow, id="r")

    assert ["x True True", "True"] == await scene.outcome(handle)
    done = await scene.events(handle, StepDone)
    assert [b"\x81\xa4text\xa1x", b"\x80"] == [event.args for event in done]


async def test_a_kept_shape_is_not_taken_for_another_functions(scene: Scene) -> None:
    """Functions of one code may differ in types, defaults and what they hold."""

    def made(kind: Any, default: int) -> Any:
        async def body(number: int = default) -> kind:
            return kind(number)

        body.__annotations__["return"] = kind
        return body

    @outlive.flow
    async def flow() -> list[Any]:
        seen = [await outlive.do("make", made(kind, n)) for kind in (Order, Parcel) for n in (1, 2)]
        for fn in (find, Tool("t").call):
            seen.append(await outlive.do("wrapped", wrapped(fn), 1 if fn is find else "x"))
        return seen

    live, replayed = await live_and_replayed(scene, flow)

    assert live == replayed
    assert [Order(1), Order(2), Parcel(1), Parcel(2), Order(1), "t:x"] == live


async def test_the_callers_id_is_part_of_the_steps_id(scene: Scene) -> None:
    """The same id again, one after another, is counted: some models number calls anew."""

    @outlive.flow
    async def flow() -> None:
        for id in ("call_1", "call_2", "call_1", None):
            await outlive.do("tool", find, 1, id=id)

    handle = await scene.open().start(flow, id="r")
    await scene.outcome(handle)

    done = [event.step for event in await scene.events(handle, StepDone)]
    assert ["0/tool:call_1#1", "0/tool:call_2#1", "0/tool:call_1#2", "0/tool#1"] == done


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: outlive.do("", find, 1), "'' can't be a name"),
        (lambda: outlive.do("a/b", find, 1), "no / or #"),
        (lambda: outlive.do("a", find, 1, id="a#b"), "id=.*no / or #"),
        (lambda: outlive.do("a", find, 1, id=""), "id=.*1 to 200 characters"),
        (lambda: outlive.do("a", find, 1, id="x" * 201), "1 to 200 characters"),
        (lambda: outlive.do("a", find, 1, id="\ud800"), "lone surrogate"),
        (lambda: outlive.do("a", find, 1, id=ANYTHING), "can't be a name"),
        (lambda: outlive.do("a", find, 1, effect={"keys": "x"}), "did you mean key"),
        (lambda: outlive.do("a", find, 1, effect={"key": "{order}"}), "no argument of it"),
        (lambda: outlive.do("a", find, 1, effect=ANYTHING), "are no options"),
        (lambda: outlive.do("a", find, 1, effect={}, step={}), "one of step=, effect="),
        (lambda: outlive.do("a", find, 1, step={"key": "x"}), "for @outlive.effect"),
        (lambda: outlive.do("a", ANYTHING, 1), "can't be called"),
    ],
)
async def test_mistakes_are_refused_where_they_are_made(scene: Scene, call: Any, text: str) -> None:
    """The message says which, and what to write."""

    @outlive.flow
    async def flow() -> str:
        with pytest.raises(DefinitionRefused, match=text):
            await call()
        return "refused"

    assert "refused" == await scene.run(flow)


@pytest.mark.parametrize("form", ["dict", "options"])
async def test_an_effect_has_the_options_of_a_declared_one(scene: Scene, form: str) -> None:
    """Intent first, with its key; settled by its check."""
    tried: list[str] = []

    async def pay(cents: int) -> str:
        tried.append(outlive.key())
        raise ConnectionError("no route")

    async def check(cents: int, key: str) -> str:
        return f"{cents} by {key}"

    options: dict[str, Any] = {"key": "pay:{cents}", "check": check, "settle_after": 0}
    effect: Any = options if form == "dict" else outlive.EffectOptions(**options)

    @outlive.flow
    async def flow() -> str:
        return await outlive.do("pay", pay, 5, id="call_1", effect=effect)

    handle = await scene.open().start(flow, id="r")

    assert "5 by pay:5" == await scene.outcome(handle)
    assert ["pay:5"] == tried
    intents = await scene.events(handle, EffectIntended)
    assert [("0/pay:call_1#1", "pay:5")] == [(event.step, event.key) for event in intents]
    assert ["check"] == [event.by for event in await scene.events(handle, EffectDone)]


async def test_an_effect_is_undone(scene: Scene) -> None:
    """Its undo is called with the arguments by name, as that of a declared one."""
    undone: list[Any] = []

    async def undo(number: int, outcome: Order) -> None:
        undone.append((number, outcome))

    @outlive.flow
    async def flow() -> None:
        await outlive.do("reserve", find, 3, id="c", effect={"undo": undo})
        raise ValueError("no")

    with pytest.raises(RunFailed, match="no"):
        await scene.run(flow)
    assert [(3, Order(3))] == undone


async def test_a_step_has_the_options_of_a_declared_one(scene: Scene) -> None:
    """Retries, a time limit, and errors that come back as they were."""
    tries: list[int] = []

    async def fail() -> None:
        tries.append(outlive.attempt())
        raise LookupError("nowhere")

    options = outlive.StepOptions(
        retry=outlive.Retry(attempts=3, delay=0), raises=(LookupError,), timeout="1m"
    )

    @outlive.flow
    async def flow() -> str:
        with pytest.raises(LookupError, match="nowhere"):
            await outlive.do("fail", fail, step=options)
        return "told"

    assert "told" == await scene.run(flow)
    assert [1, 2, 3] == tries


async def test_a_coroutine_that_a_plain_function_made_has_its_limit() -> None:
    """It is awaited on the loop, and called off there."""

    async def wait() -> None:
        await asyncio.Event().wait()

    @outlive.flow
    async def flow() -> str:
        for _ in range(2):
            with pytest.raises(outlive.errors.TimedOut):
                await outlive.do("wait", lambda: wait(), step={"timeout": 0.05})
        return "told"

    assert ("returned", "told") == (await drive(MemoryStore(), flow, run_id="r")).outcome


async def test_in_a_body_and_outside_a_step_is_a_plain_call(scene: Scene) -> None:
    """And an effect is refused, as a declared one."""

    @outlive.step
    async def body() -> list[Any]:
        with pytest.raises(InsideStep, match=r"outlive\.do\('pay', effect="):
            await outlive.do("pay", find, 1, effect={})
        return []

    @outlive.flow
    async def inside() -> list[Any]:
        return await body()

    assert Order(1) == await outlive.do("find", find, 1)
    assert Order(2) == await outlive.do("find", find_plainly, 1)
    assert Order(2) == sync.do("find", find_plainly, 1)
    with pytest.raises(NotInRun, match=r"outlive\.do\('pay', effect="):
        await outlive.do("pay", find, 1, effect={})
    with pytest.raises(RunFailed, match="inside the body of step"):
        await scene.run(inside)


async def test_plain_flows_have_the_same_verbs(scene: Scene) -> None:
    """Places, anonymous steps and effects, cleanups: nothing is awaited, ids are the same."""
    closed: list[bool] = []

    @sync.flow
    def flow() -> list[Any]:
        seen: list[Any] = [sync.in_flow(), sync.replaying()]
        with sync.place("agent"):
            seen.append(sync.do("find", find, 1, id="a"))
            seen.append(sync.do("find", lambda: find(2)))
            seen += sync.gather(lambda: sync.do("find", find, 3), lambda: sync.do("find", find, 4))
            seen.append(sync.do("pay", find, 5, effect={"doubt": "retry"}))
            sync.sleep(0)
            sync.on_host(
                lambda: closed.append(threading.current_thread() is threading.main_thread())
            )
        return seen

    driven = await drive(MemoryStore(), flow, run_id="r", settings=STAYING)

    assert ("returned", [True, False, *map(Order, range(1, 6))]) == driven.outcome
    assert [
        "0@agent/find#1",
        "0@agent/find:a#1",
        "0@agent@gather#1.0/find#1",
        "0@agent@gather#1.1/find#1",
    ] == sorted((event.step for event in driven.events if type(event) is StepDone), key=len)
    assert [True] == closed


async def test_each_side_says_where_the_other_belongs(scene: Scene) -> None:
    """Blocking verbs in async flows and awaited ones in plain flows are refused with the remedy."""

    @outlive.flow
    async def asynchronous() -> str:
        with pytest.raises(UsageError, match=r"await outlive\.do"):
            sync.do("find", find, 1)
        return "told"

    @sync.flow
    def plain() -> str:
        with pytest.raises(UsageError, match="from outlive import sync"):
            outlive.do("find", find, 1)
        return "told"

    assert "told" == await scene.run(asynchronous)
    assert ("returned", "told") == (await drive(MemoryStore(), plain, run_id="p")).outcome


# ---------------------------------------------------------------- its price

STEPS = 50
#: Where a call is made: what comes later depends on when the disk answers.
FILES = {
    *("anonymous.py", "arguments.py", "calls.py", "companions.py", "decorators.py"),
    *("definitions.py", "hints.py", "place.py"),
}


@outlive.step
async def declared(number: int) -> int:
    return number


@outlive.flow
async def with_declared() -> None:
    for number in range(STEPS):
        await declared(number)


@outlive.flow
async def with_do() -> None:
    for number in range(STEPS):

        async def closure(number: int) -> int:
            return number

        await outlive.do("declared", closure, number)


async def _calls(flow: Any, run_id: str) -> int:
    counted: Counter[str] = Counter()

    def count(frame: FrameType, what: str, _: object) -> None:
        if what == "call" and Path(frame.f_code.co_filename).name in FILES:
            counted["calls"] += 1

    sys.setprofile(count)
    try:
        await drive(MemoryStore(), flow, run_id=run_id)
    finally:
        sys.setprofile(None)
    return counted["calls"]


async def test_an_anonymous_step_costs_as_much_as_a_declared_one(figure: Any) -> None:
    """Its shape is worked out once: a handful of calls more, however often its function is made."""
    for flow in (with_declared, with_do):
        await drive(MemoryStore(), flow, run_id="first")

    plain, made_here = await _calls(with_declared, "r"), await _calls(with_do, "r")
    more = (made_here - plain) / STEPS
    figure("do: calls more than a declared step", f"{more:.1f} beside {plain / STEPS:.1f}")
    assert 0 < more <= 9


def test_shapes_are_bounded() -> None:
    """Functions made from text at run time do not fill the memory."""
    shapes = anonymous.Shapes()
    for number in range(anonymous.SHAPES_MAX + 10):
        space: dict[str, Any] = {}
        exec(f"def made(): return {number}", space)
        shapes.definition(anonymous._Call("made", space["made"], 0, False, None))

    assert len(shapes._known) <= anonymous.SHAPES_MAX
