"""What an undo is: a function, a step or an effect, with the arguments that were recorded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlive
from outlive.errors import RunFailed
from outlive.model.events import (
    Claimed,
    EffectDone,
    EffectRaised,
    KeyHeld,
    Parked,
)
from tests.engine.test_undo import failing, fails
from tests.harness.theatre import Theatre
from tests.harness.world import note, pay, ring, world


async def test_an_undo_gets_the_arguments_that_were_recorded(stage: Theatre) -> None:
    """Though the flow has changed its own copies since."""
    seen: list[Any] = []

    @outlive.effect(undo=lambda items: seen.append(list(items)))
    async def send(items: list[int]) -> int:
        items.append(99)
        return len(items)

    @outlive.flow
    async def changing() -> None:
        items = [1]
        await send(items)
        items.append(2)
        raise ValueError("no good")

    await fails(stage, await stage.open().start(changing, id="r"))
    assert [[1]] == seen


def plain_undo(name: str, key: str) -> None:
    world.ran.append(f"undo {name}")
    world.done.pop(key, None)


@outlive.step
async def step_undo(name: str, key: str) -> None:
    plain_undo(name, key)


@pytest.mark.parametrize("undo", [plain_undo, step_undo], ids=["plain", "step"])
async def test_an_undo_may_be_a_plain_function_or_a_step(stage: Theatre, undo: Any) -> None:
    """It runs in a thread, or as what it is."""

    @outlive.effect(undo=undo)
    async def send(name: str) -> str:
        world.done[outlive.key()] = name
        return name

    @outlive.flow
    async def sending() -> None:
        await send("x")
        raise ValueError("no good")

    await fails(stage, await stage.open().start(sending, id="r"))
    assert ["undo x"] == world.ran
    assert {} == world.done


async def test_an_undo_that_was_not_awaited_is_not_taken_for_done(stage: Theatre) -> None:
    """A plain function that returns a coroutine has undone nothing."""

    @outlive.effect(undo=lambda name: step_undo.plain(name, "key"))
    async def send(name: str) -> str:
        return name

    @outlive.flow
    async def sending() -> None:
        await send("x")
        raise ValueError("no good")

    await fails(stage, await stage.open().start(sending, id="r"), step=10)
    (raised,) = await stage.events("r", EffectRaised)
    assert "async def" in raised.error.message
    assert [] == world.ran


def undo_is_known(name: str, key: str) -> Any:
    world.ran.append(f"check undo {name}")
    return None if key in world.undone else outlive.NOT_HAPPENED


@outlive.effect(key="undo-{name}", check=undo_is_known, settle_after=0)
async def unsend(name: str, outcome: str) -> None:
    """An undo that is an effect: it must not be repeated, but can be asked for."""
    world.ran.append(f"undo {name}")
    assert outlive.key() == f"undo-{name}"
    assert outlive.key() not in world.undone, "undone twice"
    if not world.gates.get("before"):
        world.undone[outlive.key()] = outcome
    await world.gate("late")


@outlive.effect(undo=unsend)
async def send(name: str) -> str:
    return name.upper()


@outlive.flow
async def sending() -> None:
    await send("x")
    raise ValueError("no good")


@pytest.mark.parametrize("happened", [True, False])
async def test_an_undo_that_is_an_effect_goes_by_its_own_rules(
    theatre: Theatre, happened: bool
) -> None:
    """Its own key is claimed; its own check settles what its driver left open."""
    world.hold("late")
    if not happened:
        world.hold("before")
    app = theatre.open()
    await app.start(sending, id="r")
    await theatre.until(lambda: world.ran)
    await theatre.crash(app)
    world.gates.clear()
    handle = await theatre.open().start(sending, id="r")

    await fails(theatre, handle)
    again = [] if happened else ["undo x"]
    assert ["undo x", "check undo x", *again] == world.ran
    assert {"undo-x": "X"} == world.undone
    (held,) = await theatre.events("key/undo-x", KeyHeld)
    assert ("r", "undo:0/send#1") == (held.run_id, held.step)


async def test_an_undo_that_only_a_human_can_settle_waits_for_one(theatre: Theatre) -> None:
    """The run shows the doubt; the word ends it, and the undoing goes on."""

    @outlive.effect(settle_after=0)
    async def unknown_undo(name: str) -> None:
        world.ran.append(f"undo {name}")
        raise OSError("the line broke")

    @outlive.effect(undo=unknown_undo)
    async def risky(name: str) -> str:
        return name

    @outlive.flow
    async def risking() -> None:
        await pay("a")
        await risky("b")
        raise ValueError("no good")

    app = theatre.open()
    handle = await app.start(risking, id="r")
    await theatre.status("r", "in_doubt")
    await theatre.crash(app)
    app = theatre.open()
    handle = await app.start(risking, id="r")
    assert ["a", "undo b"] == world.ran
    await app.resolve("r", "undo:0/risky#1", "happened", b"null")

    await fails(theatre, handle)
    assert ["a", "undo b", "undo a"] == world.ran


async def test_a_flow_that_is_stuck_is_undone_too(theatre: Theatre) -> None:
    """And goes on being undone after the death of the driver that saw it stuck."""

    @outlive.flow
    async def stuck() -> None:
        await pay("a")
        await asyncio.Event().wait()

    world.hold("undo a")
    app = theatre.open()
    await app.start(stuck, id="r")
    await theatre.until(lambda: "undo a" in world.ran)
    await theatre.crash(app)
    world.bury()
    handle = await theatre.open().start(stuck, id="r")

    with pytest.raises(RunFailed, match="FlowStuck"):
        await theatre.outcome(handle)
    assert ["a", "undo a", "undo a"] == world.ran
    assert [] == [event for event in await theatre.events("r", Parked) if event.reason]


async def test_code_that_would_end_otherwise_is_a_mismatch(stage: Theatre) -> None:
    """A run that was being undone does not complete because its code was mended."""
    good = False

    @outlive.flow
    async def mended() -> str:
        await pay("a")
        if good:
            return await note("fine")
        raise ValueError("no good")

    world.hold("undo a")
    app = stage.open()
    await app.start(mended, id="r")
    await stage.until(lambda: "undo a" in world.ran)
    await stage.crash(app)
    world.bury()
    good = True
    handle = await stage.open().start(mended, id="r")

    with pytest.raises(outlive.errors.ReplayMismatch, match="RunUndoing"):
        await stage.outcome(handle)
    assert ["a", "undo a"] == world.ran


async def test_each_driver_of_an_undoing_run_shows_in_the_journal(stage: Theatre) -> None:
    """Three deaths in one phase: three claims more, and each undo once."""
    app = stage.open()
    world.hold("undo c")
    await app.start(failing, ["a", "b", "c"], id="r")
    for name, following in zip("cba", "ba-", strict=True):
        await stage.until(lambda name=name: world.ran[-1:] == [f"undo {name}"])
        await stage.crash(app)
        world.bury()
        world.hold(f"undo {following}")
        app = stage.open()
        handle = await app.start(failing, ["a", "b", "c"], id="r")

    await fails(stage, handle)
    assert 4 == len(await stage.events("r", Claimed))
    assert 3 == len([e for e in await stage.events("r", EffectDone) if "undo" in e.step])
    assert {} == world.done


async def test_an_effect_that_nobody_can_undo_stays(stage: Theatre) -> None:
    """Only what declares an undo is undone."""

    @outlive.flow
    async def mixed() -> None:
        await pay("a")
        await ring("bell")
        raise ValueError("no good")

    await fails(stage, await stage.open().start(mixed, id="r"))
    assert ["a", "bell", "undo a"] == world.ran
    assert ["bell"] == world.names()
