"""A state machine: states, transitions, a handler for each state. Checked when it is defined. Pure.

A state that no transition leaves is an end. *Working* states are those whose work is not to be
saved halfway: no checkpoint follows their handler.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from outlive.errors import DefinitionRefused, IllegalTransition

Moves: TypeAlias = Mapping[Any, Any]
#: The prefix of handlers' names; the state's name follows, in lower case.
PREFIX = "on_"


class State(Enum):
    """The state of an agent's loop."""

    PLANNING = "PLANNING"
    EXECUTING = "EXECUTING"
    OBSERVING = "OBSERVING"
    REFLECTING = "REFLECTING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"


#: The default transitions, for a loop that names no states of its own.
MOVES: Mapping[State, tuple[State, ...]] = {
    State.PLANNING: (State.EXECUTING, State.COMPLETE, State.FAILED),
    State.EXECUTING: (State.OBSERVING, State.FAILED),
    State.OBSERVING: (State.REFLECTING, State.EXECUTING, State.FAILED),
    State.REFLECTING: (State.EXECUTING, State.PLANNING, State.COMPLETE, State.FAILED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The states and transitions of a loop."""

    name: str
    states: type[Enum]
    moves: Mapping[Enum, tuple[Enum, ...]]
    working: frozenset[Enum]
    handlers: Mapping[Enum, Callable[[Any], Any]]
    #: The states by name, aliases included.
    by_name: Mapping[str, Enum]

    @property
    def first(self) -> Enum:
        """The initial state."""
        return next(iter(self.states))

    @property
    def is_async(self) -> bool:
        """Whether one of its handlers is async."""
        return any(inspect.iscoroutinefunction(each) for each in self.handlers.values())

    def is_end(self, state: Enum) -> bool:
        """Whether no transition leaves this state."""
        return not self.moves.get(state)

    def check_move(self, state: Enum, target: object) -> Enum:
        """The state that a handler returned, if it may follow.

        Raises:
            IllegalTransition: it may not.
        """
        for legal in self.moves[state]:
            if legal is target:
                return legal
        told = target.name if isinstance(target, Enum) else repr(target)
        legal_names = [each.name for each in self.moves[state]]
        raise IllegalTransition(self.name, state.name, told, legal_names)


def define(name: str, states: Any, moves: Any, working: Any, methods: Mapping[str, Any]) -> Machine:
    """Make a machine from its definition; ``methods`` are all methods of its class.

    Raises:
        DefinitionRefused: it can't work; the message says why, and what to write instead.
    """
    _check_states(name, states)
    known = _check_moves(name, states, moves)
    _check_reach(name, next(iter(states)), known, states)
    at_work = _several(name, "working", working)
    for each in at_work:
        _check_known(name, "working", each, states)
    handlers = {state: _handler(name, state, known, methods) for state in states if known[state]}
    _check_idle(name, states, known, methods)
    return Machine(
        name=name,
        states=states,
        moves=known,
        working=frozenset(at_work),
        handlers=handlers,
        by_name=dict(states.__members__),
    )


def method_of(state: Enum) -> str:
    """The name of the method that handles a state."""
    return PREFIX + state.name.lower()


def either(states: Iterable[Enum]) -> str:
    """States joined with "or"."""
    *most, last = [state.name for state in states]
    return f"{', '.join(most)} or {last}" if most else last


def _check_states(name: str, states: Any) -> None:
    if not (isinstance(states, type) and issubclass(states, Enum) and len(states)):
        raise DefinitionRefused(
            f"{name}: states is {states!r}; it is an Enum with a member for each state, "
            "the initial state first"
        )
    methods = [method_of(state) for state in states]
    for method in methods:
        if methods.count(method) > 1:
            raise DefinitionRefused(f"{name}: two states would have the handler {method}()")


def _check_known(name: str, where: str, state: object, states: type[Enum]) -> None:
    if not isinstance(state, states):
        raise DefinitionRefused(
            f"{name}: {where} has {state!r}, which is not one of its states ({either(states)})"
        )


def _several(name: str, where: str, given: Any) -> tuple[Any, ...]:
    """A tuple of states; a single one may stand alone."""
    if isinstance(given, Enum):
        return (given,)
    if not isinstance(given, Iterable):
        raise DefinitionRefused(f"{name}: {where} is {given!r}; write states: (State.FAILED,)")
    return tuple(given)


def _check_moves(name: str, states: type[Enum], moves: Any) -> dict[Enum, tuple[Enum, ...]]:
    if not isinstance(moves, Mapping):
        raise DefinitionRefused(
            f"{name}: moves is {moves!r}; it says for each state which may follow: "
            "{State.PLANNING: (State.EXECUTING, State.FAILED), ...}"
        )
    known: dict[Enum, tuple[Enum, ...]] = dict.fromkeys(states, ())
    for state, targets in moves.items():
        _check_known(name, "moves", state, states)
        several = _several(name, f"moves of {state.name}", targets)
        for target in several:
            _check_known(name, f"moves of {state.name}", target, states)
        known[state] = several
    return known


def _check_reach(
    name: str, first: Enum, moves: Mapping[Enum, tuple[Enum, ...]], states: type[Enum]
) -> None:
    reached, waiting = {first}, [first]
    while waiting:
        for target in moves[waiting.pop()]:
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    for state in states:
        if state not in reached:
            raise DefinitionRefused(
                f"{name}: no way leads from {first.name} to {state.name}; add a move to it, "
                "or leave the state out"
            )


def _handler(
    name: str, state: Enum, moves: Mapping[Enum, tuple[Enum, ...]], methods: Mapping[str, Any]
) -> Callable[[Any], Any]:
    method = method_of(state)
    found = methods.get(method)
    if found is None:
        raise DefinitionRefused(
            f"{name}: state {state.name} has no handler; write `def {method}(self)`, "
            f"which returns the next state: {either(moves[state])}"
        )
    is_odd = inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found)
    if not inspect.isfunction(found) or is_odd:
        raise DefinitionRefused(
            f"{name}: {method} is {found!r}; a handler is a method of the loop, async or plain, "
            "and what it calls is a step or an effect, not the handler itself"
        )
    needed = [each for each in inspect.signature(found).parameters.values() if _is_needed(each)]
    if len(needed) != 1:
        raise DefinitionRefused(
            f"{name}: {method} takes {', '.join(map(str, needed)) or 'nothing'}; "
            "a handler takes nothing but self"
        )
    return found


def _is_needed(parameter: inspect.Parameter) -> bool:
    is_open = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not is_open


def _check_idle(
    name: str,
    states: type[Enum],
    moves: Mapping[Enum, tuple[Enum, ...]],
    methods: Mapping[str, Any],
) -> None:
    """Refuse handlers that would never be called."""
    by_method = {method_of(state): state for state in states}
    for method in methods:
        state = by_method.get(method)
        if not method.startswith(PREFIX) or (state is not None and moves[state]):
            continue
        if state is None:
            why = f"is the handler of no state ({either(states)})"
        else:
            why = f"would never be called: {state.name} is an end, no transition leaves it"
        raise DefinitionRefused(f"{name}: {method} {why}; rename it, or leave it out")
