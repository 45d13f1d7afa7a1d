"""The loop of an agent: plan, act, observe, reflect, or states of its author's own.

A subclass is a machine: its handlers are its methods, checked when the class is defined. An object
is one loop. Whatever has to survive the process is in the parts of its snapshot; anything else a
handler sets on it is gone after the next checkpoint, in normal operation as after a crash.
"""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from enum import Enum
from functools import cached_property, partial
from inspect import Parameter, Signature
from typing import Any, ClassVar, Self

from outlive.engine.definitions import Flow, check_name, registry
from outlive.engine.place import branch_for, plain_for
from outlive.engine.verbs import carry
from outlive.errors import DefinitionRefused, UsageError, ValueRefused
from outlive.journal.codec.codec import Codec, codec_for
from outlive.loop.machine import MOVES, Machine, Moves, State, define
from outlive.loop.snapshot import (
    RECORDED,
    Snapshot,
    Upcasters,
    check_types,
    check_upcasters,
    is_plain,
    up_to_date,
)
from outlive.model.retention import Retention
from outlive.model.retry import Duration, parse_duration
from outlive.ports import Ports

_OPTIONS = (
    "states", "moves", "working", "version", "upcasters", "checkpoint_every", "keep", "ttl", "name",
)  # fmt: skip
_OWN = ("id", *RECORDED)
#: Attributes of a loop beside its parts: the coroutine that is not awaited yet; the snapshot from
#: before the work, as long as no snapshot holds the work completely; and the attributes that
#: ``setup`` made.
UNAWAITED, BEFORE_WORK, MADE = "_unawaited", "_before_work", "_made"
NOTES = (UNAWAITED, BEFORE_WORK, MADE)
#: The time that a loop with ``keep=0`` stays under workers: its submitter reads the outcome.
GRACE = "1m"
#: Names of at least this similarity (of 1) count as misspelt.
LIKENESS = 0.9


class Loop:
    """An agent's loop as a state machine. Write a subclass with a handler for each state.

    The handler of ``State.PLANNING`` is ``on_planning(self)``, async or plain; it changes the
    loop's parts and returns the next state. Model calls in it are steps, tools that change the
    world are effects.
    """

    #: An Enum of the states, the initial state first.
    states: ClassVar[type[Enum]] = State
    #: For each state those that may follow it; a state that nothing follows is an end.
    moves: ClassVar[Moves] = MOVES
    #: States without a checkpoint after their handler: their work is not to be saved halfway.
    working: ClassVar[Iterable[Enum]] = (State.EXECUTING,)
    #: The version of the snapshot's schema.
    version: ClassVar[int] = 1
    #: By older version: a function that converts a snapshot to the next version.
    upcasters: ClassVar[Upcasters] = {}
    #: The number of transitions between checkpoints.
    checkpoint_every: ClassVar[int] = 1
    #: The time that a loop is kept after its end (default: a day): meanwhile its id gives the same
    #: outcome; 0: not at all (a minute if a worker drives it); None: for ever.
    keep: ClassVar[Duration | None] = timedelta(days=1)
    #: One that wrote nothing for so long is given up by workers; None: never.
    ttl: ClassVar[Duration | None] = "24h"
    #: Its name in journals and lists; by default that of the class.
    name: ClassVar[str] = ""

    machine: ClassVar[Machine]
    #: The flow whose runs are loops of this kind, for workers and for submit().
    flow: ClassVar[LoopFlow]

    #: By this a loop is found again.
    id: str
    #: The request to the agent.
    request: Any
    #: The current state.
    state: Any
    #: Actions to do, in order.
    plan: list[Any]
    #: The position in the plan of what is done next.
    cursor: int
    #: Results that the loop has accepted so far.
    results: list[Any]
    #: Anything else that it needs to go on.
    context: dict[str, Any]
    #: The number of transitions so far.
    seq: int

    def __init_subclass__(cls, *, abstract: bool = False, **rest: Any) -> None:
        """Check the machine; one that is ``abstract`` lacks handlers, and only has subclasses."""
        super().__init_subclass__(**rest)
        if "__init__" in vars(cls):
            raise DefinitionRefused(
                f"{cls.__name__}: a loop is made anew from its snapshot, by nothing else; what it "
                "needs beside that (clients, settings) is made in `def setup(self)`"
            )
        if not abstract:
            _define(cls)

    def __init__(
        self,
        request: Any = None,
        *,
        id: str | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        _check_defined(type(self))
        if context is not None and not isinstance(context, Mapping):
            raise ValueRefused(
                f"the context of a loop is a dict, not {type(context).__name__}", "$.context"
            )
        self._take(
            Snapshot(
                version=self.version,
                id=Ports().entropy(8).hex() if id is None else id,
                request=copy.deepcopy(request),
                state=self.machine.first.name,
                context=copy.deepcopy(dict(context or {})),
            )
        )

    def setup(self) -> None:
        """Called whenever a loop is made, from nothing or from a snapshot; yours to write."""

    def __repr__(self) -> str:
        name, at = self.machine.name, f"{self.state.name}, {self.cursor} of {len(self.plan)}"
        return f"<{name} {self.id!r}: {at}, seq {self.seq}>"

    @property
    def is_over(self) -> bool:
        """Whether it has reached an end."""
        return self.machine.is_end(self.state)

    @property
    def current(self) -> Any:
        """The action at the cursor; None after the end of the plan."""
        return self.plan[self.cursor] if 0 <= self.cursor < len(self.plan) else None

    def key(self, what: str) -> str:
        """A key for an action of this transition: the same when the transition is repeated.

        Effects have keys of their own; this is for loops that are driven without a journal.

        Raises:
            UsageError: the loop has no id, so its keys would equal those of other loops.
        """
        if self.id is None:
            raise UsageError(
                f"this {self.machine.name} has no id, so its keys would be those of other loops; "
                "give its snapshot an id that stays the same"
            )
        return f"{self.id}/{self.seq}/{what}"

    def snapshot(self) -> Snapshot:
        """A copy of everything that is needed to continue from here.

        If the handler of a working state has just set attributes that no snapshot holds, this is
        the snapshot from before that handler: whoever continues from it calls the handler again.

        Raises:
            UsageError: ``step_once`` or ``drive`` was called on this loop and not awaited.
        """
        self.check_awaited()
        before: Snapshot | None = vars(self).get(BEFORE_WORK)
        if before is not None and not self.is_over:
            return copy.deepcopy(before)
        return self._snapshot()

    def check_awaited(self) -> None:
        """Refuse to continue after a coroutine that was created and never awaited."""
        called = vars(self).get(UNAWAITED)
        if called is not None and inspect.getcoroutinestate(called) == inspect.CORO_CREATED:
            called.close()
            verb = called.__name__
            raise UsageError(
                f"{verb} was called on loop {self.id} and not awaited, so nothing happened: "
                f"{self.machine.name} has async handlers; write `await {verb}(...)`, or in plain "
                f"code outlive.sync.loop.{verb}(...)"
            )

    def _snapshot(self) -> Snapshot:
        parts = {name: getattr(self, name) for name in RECORDED}
        parts = copy.deepcopy({**parts, "state": self.state.name})
        return Snapshot(version=self.version, id=self.id, **parts)

    @classmethod
    def from_dict(cls, snapshot: Mapping[str, Any]) -> Self:
        """A loop that continues from a snapshot. On ``Loop`` itself: of the only subclass there is.

        Raises:
            IncompatibleCheckpoint: it has another version, and no upcaster leads to this one.
            ValueRefused: it is not a snapshot of such a loop.
            UsageError: several kinds of loop are defined, and a snapshot does not say which.
        """
        kind = cls if cls is not Loop else the_only(defined(), "YourLoop.from_dict(snapshot)")
        loop: Any = kind.from_parts(copy.deepcopy(_parts_of(snapshot)))
        return loop  # type: ignore[no-any-return]  # an object of a subclass

    @classmethod
    def from_parts(cls, parts: Mapping[str, Any]) -> Self:
        """Like ``from_dict``, from parts that nobody else holds: they are not copied."""
        _check_defined(cls)
        loop = cls.__new__(cls)
        if not is_plain(parts, cls.version):
            name = f"the checkpoint of loop {parts.get('id') or '(no id)'}"
            parts = up_to_date(parts, cls.version, cls.upcasters, name)
        loop._take(parts)  # noqa: SLF001 - its own
        return loop

    def _take(self, snapshot: Mapping[str, Any]) -> None:
        """Replace all attributes by the snapshot's parts."""
        state, by_name = snapshot["state"], self.machine.by_name
        if type(state) is not str or state not in by_name:
            raise ValueRefused(
                f"{state!r} is not a state of {self.machine.name} ({', '.join(by_name)})", "$.state"
            )
        own = vars(self)
        own.clear()
        for name in _OWN:
            own[name] = snapshot[name]
        # Copies: a snapshot may hold the same list twice.
        self.plan, self.results = list(self.plan), list(self.results)
        self.context = dict(self.context)
        self.state = by_name[state]
        self.setup()

    def take(self, snapshot: Mapping[str, Any]) -> None:
        """Replace the parts of this loop by those of a snapshot."""
        parts = copy.deepcopy(_parts_of(snapshot))
        self._take(up_to_date(parts, self.version, self.upcasters))


def defined() -> dict[str, type[Loop]]:
    """All loops that this process has defined, by the names of their flows."""
    found: dict[str, type[Loop]] = {}
    waiting: list[type[Loop]] = [Loop]
    while waiting:
        subclasses = waiting.pop(0).__subclasses__()
        found |= {each.flow.name: each for each in subclasses if "flow" in vars(each)}
        waiting += subclasses
    if not found:
        raise UsageError("this process has not defined a loop: import the module that does")
    return found


def the_only(kinds: Mapping[str, type[Loop]], remedy: str) -> type[Loop]:
    """The only kind of loop, if there is one."""
    if len(kinds) > 1:
        raise UsageError(
            f"several kinds of loop are defined ({', '.join(sorted(kinds))}), and a snapshot does "
            f"not say which it is of; say so: {remedy}"
        )
    return next(iter(kinds.values()))


def _parts_of(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(snapshot, Mapping):
        raise ValueRefused(f"a snapshot is a dict of its parts, not {type(snapshot).__name__}")
    return dict(snapshot)


def _check_defined(cls: type[Loop]) -> None:
    if not hasattr(cls, "machine"):
        raise DefinitionRefused(f"{cls.__name__} has no handlers; write a subclass of it that has")


def _define(cls: type[Loop]) -> None:
    """Derive machine and flow from a class."""
    name = check_name(vars(cls).get("name") or cls.__name__)
    _check_spelling(cls, name)
    older = check_upcasters(name, cls.version, cls.upcasters)
    if type(cls.checkpoint_every) is not int or cls.checkpoint_every < 1:
        raise DefinitionRefused(
            f"{name}: checkpoint_every is {cls.checkpoint_every!r}; "
            "use a whole number of at least 1"
        )
    # States that the class defines itself include no working states unless it says so.
    is_own = cls.states is not State and cls.working is Loop.working
    working = () if is_own else cls.working
    methods = {each: getattr(cls, each) for each in dir(cls) if each.startswith("on_")}
    cls.machine = define(name, cls.states, cls.moves, working, methods)
    cls.flow = flow_of(cls, (cls.version, *reversed(older)), _rules(cls))


def _check_spelling(cls: type[Loop], name: str) -> None:
    """Refuse a misspelt option, which would be ignored silently."""
    for each, value in vars(cls).items():
        meant = get_close_matches(each, _OPTIONS, 1, LIKENESS)
        if meant and each not in _OPTIONS and not callable(value):
            raise DefinitionRefused(
                f"{name}: {each} is not an option of a loop; write {meant[0]}, if you mean that, "
                "or choose a name that is less similar"
            )


def _rules(cls: type[Loop]) -> Retention:
    """The retention rules of a loop's runs."""
    keep = GRACE if goes_at_once(cls.keep) else cls.keep
    return Retention(completed=keep, cancelled=keep, failed=cls.ttl, ttl=cls.ttl)


def goes_at_once(keep: Duration | None) -> bool:
    """Whether a loop is deleted by its driver as soon as it ends."""
    return keep is not None and parse_duration(keep) == 0


#: Parts of a snapshot whose annotations name the allowed classes.
_HINTED = ("request", "plan", "results", "context")
#: Parts that are omitted while they are empty.
_EMPTY: Mapping[str, Any] = {"plan": [], "results": [], "context": {}}


# one transition


async def turn(loop: Loop) -> None:
    """Call the handler of the loop's state, and make the transition that it returns."""
    state = loop.state
    try:
        target = _handle(loop)
        if inspect.isawaitable(target):
            target = await target
    except AttributeError as error:
        _explain(loop, error)
        raise
    _move(loop, state, target)


def turn_plain(loop: Loop) -> None:
    """The same for a machine without async handlers."""
    state = loop.state
    try:
        target = _handle(loop)
    except AttributeError as error:
        _explain(loop, error)
        raise
    _move(loop, state, target)


def _explain(loop: Loop, error: AttributeError) -> None:
    """Explain why an attribute that a handler had set may be missing."""
    if error.obj is loop:
        error.add_note(
            f"loop {loop.id} has its parts ({', '.join(RECORDED)}) and what setup() makes; "
            f"anything else that a handler sets is gone after a checkpoint: keep {error.name!r} in "
            f"self.context, or make it in setup()"
        )


def _handle(loop: Loop) -> Any:
    if loop.is_over:
        raise UsageError(
            f"loop {loop.id} is over ({loop.state.name}): no transition follows; start another"
        )
    return loop.machine.handlers[loop.state](loop)


def _move(loop: Loop, state: Enum, target: object) -> None:
    following = loop.machine.check_move(state, target)
    check_types(vars(loop))
    loop.state = following
    loop.seq += 1


class CheckpointCadence:
    """Counts transitions, and says after which a checkpoint is due."""

    def __init__(self, loop: Loop) -> None:
        self._machine, self._every = loop.machine, loop.checkpoint_every
        self._passed = 0

    def is_due(self, state: Enum) -> bool:
        """Whether a checkpoint follows the handler of this state: never in a working state."""
        if state in self._machine.working:
            return False
        self._passed = (self._passed + 1) % self._every
        return self._passed == 0


# the flow


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopFlow(Flow[..., Any]):
    """The flow of a machine: its runs are loops."""

    loop: type[Loop]

    @cached_property
    def args_codec(self) -> Codec:
        return codec_for(_hints_of(self.loop), registry)

    @cached_property
    def value_codec(self) -> Codec:
        return self.args_codec


def flow_of(loop: type[Loop], versions: tuple[int, ...], rules: Retention) -> LoopFlow:
    """The flow of a machine; ``versions``: its own first, then those that it can convert."""
    machine = loop.machine
    play = _async_play(loop) if machine.is_async else _plain_play(loop)
    defaults: dict[str, Any] = {"request": None, "plan": None, "results": None, "context": None}
    defaults |= {"state": machine.first.name, "cursor": 0, "seq": 0}
    kind = Parameter.POSITIONAL_OR_KEYWORD
    parameters = [Parameter(name, kind, default=defaults[name]) for name in RECORDED]
    play.__signature__ = Signature(parameters)
    play.__name__ = play.__qualname__ = machine.name
    play.__module__ = loop.__module__
    own, *older = map(str, versions)
    name = machine.name
    return LoopFlow(
        name=name, fn=play, version=own, accepts=tuple(older), retention=rules, loop=loop
    )


def _async_play(loop: type[Loop]) -> Any:
    async def play(**parts: Any) -> dict[str, Any]:
        here = _begin(loop, parts)
        pace, is_due = CheckpointCadence(here), False
        while not (is_due or here.is_over):
            state = here.state
            await turn(here)
            is_due = pace.is_due(state)
        if here.is_over:
            return whole(here)
        return await branch_for("carry").drive.carry((), recorded(here))

    return play


def _plain_play(loop: type[Loop]) -> Any:
    def play(**parts: Any) -> dict[str, Any]:
        here = _begin(loop, parts)
        pace, is_due = CheckpointCadence(here), False
        while not (is_due or here.is_over):
            state = here.state
            turn_plain(here)
            is_due = pace.is_due(state)
        if not here.is_over:
            plain_for("carry").wait(partial(carry, **recorded(here)))
        return whole(here)

    return play


def _begin(loop: type[Loop], parts: Mapping[str, Any]) -> Loop:
    """The loop at its last checkpoint, with version and id from the run."""
    run = branch_for(f"{loop.machine.name}.flow").drive
    return loop.from_parts(given(parts, version=int(run.version()), id=run.run_id))


def given(parts: Mapping[str, Any], *, version: int, id: str) -> dict[str, Any]:
    """A snapshot from recorded parts; None means still empty."""
    snapshot = {**parts, "version": version, "id": id}
    for name, part in parts.items():
        if part is None:
            snapshot[name] = copy.copy(_EMPTY.get(name))
    return snapshot


def recorded(loop: Loop) -> dict[str, Any]:
    """The parts of a loop that a run records; encoded at once, so they are not copied."""
    parts = {name: getattr(loop, name) for name in RECORDED}
    parts["state"] = loop.state.name
    return parts


def asked(loop: Loop) -> dict[str, Any]:
    """The arguments of a new run of this loop: for a new loop, the request alone."""
    parts = recorded(loop)
    return parts | {name: None for name, empty in _EMPTY.items() if parts[name] == empty}


def whole(loop: Loop) -> dict[str, Any]:
    """The outcome of a run: the last snapshot."""
    return {**recorded(loop), "version": loop.version, "id": loop.id}


def _hints_of(loop: type[Loop]) -> list[Any]:
    try:
        hints = typing.get_type_hints(loop, include_extras=True)
    except Exception as error:
        raise DefinitionRefused(
            f"{loop.__qualname__}: its annotations can't be resolved: {error}; "
            "import or define what they name at module level"
        ) from error
    return [hints[name] for name in _HINTED if name in hints]
