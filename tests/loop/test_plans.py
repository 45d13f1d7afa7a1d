"""What can't be repeated comes last in a plan, with the reason."""

from __future__ import annotations

import random

import pytest

from outlive.errors import DefinitionRefused
from outlive.loop import arrange
from tests.loop.agents import look_up, send

TOOLS = {"look": look_up, "send": send}


def test_effects_come_last_in_their_order() -> None:
    """And it is said why."""
    arranged = arrange(["send a", "look b", "send c", "look d"], lambda each: TOOLS[each[:4]])

    assert ["look b", "look d", "send a", "send c"] == arranged.plan
    assert [
        "action 1 ('send a') comes at 3: it can't be repeated: a crash before it means deciding "
        "again, not acting again",
        "action 3 ('send c') comes last: it can't be repeated: a crash before it means deciding "
        "again, not acting again",
    ] == arranged.why


def test_what_needs_an_effect_stays_behind_it() -> None:
    """However long the chain is; the rest goes first."""
    needs = {"look receipt": [0], "look deeper": [1]}
    plan = ["send a", "look receipt", "look deeper", "look b"]
    arranged = arrange(plan, lambda each: TOOLS[each[:4]], lambda each: needs.get(each, []))

    assert ["look b", "send a", "look receipt", "look deeper"] == arranged.plan
    assert "it needs the outcome of action 1, which is held back" in arranged.why[1]


def test_a_plan_in_order_is_left_alone() -> None:
    """Nothing is moved, so nothing is to be explained."""
    arranged = arrange([1, 2, 3], lambda each: each < 3)

    assert ([1, 2, 3], []) == (arranged.plan, arranged.why)


def test_an_action_cannot_need_a_later_one() -> None:
    """Positions count from 0."""
    with pytest.raises(DefinitionRefused, match="action 1 of the plan needs the one at 1"):
        arrange(["a", "b"], lambda each: True, lambda each: [1])


def test_any_plan_keeps_its_needs_and_its_order(chance: random.Random) -> None:
    """Random plans: nothing is lost, needs come before, each kind keeps its order."""
    for _ in range(300):
        size = chance.randint(0, 9)
        once = {at for at in range(size) if chance.random() < 0.4}
        needs = {at: chance.sample(range(at), chance.randint(0, min(at, 2))) for at in range(size)}
        plan = arrange(
            range(size), [at not in once for at in range(size)].__getitem__, needs.__getitem__
        ).plan

        assert sorted(plan) == list(range(size))
        assert all(plan.index(need) < plan.index(at) for at in plan for need in needs[at])
        free = [at for at in plan if at not in once and not held(at, once, needs)]
        assert free == plan[: len(free)] == sorted(free)
        assert plan[len(free) :] == sorted(plan[len(free) :])


def held(at: int, once: set[int], needs: dict[int, list[int]]) -> bool:
    return at in once or any(held(need, once, needs) for need in needs[at])
