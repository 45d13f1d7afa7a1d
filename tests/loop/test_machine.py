"""A machine that can't work is refused when it is defined, in words that say what to write."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import pytest

import outlive
from outlive.errors import DefinitionRefused, IllegalTransition
from outlive.loop import Loop, State, step_once
from outlive.loop.machine import MOVES
from tests.loop.agents import Agent, Clerk, Release, Stage


class Lamp(Enum):
    OFF = 1
    ON = 2
    BROKEN = 3


async def handler(self: Any) -> Any:
    return None


WELL: dict[str, Any] = {
    "states": Lamp,
    "moves": {Lamp.OFF: (Lamp.ON,), Lamp.ON: (Lamp.OFF, Lamp.BROKEN)},
    "on_off": handler,
    "on_on": handler,
}


def lamp(**changed: Any) -> type[Loop]:
    """A class with these parts; those that are None are left out."""
    parts = {name: part for name, part in {**WELL, **changed}.items() if part is not None}
    return type("Lantern", (Loop,), parts)


def test_a_machine_that_works_is_taken() -> None:
    """States, moves and handlers as they were written."""
    machine = lamp().machine

    assert (Lamp.OFF, True) == (machine.first, machine.is_async)
    assert [False, False, True] == [machine.is_end(state) for state in Lamp]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"states": None},
            r"moves has <Lamp.OFF: 1>, which is not one of its states \(PLANNING, .*",
        ),
        ({"states": ["OFF", "ON"]}, r"states is \['OFF', 'ON'\]; it is an Enum with a member"),
        ({"states": Enum("Nothing", {})}, r"states is <enum 'Nothing'>; it is an Enum"),
        ({"states": Enum("Twice", "off OFF")}, r"two states would have the handler on_off\(\)"),
        (
            {"moves": None},
            r"moves has <State.PLANNING: .*>, which is not one of its states \(OFF, ON",
        ),
        ({"moves": [Lamp.OFF]}, r"moves is \[<Lamp.OFF: 1>\]; it says for each state"),
        (
            {"moves": {Lamp.OFF: (Lamp.ON, "red")}},
            r"moves of OFF has 'red', which is not one of its",
        ),
        (
            {"moves": {Lamp.OFF: (Lamp.ON,), Lamp.ON: (Lamp.OFF,)}},
            r"no way leads from OFF to BROKEN; add a move to it, or leave the state out",
        ),
        ({"on_on": None}, r"state ON has no handler; write `def on_on\(self\)`, .*: OFF or BROKEN"),
        ({"on_broken": handler}, r"on_broken would never be called: BROKEN is an end"),
        ({"on_of": handler}, r"on_of is the handler of no state \(OFF, ON or BROKEN\)"),
        ({"on_on": 7}, r"on_on is 7; a handler is a method of the loop"),
        ({"on_on": outlive.step(handler)}, r"what it calls is a step or an effect, not the han"),
        ({"on_on": lambda: None}, r"on_on takes nothing; a handler takes nothing but self"),
        ({"on_on": lambda self, tool: None}, r"on_on takes self, tool; a handler takes nothing"),
        (
            {"working": (State.EXECUTING, Lamp.ON)},
            r"working has <State.EXECUTING: .* not one of its",
        ),
        ({"working": 7}, r"working is 7; write states: \(State.FAILED,\)"),
        ({"moves": {Lamp.OFF: None}}, r"moves of OFF is None; write states"),
        ({"version": 0}, r"version is 0; use a whole number of at least 1"),
        ({"version": "2"}, r"version is '2'; use a whole number of at least 1"),
        ({"version": 4, "upcasters": {1: dict, 3: dict}}, r"upcasters are there .*\[1, 3\]; .*gap"),
        ({"version": 1, "upcasters": {0: dict}}, r"upcasters are there for versions \[0\]; .*"),
        ({"version": 2, "upcasters": [1]}, r"upcasters is \[1\]; it has a function by the version"),
        ({"version": 2, "upcasters": {"1": dict}}, r"upcasters is .*; it has a function by the"),
        ({"version": 2, "upcasters": {1: 5}}, r"the upcaster from version 1 is 5; it is a func"),
        (
            {"checkpoint_evry": 3},
            r"checkpoint_evry is not an option .*; write checkpoint_every, if",
        ),
        ({"upcaster": {}}, r"upcaster is not an option of a loop; write upcasters"),
        ({"checkpoint_every": 0}, r"checkpoint_every is 0; use a whole number of at least 1"),
        ({"ttl": "soon"}, r"soon"),
        ({"name": "a/b"}, r"'a/b' can't be a name"),
        ({"name": 5}, r"5 can't be a name"),
        ({"__init__": handler}, r"is made in `def setup\(self\)`"),
    ],
)
def test_a_machine_that_cannot_work_is_refused(changed: dict[str, Any], text: str) -> None:
    """At its definition, with its name and the remedy."""
    with pytest.raises(DefinitionRefused) as refused:
        lamp(**changed)

    assert re.search(text, str(refused.value)), str(refused.value)


def test_an_abstract_loop_only_has_subclasses() -> None:
    """It need not have handlers, and no loop of it can begin."""

    class Half(Loop, abstract=True):
        async def on_planning(self) -> State:
            return State.COMPLETE

    with pytest.raises(DefinitionRefused, match="Half has no handlers; write a subclass"):
        Half("x")
    with pytest.raises(DefinitionRefused, match="Loop has no handlers; write a subclass"):
        Loop("x")


def test_one_state_at_work_may_stand_alone() -> None:
    """As one that may follow another does."""
    assert {Lamp.ON} == lamp(working=Lamp.ON).machine.working


def test_a_plain_machine_is_plain_and_any_awaited_handler_makes_it_async() -> None:
    """As a flow is async or plain."""
    assert [True, False, True] == [each.machine.is_async for each in (Agent, Clerk, Release)]


@pytest.mark.parametrize("target", [State.COMPLETE, Stage.DONE, "OBSERVING", None])
async def test_an_illegal_move_names_both_states_and_the_legal_ones(target: Any) -> None:
    """Whatever a handler returns that is no state that may follow."""

    class Jumpy(Agent):
        async def on_executing(self) -> State:
            self.results.append("half done")
            returned: State = target
            return returned

    loop = Jumpy("a b")
    await step_once(loop)
    before = loop.snapshot()
    with pytest.raises(IllegalTransition) as refused:
        await step_once(loop)

    told = getattr(target, "name", repr(target))
    assert f"EXECUTING returned {told}, which may not follow; legal is OBSERVING, FAILED" in str(
        refused.value
    )
    assert (told, ["OBSERVING", "FAILED"]) == (refused.value.target, refused.value.legal)
    assert before == loop.snapshot()


def test_every_state_of_the_usual_machine_is_reached_and_can_fail() -> None:
    """As agents' loops go."""
    assert all(State.FAILED in targets for targets in MOVES.values())
