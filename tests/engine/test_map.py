"""Many things at once: a limit, failures that are told, and the same on replay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlive
from outlive.engine import verbs as fanout
from outlive.errors import DefinitionRefused, RunCancelled, RunFailed
from outlive.model.events import ChildIntended, Claimed, EffectDone, Parked, StepDone
from tests.harness.theatre import Theatre
from tests.harness.world import pay, world

busy: list[int] = [0, 0]


@outlive.step
async def work(item: int) -> int:
    busy[0] += 1
    busy[1] = max(busy)
    world.ran.append(f"work {item}")
    await asyncio.sleep(0.01)
    await world.gate(f"work {item}")
    busy[0] -= 1
    if item % 5 == 3:
        raise ValueError(f"bad {item}")
    return item * 2


@outlive.effect
async def act(item: int) -> int:
    if item == 2:
        raise outlive.NotHappened("not this one")
    world.done[outlive.key()] = f"act {item}"
    return item


@outlive.flow
async def child(item: int) -> int:
    await outlive.sleep(0.1)
    if item % 5 == 3:
        raise ValueError(f"bad {item}")
    return item * 3


KINDS = {"step": work, "effect": act, "flow": child}


def told(outcomes: list[Any]) -> list[str]:
    return [str(each.value) if each.ok else f"{type(each.error).__name__}" for each in outcomes]


@outlive.flow
async def mapping(kind: str, count: int, limit: int) -> list[str]:
    return told(await fanout.map(KINDS[kind], range(count), limit=limit))


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("step", ["0", "2", "4", "ValueError", "8", "10"]),
        ("effect", ["0", "1", "NotHappened", "3", "4", "5"]),
        ("flow", ["0", "3", "6", "RunFailed", "12", "15"]),
    ],
)
async def test_each_item_has_its_outcome(theatre: Theatre, kind: str, wanted: list[str]) -> None:
    """In the order of the items; those that failed say why, and keep nobody else."""
    handle = await theatre.open().start(mapping, kind, 6, 3, id="r")

    assert wanted == await theatre.outcome(handle)


async def test_steps_run_so_many_at_a_time(theatre: Theatre) -> None:
    """Never more than the limit, and not one by one either."""
    busy[:] = [0, 0]
    handle = await theatre.open().start(mapping, "step", 40, 7, id="r")
    await theatre.outcome(handle)

    assert 7 == busy[1]
    assert 32 == len(await theatre.events("r", StepDone))


async def test_children_run_so_many_at_a_time(theatre: Theatre) -> None:
    """No more than the limit are begun and not ended, whether or not the parent leaves memory."""
    handle = await theatre.open().start(mapping, "flow", 20, 4, id="r")
    waiting = asyncio.ensure_future(handle.outcome())
    open_at_once = []
    while not waiting.done():
        open_at_once.append(len((await theatre.fold("r")).children))
        theatre.pass_time(0.02)
        await asyncio.sleep(0)
    assert 20 == len(waiting.result())
    assert 4 == max(open_at_once)
    assert 20 == len(await theatre.events("r", ChildIntended))
    if theatre.settings.idle_seconds == 0:
        assert await theatre.events("r", Parked)


async def test_many_children_with_a_limit(stage: Theatre) -> None:
    """Three hundred, twenty at a time, with failures among them."""
    handle = await stage.open().start(mapping, "flow", 300, 20, id="r")
    outcomes = await stage.outcome(handle)

    assert 60 == outcomes.count("RunFailed")
    assert [str(n * 3) for n in range(300) if n % 5 != 3] == [
        each for each in outcomes if each != "RunFailed"
    ]


async def test_what_was_done_is_not_done_again(theatre: Theatre) -> None:
    """The process dies in the middle; only what was not yet durable is repeated."""
    app = theatre.open()
    world.hold("work 20")
    await app.start(mapping, "step", 30, 5, id="r")
    await theatre.has("r", StepDone, 10, step=0.005)
    await theatre.crash(app)
    world.bury()
    recorded = len(await theatre.events("r", StepDone))
    world.ran.clear()
    handle = await theatre.open().start(mapping, "step", 30, 5, id="r")
    outcomes = await theatre.outcome(handle)

    assert 6 == outcomes.count("ValueError")
    assert len(world.ran) <= 30 - recorded
    assert 2 == len(await theatre.events("r", Claimed))


async def test_a_failed_child_says_what_it_failed_of(stage: Theatre) -> None:
    """The outcome holds the error as a call would have raised it."""

    @outlive.flow
    async def looking() -> str:
        (outcome,) = await fanout.map(child, [3])
        assert not outcome.ok
        assert isinstance(outcome.error, RunFailed)
        return f"{outcome!r}"

    told = await stage.outcome(await stage.open().start(looking, id="r"))
    assert told.startswith("Outcome(error=RunFailed(")
    assert "bad 3" in told


async def test_a_cancelled_map_takes_everything_with_it(theatre: Theatre) -> None:
    """Children under way are cancelled, those not begun never begin."""
    handle = await theatre.open().start(mapping, "flow", 50, 3, id="r")
    await theatre.has("r", ChildIntended, 3, step=0.01)
    await theatre.cancel("r")
    with pytest.raises(RunCancelled):
        await theatre.outcome(handle, step=0.01)

    begun = await theatre.events("r", ChildIntended)
    assert len(begun) < 50
    for event in begun:
        await theatre.status(event.child_id, "cancelled", "completed", "failed")


async def test_effects_of_a_map_are_undone(theatre: Theatre) -> None:
    """Like any others, if the run ends badly."""

    @outlive.flow
    async def paying() -> None:
        await fanout.map(pay, list("abc"))
        raise ValueError("no good")

    with pytest.raises(RunFailed, match="no good"):
        await theatre.outcome(await theatre.open().start(paying, id="r"))
    assert 6 == len(await theatre.events("r", EffectDone))
    assert {} == world.done


async def test_what_can_not_be_mapped_is_refused(stage: Theatre) -> None:
    """A plain function, a limit of nothing, a set whose order is chance."""

    async def plain(item: int) -> int:
        return item

    @outlive.flow
    async def wrong() -> list[str]:
        seen = []
        for fn, items, limit in ((plain, [1], 1), (work, [1], 0), (work, {1, 2}, 1)):
            try:
                await fanout.map(fn, items, limit)
            except DefinitionRefused as error:
                seen.append(str(error).split(" ")[-1])
        return seen

    told = await stage.outcome(await stage.open().start(wrong, id="r"))
    assert 3 == len(told)
    assert [] == world.ran


async def test_a_map_of_nothing_is_nothing(stage: Theatre) -> None:
    """No branch, no event."""
    assert [] == await stage.outcome(await stage.open().start(mapping, "flow", 0, 1, id="r"))


async def test_a_thousand_steps_fifty_at_a_time(stage: Theatre) -> None:
    """All told, the limit kept."""
    busy[:] = [0, 0]
    handle = await stage.open().start(mapping, "step", 1000, 50, id="r")
    outcomes = await stage.outcome(handle, step=0.02)

    assert (1000, 200) == (len(outcomes), outcomes.count("ValueError"))
    assert 50 == busy[1]
