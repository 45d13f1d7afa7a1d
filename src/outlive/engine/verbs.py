"""What flow code and bodies may ask for: time, chance, chapters, patches, and who they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Generic, NoReturn, Protocol, TypeVar, overload
from uuid import UUID

from outlive.engine.definitions import Effect, Flow, Step, check_name
from outlive.engine.place import Body, Branch, Plain, awaited, branch_for, on_loop
from outlive.engine.place import place as place_here
from outlive.engine.signatures import CallVerb, SpawnVerb, typed
from outlive.errors import DefinitionRefused, NotInRun, UsageError
from outlive.model.defaults import MAP_LIMIT
from outlive.model.ids import is_text
from outlive.model.retry import Duration, parse_duration
from outlive.model.usage import Usage, checked_usage


def in_flow() -> bool:
    """Whether this code belongs to a flow that is run: what it awaits from here is recorded."""
    return isinstance(place_here.get(), (Branch, Plain))


def replaying() -> bool:
    """Whether the flow goes through what its journal already has; False in bodies and outside."""
    here = place_here.get()
    return isinstance(here, (Branch, Plain)) and here.drive.is_behind()


class place:  # noqa: N801  # used as a verb: ``with outlive.place("agent"):``
    """Ids of steps, effects and waits in here do not depend on tasks that are made in here.

    For code of others, as an agent framework, which makes tasks of its own: all of them share this
    place, and calls are told apart by their names and ids. Entered again, it goes on counting. In
    the body of a step, and outside a run, it does nothing.
    """

    def __init__(self, name: str) -> None:
        if "@" in check_name(name):
            raise DefinitionRefused(f"{name!r} can't be the name of a place: no @")
        self._name = name
        self._before: list[Branch | Plain] = []

    def __enter__(self) -> None:
        here = place_here.get()
        if isinstance(here, Branch):
            place_here.set(here.place(self._name))
        elif isinstance(here, Plain):
            here.bridge.check("outlive.place")
            place_here.set(Plain(here.branch.place(self._name), here.bridge))
        else:
            return
        self._before.append(here)

    def __exit__(self, *_: object) -> None:
        if self._before:
            place_here.set(self._before.pop())


@awaited
async def on_host(fn: Callable[..., Any], /, *args: Any) -> None:
    """Call this on the loop that bodies run on, and wait for its end: a cleanup.

    For what a step opened and the flow closes, as a session. Nothing is recorded, on replay it is
    not called, and what it returns is not given to the flow; what it raises is logged. It is also
    called where the run leaves memory, in a ``finally``. Nothing else of the run goes on meanwhile.
    """
    branch = branch_for("outlive.on_host")
    await branch.drive.on_host(fn, args)


@awaited
async def sleep(until: Duration | datetime) -> None:
    """Wait for a while, or until an instant; survives crashes and redeploys, costs no memory."""
    branch = branch_for("outlive.sleep")
    if isinstance(until, datetime):
        if until.tzinfo is None:
            raise UsageError(f"sleep until {until} has no time zone; add one")
        now = branch.drive.now_ms() / 1000
        await branch.drive.sleep(branch, max(0.0, until.timestamp() - now))
    else:
        await branch.drive.sleep(branch, parse_duration(until))


def now() -> datetime:
    """The run's time, that of the last thing that happened to it: the same on replay.

    It never runs backwards.
    """
    branch = branch_for("outlive.now")
    return datetime.fromtimestamp(branch.drive.now_ms() / 1000, UTC)


def fired_at() -> datetime:
    """The instant that this run is for: the one that its schedule fired, however late it began.

    Of a run that no schedule started: when it was started.
    """
    branch = branch_for("outlive.fired_at")
    return datetime.fromtimestamp(branch.drive.fired_at_ms() / 1000, UTC)


def random() -> float:
    """A random number in [0, 1): the same on replay. Not for secrets."""
    branch = branch_for("outlive.random")
    drawn = branch.drive.chance(branch.next_id("random"))
    return int.from_bytes(drawn[:7], "big") / (1 << 56)


def uuid() -> UUID:
    """A random UUID: the same on replay. Not for secrets."""
    branch = branch_for("outlive.uuid")
    return UUID(bytes=branch.drive.chance(branch.next_id("uuid")), version=4)


@awaited
async def carry(*args: Any, **kwargs: Any) -> NoReturn:
    """End this chapter of the run and begin the next one with these arguments.

    The flow stops here and is called anew. The journal of the chapters before is not needed any
    more, so a run of any length resumes at once. Signals that were not taken, effects that can be
    undone, deadline, tags and pins go along; the next chapter belongs to this code's version.
    What is undone in a later chapter is called with the arguments that were recorded: those that an
    effect declares as ``ignore=`` need a default in its ``undo``.
    """
    branch = branch_for("outlive.carry")
    await branch.drive.carry(args, kwargs)
    raise AssertionError("unreachable: the flow is stopped where it carries on")


def patched(name: str) -> bool:
    """Whether a change of the flow's code holds for this run at this place.

    True where nothing is recorded yet, False where the run went through with the code before the
    change; the same on every replay.
    """
    branch = branch_for("outlive.patched")
    if not is_text(name):
        raise UsageError(f"a patch is named by a text, not {name!r}")
    at = branch.next_id(f"patched:{name}")
    return on_loop(lambda: branch.drive.is_patched(at))


def pins() -> Mapping[str, str]:
    """What was pinned when the run began: model, prompt, tool schemas, by name."""
    return branch_for("outlive.pins").drive.pins()


def _body(name: str) -> Body:
    here = place_here.get()
    if here is None:
        raise NotInRun(name, "in the body of a step, from a flow")
    if type(here) is not Body:
        raise UsageError(
            f"{name}() was called in a flow; it is about one attempt: call it in the body of a "
            "step or effect"
        )
    return here


def key() -> str:
    """Inside an effect's body or check: its idempotency key, the same for every attempt."""
    return _body("outlive.key").key


def attempt() -> int:
    """Inside a body: the number of this attempt, from 1."""
    return _body("outlive.attempt").attempt


def usage(*, model: str, input_tokens: int = 0, output_tokens: int = 0, cost: float = 0.0) -> None:
    """Inside a body: tell what a model was used for; kept with the outcome, added up per run.

    Several calls in one body add up per model. Outside a run it does nothing.
    """
    told = checked_usage(Usage(model, input_tokens, output_tokens, cost))
    if place_here.get() is not None:
        _body("outlive.usage").use(told)


def run_id() -> str:
    """The id of the run that this code belongs to, in a flow or in a body."""
    here = place_here.get()
    if here is None:
        raise NotInRun("outlive.run_id")
    return here.run_id if type(here) is Body else here.drive.run_id  # type: ignore[union-attr]


Item = TypeVar("Item")
T = TypeVar("T")


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
    branch = branch_for("outlive.map")
    if not isinstance(fn, (Step, Effect, Flow)):
        raise DefinitionRefused(f"{fn!r} is no step, effect or flow; decorate it")
    if limit < 1:
        raise DefinitionRefused("outlive.map: limit is at least 1")
    if isinstance(items, (set, frozenset)):
        raise DefinitionRefused("outlive.map: a set has another order on replay; sort it")
    room = asyncio.Semaphore(limit)

    async def one(position: int, item: Any) -> Outcome[Any]:
        positions.take(position)
        async with room:
            try:
                value = await (call(fn, item) if isinstance(fn, Flow) else fn(item))
            except Exception as error:
                return Outcome[Any](False, None, error)
            return Outcome(True, value, None)

    with branch.positions(f"map:{_name_of(fn)}") as positions:
        return list(await asyncio.gather(*(one(i, item) for i, item in enumerate(items))))


def _name_of(fn: Step[..., Any] | Effect[..., Any] | Flow[..., Any]) -> str:
    return fn.name if isinstance(fn, Flow) else fn.definition.name
