"""Other runs and many things at once, from flow code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, Protocol, TypeVar, overload

from outlive.engine.definitions import Effect, Flow, Step
from outlive.engine.place import awaited, branch_for
from outlive.engine.signatures import CallVerb, SpawnVerb, typed
from outlive.errors import DefinitionRefused

Item = TypeVar("Item")
T = TypeVar("T")

MAP_LIMIT = 100


@typed[CallVerb]()
@awaited
async def call(flow: Flow[..., Any], /, *args: Any, id: str | None = None, **kwargs: Any) -> Any:
    """Start a child run and wait for its outcome; it ends with this run.

    Raises:
        RunFailed: the child failed.
        RunCancelled: somebody cancelled it.
        RunIdTaken: the id belongs to another run, if only because another parent started it.
    """
    return await _child(flow, args, kwargs, id, awaited=True)


@typed[SpawnVerb]()
@awaited
async def spawn(flow: Flow[..., Any], /, *args: Any, id: str | None = None, **kwargs: Any) -> str:
    """Start a run on its own, once, and return its id."""
    run_id: str = await _child(flow, args, kwargs, id, awaited=False)
    return run_id


async def _child(flow: Any, args: Any, kwargs: Any, run_id: str | None, *, awaited: bool) -> Any:
    branch = branch_for("outlive.call" if awaited else "outlive.spawn")
    if not isinstance(flow, Flow):
        raise DefinitionRefused(f"{flow!r} is no flow; decorate it with @outlive.flow")
    if run_id is not None and flow.takes("id"):
        kwargs = {**kwargs, "id": run_id}
    elif run_id is not None:
        flow = flow.options(id=run_id)
    return await branch.drive.child(branch, flow, flow.bind(*args, **kwargs), awaited=awaited)


class Outcome(Generic[T]):
    """How one of many ended: ``ok``, with its ``value``, or else with its ``error``.

    Look at ``value`` only where ``ok`` is true: it is None otherwise, whatever its type.
    """

    __slots__ = ("error", "ok", "value")

    def __init__(self, ok: bool, value: T, error: Exception | None) -> None:
        self.ok, self.value, self.error = ok, value, error

    def __repr__(self) -> str:
        return f"Outcome(value={self.value!r})" if self.ok else f"Outcome(error={self.error!r})"


class MapVerb(Protocol):
    """Calls a step, effect or flow with each item."""

    @overload
    def __call__(
        self,
        fn: Callable[[Item], Coroutine[Any, Any, T]],
        items: Iterable[Item],
        limit: int = MAP_LIMIT,
    ) -> Coroutine[Any, Any, list[Outcome[T]]]: ...
    @overload
    def __call__(
        self, fn: Callable[[Item], T], items: Iterable[Item], limit: int = MAP_LIMIT
    ) -> Coroutine[Any, Any, list[Outcome[T]]]: ...


@typed[MapVerb]()
@awaited
async def map(fn: Any, items: Iterable[Any], limit: int = MAP_LIMIT) -> list[Outcome[Any]]:
    """Call a step, effect or flow once per item, at most ``limit`` at a time.

    One ``Outcome`` per item, in the order of the items; one that fails stops none of the others.
    """
    branch_for("outlive.map")
    if not isinstance(fn, (Step, Effect, Flow)):
        raise DefinitionRefused(f"{fn!r} is no step, effect or flow; decorate it")
    if limit < 1:
        raise DefinitionRefused("outlive.map: limit is at least 1")
    if isinstance(items, (set, frozenset)):
        raise DefinitionRefused("outlive.map: a set has another order on replay; sort it")
    room = asyncio.Semaphore(limit)

    async def one(item: Any) -> Outcome[Any]:
        async with room:
            try:
                value = await (call(fn, item) if isinstance(fn, Flow) else fn(item))
            except Exception as error:
                return Outcome[Any](False, None, error)
            return Outcome(True, value, None)

    return list(await asyncio.gather(*(one(item) for item in items)))
