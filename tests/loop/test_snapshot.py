"""A snapshot is whole, shares nothing with its loop, and is of one version."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from outlive.errors import IncompatibleCheckpoint, UsageError, ValueRefused
from outlive.loop import Loop, Snapshot, State
from tests.loop.agents import Agent


class Third(Agent):
    """Its schema was changed twice: a topic became a request, results became dicts."""

    version = 3
    upcasters = {
        1: lambda old: {**old, "request": old["request"]["topic"]},
        2: lambda old: {**old, "results": [{"text": each} for each in old["results"]]},
    }


FIRST = {"version": 1, "request": {"topic": "lamps"}, "state": "REFLECTING", "results": ["a"]}


def test_a_snapshot_is_a_dict_that_json_can_write() -> None:
    """Its parts can be had by name, too; and it makes the same loop again."""
    loop = Agent("a b", id="x", context={"user": "ann"})
    loop.plan, loop.cursor, loop.results, loop.seq = ["a", "b"], 1, ["a found"], 4
    loop.state = State.REFLECTING
    snapshot = loop.snapshot()

    assert snapshot == json.loads(json.dumps(snapshot)) == {
        "version": 1, "id": "x", "request": "a b", "state": "REFLECTING", "plan": ["a", "b"],
        "cursor": 1, "results": ["a found"], "context": {"user": "ann"}, "seq": 4,
    }  # fmt: skip
    assert (1, "REFLECTING", 4) == (snapshot.version, snapshot.state, snapshot.seq)
    assert snapshot == Agent.from_dict(snapshot).snapshot()
    with pytest.raises(AttributeError, match="a snapshot has no 'size'; it has version, id, "):
        _ = snapshot.size


def test_it_is_made_by_hand_as_well() -> None:
    """What is left out is empty."""
    snapshot = Snapshot(version=1, request="a", state="PLANNING", plan=[], cursor=0, results=[])
    loop = Agent.from_dict(snapshot)

    assert (State.PLANNING, [], {}, 0) == (loop.state, loop.plan, loop.context, loop.seq)


def test_it_is_a_dataclass_as_well() -> None:
    """Made by position in the order of the lesson; ``asdict`` and ``replace`` take it."""
    snapshot = Snapshot(1, "a", "EXECUTING", ["mail"], 0, ["found"])
    parts: Any = {"version": 1, "request": "a", "state": "EXECUTING", "plan": ["mail"]}
    assert Snapshot(**parts, results=["found"]) == snapshot

    written = dataclasses.asdict(snapshot)
    assert (dict, dict(snapshot)) == (type(written), written)
    assert "OBSERVING" == dataclasses.replace(snapshot, state="OBSERVING").state
    assert Agent.from_dict(written).snapshot() == Agent.from_dict(snapshot).snapshot()


def test_it_shares_nothing_with_the_loop() -> None:
    """Neither on the way out nor on the way in."""
    given: Any = {"order": ["7"]}
    loop = Agent(given)
    given["order"].append("8")
    taken = loop.snapshot()
    loop.request["order"].append("9")
    again = Agent.from_dict(taken)
    taken["request"]["order"].append("10")

    assert (["7", "9"], ["7"]) == (loop.request["order"], again.request["order"])


@pytest.mark.parametrize("name", ["x", None])
def test_its_parts_share_nothing_with_one_another(name: str | None) -> None:
    """Though whoever made it used one list for all of them."""
    empty: list[str] = []
    parts = {"request": empty, "plan": empty, "results": empty, "context": {}, "cursor": 0}
    loop = Agent.from_dict({**parts, "version": 1, "id": name, "state": "PLANNING", "seq": 0})
    loop.results.append("found")

    assert ([], [], ["found"]) == (loop.request, loop.plan, loop.results)


def test_older_versions_are_brought_up_to_date() -> None:
    """One version after another; what was given is left alone."""
    loop = Third.from_dict(FIRST)

    assert ("lamps", [{"text": "a"}], 3) == (loop.request, loop.results, loop.snapshot().version)
    assert {"topic": "lamps"} == FIRST["request"]


@pytest.mark.parametrize("version", [0, 4, "1", None, True, 1.0, 3.0])
def test_any_other_version_is_refused_with_both(version: Any) -> None:
    """Nothing is guessed."""
    with pytest.raises(IncompatibleCheckpoint) as refused:
        Third.from_dict({**FIRST, "version": version, "id": "x"})

    assert (version, 3) == (refused.value.found, refused.value.wanted)
    assert f"loop x has version {version}, this code reads 3" in str(refused.value)


def test_a_version_is_a_whole_number() -> None:
    """What equals one is none; that no upcaster helps is said."""
    wrong: Any = {**FIRST, "version": True}
    with pytest.raises(IncompatibleCheckpoint, match="one that is a whole number, not a bool, or"):
        Agent.from_dict(wrong)


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"state": "SLEEPING"}, "$.state"),
        ({"state": []}, "$.state"),
        ({"size": 3}, "$.size"),
        ({"request": ...}, "$.request"),
        ({"plan": None}, "$.plan"),
        ({"plan": "abc"}, "$.plan"),
        ({"results": 5}, "$.results"),
        ({"cursor": "9"}, "$.cursor"),
        ({"seq": True}, "$.seq"),
        ({"context": [1]}, "$.context"),
        ({"id": 7}, "$.id"),
    ],
)
def test_what_is_no_snapshot_is_refused(changed: dict[str, Any], path: str) -> None:
    """With the part that is wrong."""
    parts = {**FIRST, **changed}
    parts = {name: part for name, part in parts.items() if part is not ...}
    with pytest.raises(ValueRefused) as refused:
        Agent.from_dict(parts)

    assert path == refused.value.path


@pytest.mark.parametrize("given", [None, 5, ["version", 1]])
def test_a_snapshot_is_a_dict(given: Any) -> None:
    """Anything else is refused in words."""
    with pytest.raises(ValueRefused, match="a snapshot is a dict of its parts, not"):
        Agent.from_dict(given)


def test_the_context_of_a_loop_is_a_dict() -> None:
    """Here as in a snapshot."""
    wrong: Any = [1]
    with pytest.raises(ValueRefused, match="the context of a loop is a dict, not list"):
        Agent("a", context=wrong)


def test_an_upcaster_returns_a_snapshot() -> None:
    """One that forgets to is named."""

    class Forgets(Agent):
        version = 2
        upcasters = {1: lambda old: old.clear()}

    with pytest.raises(ValueRefused, match="the upcaster from version 1 returned NoneType; it"):
        Forgets.from_dict(FIRST)


def test_a_loop_without_an_id_has_no_keys() -> None:
    """They would be those of every other loop without one: a receiver would drop its effect."""
    loop = Agent.from_dict(Snapshot(version=1, request="a", state="EXECUTING", plan=["mail"]))

    with pytest.raises(UsageError, match=r"this Agent has no id, .* give its snapshot an id"):
        loop.key("mail")


def test_setup_is_called_however_a_loop_comes_to_be() -> None:
    """What comes from a configuration is never in a snapshot."""

    class Client(Agent):
        def setup(self) -> None:
            self.client = f"client of {self.id}"

    loop: Loop = Client.from_dict(Client("a", id="x").snapshot())

    assert "client of x" == vars(loop)["client"]
    assert "client" not in loop.snapshot()
