"""The loop of an agent: plan, act, observe, reflect, or states of its author's own.

A subclass is a machine: its handlers are its methods, checked when the class is defined. An object
is one loop. What is to outlive the process is in the parts of its snapshot; whatever else a
handler sets on it is gone after the next checkpoint, live as after a crash.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from enum import Enum
from typing import Any, ClassVar, Generic, Self, TypeVar

from outlive.engine.definitions import Effect, check_name
from outlive.errors import DefinitionRefused, UsageError, ValueRefused
from outlive.loop.machine import MOVES, Machine, Moves, State, define
from outlive.loop.snapshot import (
    RECORDED,
    Snapshot,
    Upcasters,
    check_upcasters,
    is_plain,
    up_to_date,
)
from outlive.loop.transitions import LoopFlow, flow_of
from outlive.model.retention import Retention
from outlive.model.retry import Duration, parse_duration
from outlive.ports import Ports

_OPTIONS = (
    "states", "moves", "working", "version", "upcasters", "checkpoint_every", "keep", "ttl", "name",
)  # fmt: skip
_OWN = ("id", *RECORDED)
#: Notes on a loop, beside its parts: what is still to be awaited; the snapshot from
#: before the work, as long as the loop stands behind work that no snapshot has whole; and what
#: ``setup`` made.
UNAWAITED, BEFORE_WORK, MADE = "_unawaited", "_before_work", "_made"
NOTES = (UNAWAITED, BEFORE_WORK, MADE)
#: What is not kept is there for so long under workers: whoever handed it in reads how it ended.
GRACE = "1m"
#: Names that are as much alike as this, of 1, are one and the same, misspelt.
LIKENESS = 0.9


class Loop:
    """An agent's loop as a machine of states. Write a subclass with a handler for each state.

    The handler of ``State.PLANNING`` is ``on_planning(self)``, async or plain; it changes the
    loop's parts and returns the next state. Model calls in it are steps, tools that change the
    world are effects.
    """

    #: An Enum of the machine's states, the one to begin with first.
    states: ClassVar[type[Enum]] = State
    #: For each state those that may follow it; one that nothing follows is an end.
    moves: ClassVar[Moves] = MOVES
    #: States in whose middle nothing is saved: no checkpoint follows their handler.
    working: ClassVar[Iterable[Enum]] = (State.EXECUTING,)
    #: Of the snapshot's schema.
    version: ClassVar[int] = 1
    #: By older version: a function that makes a snapshot of it into one of the next.
    upcasters: ClassVar[Upcasters] = {}
    #: A checkpoint after so many transitions that may have one.
    checkpoint_every: ClassVar[int] = 1
    #: How long a loop is kept after its end (default: a day), so that the same id gives the same
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
    #: What the agent was asked for.
    request: Any
    #: Where it stands.
    state: Any
    #: What is to be done, in order.
    plan: list[Any]
    #: The position in the plan of what is done next.
    cursor: int
    #: What the loop has accepted so far.
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
        """It has reached an end."""
        return self.machine.is_end(self.state)

    @property
    def current(self) -> Any:
        """What the plan has at the cursor; None behind its end."""
        return self.plan[self.cursor] if 0 <= self.cursor < len(self.plan) else None

    def key(self, what: str) -> str:
        """A key for something that this transition does: the same when it is done again.

        Effects have theirs by themselves; this is for loops that are driven without a journal.

        Raises:
            UsageError: the loop has no id, so another one's keys would be the same.
        """
        if self.id is None:
            raise UsageError(
                f"this {self.machine.name} has no id, so its keys would be those of other loops; "
                "give its snapshot an id, the same whenever it is gone on with"
            )
        return f"{self.id}/{self.seq}/{what}"

    def snapshot(self) -> Snapshot:
        """All that is needed to go on from here; it shares nothing with the loop.

        Where the handler of a working state has just left something on the loop that no snapshot
        has, it is the snapshot from before that handler: whoever goes on from it calls it again.

        Raises:
            UsageError: ``step_once`` or ``drive`` was called on this loop and not awaited.
        """
        self.check_awaited()
        before: Snapshot | None = vars(self).get(BEFORE_WORK)
        if before is not None and not self.is_over:
            return copy.deepcopy(before)
        return self._snapshot()

    def check_awaited(self) -> None:
        """Refuse to go on behind a verb that was called and never awaited."""
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
        """A loop that goes on from a snapshot. ``Loop`` itself: of the only subclass there is.

        Raises:
            IncompatibleCheckpoint: it has another version, and no upcaster leads to this one.
            ValueRefused: it is no snapshot of a loop of this kind.
            UsageError: several kinds of loop are defined, and a snapshot does not say which.
        """
        kind = cls if cls is not Loop else the_only(defined(), "YourLoop.from_dict(snapshot)")
        loop: Any = kind.from_parts(copy.deepcopy(_parts_of(snapshot)))
        return loop  # type: ignore[no-any-return]  # an object of a subclass

    @classmethod
    def from_parts(cls, parts: Mapping[str, Any]) -> Self:
        """As ``from_dict``, from parts that nobody else holds: they are not copied."""
        _check_defined(cls)
        loop = cls.__new__(cls)
        if not is_plain(parts, cls.version):
            name = f"the checkpoint of loop {parts.get('id') or '(no id)'}"
            parts = up_to_date(parts, cls.version, cls.upcasters, name)
        loop._take(parts)  # noqa: SLF001 - its own
        return loop

    def _take(self, snapshot: Mapping[str, Any]) -> None:
        """Be what the snapshot says, and nothing else."""
        state, by_name = snapshot["state"], self.machine.by_name
        if type(state) is not str or state not in by_name:
            raise ValueRefused(
                f"{state!r} is no state of {self.machine.name} ({', '.join(by_name)})", "$.state"
            )
        own = vars(self)
        own.clear()
        for name in _OWN:
            own[name] = snapshot[name]
        # Each its own, though a snapshot may have had one list twice.
        self.plan, self.results = list(self.plan), list(self.results)
        self.context = dict(self.context)
        self.state = by_name[state]
        self.setup()

    def take(self, snapshot: Mapping[str, Any]) -> None:
        """Become what a snapshot says, in place."""
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
        raise UsageError("this process has defined no loop: import the module that does")
    return found


def the_only(kinds: Mapping[str, type[Loop]], remedy: str) -> type[Loop]:
    """The one kind of loop that can be meant."""
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
    """What follows from a class once it is written."""
    name = check_name(vars(cls).get("name") or cls.__name__)
    _check_spelling(cls, name)
    older = check_upcasters(name, cls.version, cls.upcasters)
    if type(cls.checkpoint_every) is not int or cls.checkpoint_every < 1:
        raise DefinitionRefused(
            f"{name}: checkpoint_every is {cls.checkpoint_every!r}; it is a number from 1 on"
        )
    # The states that the class itself brings have no work in them unless it says so.
    is_own = cls.states is not State and cls.working is Loop.working
    working = () if is_own else cls.working
    methods = {each: getattr(cls, each) for each in dir(cls) if each.startswith("on_")}
    cls.machine = define(name, cls.states, cls.moves, working, methods)
    cls.flow = flow_of(cls, (cls.version, *reversed(older)), _rules(cls))


def _check_spelling(cls: type[Loop], name: str) -> None:
    """An option that is misspelt would be none, in silence."""
    for each, value in vars(cls).items():
        meant = get_close_matches(each, _OPTIONS, 1, LIKENESS)
        if meant and each not in _OPTIONS and not callable(value):
            raise DefinitionRefused(
                f"{name}: {each} is no option of a loop; write {meant[0]}, if you mean that, "
                "or give it a name that is less like it"
            )


def _rules(cls: type[Loop]) -> Retention:
    """What becomes of loops that are over, or that nobody goes on with."""
    keep = GRACE if goes_at_once(cls.keep) else cls.keep
    return Retention(completed=keep, cancelled=keep, failed=cls.ttl, ttl=cls.ttl)


def goes_at_once(keep: Duration | None) -> bool:
    """Whoever drives a loop that is kept for so long deletes it when it is over."""
    return keep is not None and parse_duration(keep) == 0


S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Arranged(Generic[S]):
    """A plan in its new order, and why."""

    #: All actions of the plan that was given.
    plan: list[S]
    #: A sentence for each action that does not stand where it stood.
    why: list[str]


def arrange(
    plan: Sequence[S],
    tool: Callable[[S], Any],
    needs: Callable[[S], Collection[int]] | None = None,
) -> Arranged[S]:
    """The same actions, those that can't be repeated last.

    ``tool`` says what carries an action out: an effect can't be repeated, a step or any other
    function can; or it answers itself, with True for what can be repeated. ``needs`` gives the
    positions in the plan of actions whose outcome an action needs: it stays behind them.

    Raises:
        DefinitionRefused: an action needs one that does not come before it.
    """
    held: dict[int, str] = {}
    for position, action in enumerate(plan):
        needed = _checked(position, () if needs is None else needs(action))
        if not _is_repeatable(tool(action)):
            held[position] = (
                "it can't be repeated: a crash before it means deciding again, not acting again"
            )
        elif behind := [each for each in needed if each in held]:
            held[position] = f"it needs the outcome of action {behind[-1] + 1}, which is held back"
    order = [at for at in range(len(plan)) if at not in held] + list(held)
    why = [
        f"action {old + 1} ({plan[old]!r}) comes {'last' if last else f'at {new + 1}'}: {held[old]}"
        for new, old in enumerate(order)
        if old in held and new != old
        for last in [new == len(order) - 1]
    ]
    return Arranged([plan[at] for at in order], why)


def _is_repeatable(tool: Any) -> bool:
    return tool if isinstance(tool, bool) else not isinstance(tool, Effect)


def _checked(position: int, needed: Collection[int]) -> list[int]:
    for each in needed:
        if not 0 <= each < position:
            raise DefinitionRefused(
                f"action {position + 1} of the plan needs the one at {each}; "
                "positions count from 0, and what is needed comes before"
            )
    return sorted(needed)
