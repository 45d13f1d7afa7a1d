"""Transitions: one handler, one move; and the flow whose runs are loops.

A driven loop is a run of its machine's flow. The flow calls handlers until a checkpoint is due,
then it carries the loop's snapshot into the next chapter: whoever goes on reads that one record,
however long the loop has been at it. What a handler began and did not finish is replayed from
there: its finished steps come from the journal, and whatever is called again has the same key.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from inspect import Parameter, Signature
from typing import Any, Protocol, Self

from outlive.engine.definitions import Flow, registry
from outlive.engine.place import branch_for, plain_for
from outlive.engine.verbs import carry
from outlive.errors import DefinitionRefused, UsageError
from outlive.journal.codec.codec import Codec, codec_for
from outlive.loop.machine import Machine
from outlive.loop.snapshot import RECORDED, check_types
from outlive.model.retention import Retention

#: Parts of a snapshot whose hints say which classes may be in them.
_HINTED = ("request", "plan", "results", "context")
#: Parts that are left out where nothing is in them yet.
_EMPTY: Mapping[str, Any] = {"plan": [], "results": [], "context": {}}


class Looping(Protocol):
    """What a transition needs of a loop."""

    machine: typing.ClassVar[Machine]
    version: typing.ClassVar[int]
    checkpoint_every: typing.ClassVar[int]
    id: str
    state: Any
    seq: int

    @property
    def is_over(self) -> bool:
        """It has reached an end."""
        ...

    @classmethod
    def from_parts(cls, parts: Mapping[str, Any]) -> Self:
        """A loop that goes on from there, and has these parts for itself."""
        ...


# one transition


async def turn(loop: Looping) -> None:
    """Call the handler of the loop's state, and make the move that it asks for."""
    state = loop.state
    try:
        target = _handle(loop)
        if inspect.isawaitable(target):
            target = await target
    except AttributeError as error:
        _explain(loop, error)
        raise
    _move(loop, state, target)


def turn_plain(loop: Looping) -> None:
    """The same for a machine none of whose handlers is awaited."""
    state = loop.state
    try:
        target = _handle(loop)
    except AttributeError as error:
        _explain(loop, error)
        raise
    _move(loop, state, target)


def _explain(loop: Looping, error: AttributeError) -> None:
    """Say why something may be missing that a handler had set."""
    if error.obj is loop:
        error.add_note(
            f"loop {loop.id} has its parts ({', '.join(RECORDED)}) and what setup() makes; "
            f"anything else that a handler sets is gone after a checkpoint: keep {error.name!r} in "
            f"self.context, or make it in setup()"
        )


def _handle(loop: Looping) -> Any:
    if loop.is_over:
        raise UsageError(
            f"loop {loop.id} is over ({loop.state.name}): no move leads on; begin another"
        )
    return loop.machine.handlers[loop.state](loop)


def _move(loop: Looping, state: Enum, target: object) -> None:
    following = loop.machine.check_move(state, target)
    check_types(vars(loop))
    loop.state = following
    loop.seq += 1


class CheckpointCadence:
    """Says after which transitions a checkpoint is due."""

    def __init__(self, loop: Looping) -> None:
        self._machine, self._every = loop.machine, loop.checkpoint_every
        self._passed = 0

    def is_due(self, state: Enum) -> bool:
        """Whether one follows the handler of this state: never in the middle of the work."""
        if state in self._machine.working:
            return False
        self._passed = (self._passed + 1) % self._every
        return self._passed == 0


# the flow


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopFlow(Flow[..., Any]):
    """The flow of a machine: its runs are loops."""

    loop: type[Looping]

    @cached_property
    def args_codec(self) -> Codec:
        return codec_for(_hints_of(self.loop), registry)

    @cached_property
    def value_codec(self) -> Codec:
        return self.args_codec


def flow_of(loop: type[Looping], versions: tuple[int, ...], rules: Retention) -> LoopFlow:
    """The flow of a machine; ``versions``: its own first, then those that it can bring up."""
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


def _async_play(loop: type[Looping]) -> Any:
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


def _plain_play(loop: type[Looping]) -> Any:
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


def _begin(loop: type[Looping], parts: Mapping[str, Any]) -> Looping:
    """The loop as its last checkpoint has it; the run says which version that is, and its id."""
    run = branch_for(f"{loop.machine.name}.flow").drive
    return loop.from_parts(given(parts, version=int(run.version()), id=run.run_id))


def given(parts: Mapping[str, Any], *, version: int, id: str) -> dict[str, Any]:
    """A snapshot from what a run has recorded; None is nothing yet."""
    snapshot = {**parts, "version": version, "id": id}
    for name, part in parts.items():
        if part is None:
            snapshot[name] = copy(_EMPTY.get(name))
    return snapshot


def recorded(loop: Looping) -> dict[str, Any]:
    """What a run records of a loop, by name; encoded at once, so that nothing is copied."""
    parts = {name: getattr(loop, name) for name in RECORDED}
    parts["state"] = loop.state.name
    return parts


def asked(loop: Looping) -> dict[str, Any]:
    """What a run of this loop is started with: where it is new, the request alone."""
    parts = recorded(loop)
    return parts | {name: None for name, empty in _EMPTY.items() if parts[name] == empty}


def whole(loop: Looping) -> dict[str, Any]:
    """What a run returns: the last snapshot."""
    return {**recorded(loop), "version": loop.version, "id": loop.id}


def _hints_of(loop: type[Looping]) -> list[Any]:
    try:
        hints = typing.get_type_hints(loop, include_extras=True)
    except Exception as error:
        raise DefinitionRefused(
            f"{loop.__qualname__}: its annotations can't be resolved: {error}; "
            "import or define what they name at module level"
        ) from error
    return [hints[name] for name in _HINTED if name in hints]
