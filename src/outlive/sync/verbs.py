"""What plain flow code calls: the verbs of async flows, each waiting for its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import (
    Any,
    Generic,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    TypeVarTuple,
    Unpack,
    overload,
)

from outlive.engine import people, verbs
from outlive.engine import verbs as fanout
from outlive.engine.anonymous import EffectOptions, StepOptions, definition_of, refuse_effect
from outlive.engine.definitions import Effect, Flow
from outlive.engine.people import Approval
from outlive.engine.place import Branch, Bridge, Plain, Positions, branch_for, place, plain_for
from outlive.engine.signatures import PlainCallVerb, PlainSpawnVerb, typed
from outlive.engine.verbs import Outcome
from outlive.errors import DefinitionRefused
from outlive.model.defaults import MAP_LIMIT
from outlive.model.retry import Duration

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Item = TypeVar("Item")


@overload
def do(
    name: str,
    fn: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
    /,
    *args: *Ts,
    id: str | None = None,
    effect: EffectOptions | Mapping[str, Any] | None = None,
    step: StepOptions | Mapping[str, Any] | None = None,
) -> T: ...
@overload
def do(
    name: str,
    fn: Callable[[Unpack[Ts]], T],
    /,
    *args: *Ts,
    id: str | None = None,
    effect: EffectOptions | Mapping[str, Any] | None = None,
    step: StepOptions | Mapping[str, Any] | None = None,
) -> T: ...
def do(  # type: ignore[misc]  # mypy does not take *args for *Ts
    name: str, fn: Any, /, *args: Any, id: str | None = None, effect: Any = None, step: Any = None
) -> Any:
    """Do this as a step of that name, or as an effect, without a declaration."""
    here = place.get()
    if isinstance(here, Branch):
        plain_for("do")
    if type(here) is not Plain:
        refuse_effect(name, effect)
        return fn(*args)
    definition = definition_of(name, fn, len(args), id, (effect, step))
    return here.bridge.perform(definition, args, {})


def on_host(fn: Callable[..., Any], /, *args: Any) -> None:
    """Call this on the loop that bodies run on, and wait for its end; nothing is recorded."""
    plain_for("on_host").wait(partial(verbs.on_host, fn, *args))


def sleep(until: Duration | datetime) -> None:
    """Wait for a while, or until an instant; survives crashes and redeploys, costs no memory."""
    plain_for("sleep").wait(partial(verbs.sleep, until))


def carry(*args: Any, **kwargs: Any) -> NoReturn:
    """End this chapter of the run and begin the next one with these arguments."""
    plain_for("carry").wait(partial(verbs.carry, *args, **kwargs))
    raise AssertionError("unreachable: the flow is stopped where it carries on")


class timeout:  # noqa: N801  # used as a verb: ``with outlive.timeout("10m"):``
    """A time limit that survives restarts; raises ``TimedOut`` when it passes."""

    def __init__(self, within: Duration | None) -> None:
        self._bridge = plain_for("timeout")
        self._within = within
        self._limit: people.timeout

    def __enter__(self) -> None:
        self._limit = self._bridge.wait(self._begin)

    async def _begin(self) -> people.timeout:
        limit = people.timeout(self._within)
        await limit.__aenter__()
        return limit

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._bridge.wait(partial(self._limit.__aexit__, kind, error, tb))


@overload
def wait_signal(name: str, type: type[T], within: Duration | None = None) -> T: ...
@overload
def wait_signal(name: str, type: Any = Any, within: Duration | None = None) -> Any: ...
def wait_signal(name: str, type: Any = Any, within: Duration | None = None) -> Any:
    """The next signal of that name and type; ``TimedOut`` when the limit passes."""
    return plain_for("wait_signal").wait(partial(people.wait_signal, name, type, within))


@overload
def ask(text: str, *, within: Duration | None = None) -> str: ...
@overload
def ask(text: str, type: type[T], within: Duration | None = None) -> T: ...
@overload
def ask(text: str, type: Any = str, within: Duration | None = None) -> Any: ...
def ask(text: str, type: Any = str, within: Duration | None = None) -> Any:
    """A human's answer; costs no memory while it waits. ``TimedOut`` when the limit passes."""
    return plain_for("ask").wait(partial(people.ask, text, type, within))


class ApproveVerb(Protocol):
    """Asks whether an effect may happen with these arguments."""

    @overload
    def __call__(
        self, effect: Effect[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Approval: ...
    @overload
    def __call__(
        self,
        effect: Callable[[Unpack[Ts]], Any],
        /,
        *args: *Ts,
        by: str | None = None,
        within: Duration | None = None,
    ) -> Approval: ...
    @overload
    def __call__(
        self,
        effect: Effect[..., Any],
        /,
        *,
        within: Duration,
        by: str | None = None,
        **kwargs: Any,
    ) -> Approval: ...


@typed[ApproveVerb]()
def approve(
    effect: Effect[..., Any],
    *args: Any,
    by: str | None = None,
    within: Duration | None = None,
    **kwargs: Any,
) -> Approval:
    """Ask a human whether this effect may happen with exactly these arguments."""
    work = partial(people.approve, effect, *args, by=by, within=within, **kwargs)
    approval: Approval = plain_for("approve").wait(work)
    return approval


class Request(Generic[T]):
    """A message that wants a reply."""

    __slots__ = ("_bridge", "_request", "id", "value")

    def __init__(self, bridge: Bridge, request: people.Request[T]) -> None:
        self._bridge, self._request = bridge, request
        self.id, self.value = request.id, request.value

    def reply(self, value: object) -> None:
        """Answer it; whoever asked gets this, once."""
        self._bridge.check("Request.reply")
        self._bridge.wait(partial(self._request.reply, value))


@overload
def requests(name: str, type: type[T], idle: Duration | None = None) -> Iterator[Request[T]]: ...
@overload
def requests(
    name: str, type: Any = Any, idle: Duration | None = None
) -> Iterator[Request[Any]]: ...
def requests(name: str, type: Any = Any, idle: Duration | None = None) -> Iterator[Request[Any]]:
    """Messages of that name, one after another, until none came for ``idle``."""
    bridge = plain_for("requests")
    stream: Any = bridge.wait(partial(_stream, name, type, idle))
    return _requests(bridge, stream)


async def _stream(name: str, type: Any, idle: Duration | None) -> Any:
    return people.requests(name, type, idle)


def _requests(bridge: Bridge, stream: Any) -> Iterator[Request[Any]]:
    while True:
        request = bridge.wait(partial(anext, stream, None))
        if request is None:
            return
        yield Request(bridge, request)


@typed[PlainCallVerb]()
def call(flow: Flow[..., Any], /, *args: Any, id: str | None = None, **kwargs: Any) -> Any:
    """Start a child run and wait for its outcome; it ends with this run."""
    return plain_for("call").wait(partial(fanout.call, flow, *args, id=id, **kwargs))


@typed[PlainSpawnVerb]()
def spawn(flow: Flow[..., Any], /, *args: Any, id: str | None = None, **kwargs: Any) -> str:
    """Start a run on its own, once, and return its id."""
    run_id: str = plain_for("spawn").wait(partial(fanout.spawn, flow, *args, id=id, **kwargs))
    return run_id


@overload
def map(
    fn: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item], limit: int = MAP_LIMIT
) -> list[Outcome[T]]: ...
@overload
def map(
    fn: Callable[[Item], T], items: Iterable[Item], limit: int = MAP_LIMIT
) -> list[Outcome[T]]: ...
def map(fn: Any, items: Iterable[Any], limit: int = MAP_LIMIT) -> list[Outcome[Any]]:
    """Call a step, effect or flow once per item, at most ``limit`` at a time; failures are told."""
    bridge = plain_for("map")
    # Here, where the flow's own code runs; a set stays one, to be refused.
    given = items if isinstance(items, (set, frozenset)) else list(items)
    outcomes: list[Outcome[Any]] = bridge.wait(partial(fanout.map, fn, given, limit))
    return outcomes


def gather(*functions: Callable[[], Any]) -> list[Any]:
    """Call these beside one another, each in a thread of its own, and return their outcomes.

    The first that raises ends the waiting; the others go on until the flow returns.
    """
    bridge = plain_for("gather")
    for function in functions:
        if not callable(function):
            raise DefinitionRefused(
                f"outlive.sync.gather: {function!r} can't be called; "
                "give it functions, as in gather(lambda: find(1), lambda: find(2))"
            )

    async def one(positions: Positions, position: int) -> Any:
        positions.take(position)
        return await bridge.beside(functions[position])

    async def all_of_them() -> list[Any]:
        with branch_for("outlive.gather").positions("gather") as positions:
            each = (one(positions, position) for position in range(len(functions)))
            return list(await asyncio.gather(*each))

    outcomes: list[Any] = bridge.wait(all_of_them)
    return outcomes
