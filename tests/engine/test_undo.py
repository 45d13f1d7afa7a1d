"""Undoing: what happened, last first, each undo an effect of its own, durable and retried."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import outlive
from outlive.errors import RunFailed
from outlive.model.events import (
    AttemptFailed,
    EffectDone,
    EffectIntended,
    EffectRaised,
    RunUndoing,
    recorded_key,
)
from outlive.model.events import RunFailed as RunHasFailed
from tests.harness.theatre import Theatre
from tests.harness.world import pay, take_back, world


@outlive.flow
async def failing(names: list[str]) -> None:
    for name in names:
        await pay(name)
    raise ValueError("no good")


@outlive.flow
async def parallel(names: list[str]) -> None:
    await asyncio.gather(*(pay(name) for name in names))
    raise ValueError("no good")


async def fails(theatre: Theatre, handle: outlive.Handle, step: float = 0.05) -> None:
    with pytest.raises(RunFailed, match="no good"):
        await theatre.outcome(handle, step)


async def test_what_happened_is_undone_last_first(theatre: Theatre) -> None:
    """With the arguments, the key and the outcome of each; then the run has failed."""
    handle = await theatre.open().start(failing, ["a", "b", "c"], id="r")

    await fails(theatre, handle)
    assert ["a", "b", "c", "undo c", "undo b", "undo a"] == world.ran
    assert {} == world.done
    undoing = await theatre.events("r", RunUndoing)
    assert ["failed"] == [event.status for event in undoing]
    (failed,) = await theatre.events("r", RunHasFailed)
    assert undoing[0].error == failed.error


async def test_effects_of_branches_are_undone_in_the_reverse_of_their_ends(
    theatre: Theatre,
) -> None:
    """Not of their beginnings."""
    gates = {name: world.hold(name) for name in "abc"}
    handle = await theatre.open().start(parallel, ["a", "b", "c"], id="r")
    for done, name in enumerate("bca", 1):
        await theatre.until(lambda name=name: name in world.ran)
        gates[name].set()
        await theatre.has("r", EffectDone, done)

    await fails(theatre, handle)
    assert ["undo a", "undo c", "undo b"] == world.ran[3:]


async def test_a_run_that_ends_well_is_not_undone(theatre: Theatre) -> None:
    """Nor one that caught its errors."""

    @outlive.flow
    async def fine() -> str:
        await pay("a")
        try:
            raise ValueError("no good")
        except ValueError:
            return "fine"

    assert "fine" == await theatre.outcome(await theatre.open().start(fine, id="r"))
    assert ["a"] == world.ran
    assert [] == await theatre.events("r", RunUndoing)


async def test_an_undo_that_fails_is_tried_again(theatre: Theatre) -> None:
    """With a growing delay, through which the run may leave memory and change its driver."""
    world.breaks_before["undo a"] = [OSError("away"), OSError("away"), OSError("away")]
    app = theatre.open()
    await app.start(failing, ["a", "b"], id="r")
    await theatre.has("r", AttemptFailed, 2, step=0.2)
    assert "undoing" == (await theatre.fold("r")).shown_status
    await theatre.crash(app)
    handle = await theatre.open().start(failing, ["a", "b"], id="r")

    await fails(theatre, handle, step=0.5)
    assert ["a", "b", "undo b"] == world.ran[:3]
    assert ["undo a"] * 4 == world.ran[3:]
    assert {} == world.done


async def test_an_undo_can_be_an_object_that_is_awaited(theatre: Theatre) -> None:
    """It counts how it is called, as with steps."""

    class TakesBack:
        async def __call__(self, name: str) -> None:
            world.ran.append(f"undo {name}")

    @outlive.effect(undo=TakesBack())
    async def buy(name: str) -> None:
        world.ran.append(name)

    @outlive.flow
    async def buying() -> None:
        await buy("a")
        raise ValueError("no good")

    await fails(theatre, await theatre.open().start(buying, id="r"))
    assert ["a", "undo a"] == world.ran


async def test_a_run_that_undoes_shows_it(theatre: Theatre) -> None:
    """Driven, between two attempts, and while another driver takes it over."""
    world.hold("undo a")
    app = theatre.open()
    handle = await app.start(failing, ["a"], id="r")
    await theatre.until(lambda: "undo a" in world.ran)
    assert "undoing" == await handle.status()
    await theatre.crash(app)
    world.bury()
    world.breaks_before["undo a"] = [OSError("away")]
    handle = await theatre.open().start(failing, ["a"], id="r")
    await theatre.has("r", AttemptFailed, 2, step=0)
    assert "undoing" == await handle.status()
    assert "undoing" == (await theatre.fold("r")).shown_status

    await fails(theatre, handle, step=0.5)


async def test_an_undo_that_fails_for_good_does_not_keep_the_others(theatre: Theatre) -> None:
    """Its end is in the journal; the rest is undone, and the run ends."""
    world.breaks_before["undo b"] = [OSError("away") for _ in range(20)]
    handle = await theatre.open().start(failing, ["a", "b"], id="r")

    await fails(theatre, handle, step=10)
    assert ["b"] == world.names()
    assert ["undo b"] * 8 == world.ran[2:10]
    (raised,) = await theatre.events("r", EffectRaised)
    assert ("undo:0/pay#2", None) == (raised.step, raised.happened)


async def test_an_undo_cut_off_by_the_death_of_its_driver_is_done_again(theatre: Theatre) -> None:
    """A plain function is taken for harmless to repeat."""
    world.hold("undo a")
    app = theatre.open()
    await app.start(failing, ["a", "b"], id="r")
    await theatre.until(lambda: "undo a" in world.ran)
    await theatre.crash(app)
    world.bury()
    handle = await theatre.open().start(failing, ["a", "b"], id="r")

    await fails(theatre, handle)
    assert ["undo b", "undo a", "undo a"] == world.ran[2:]
    assert 1 == len(await theatre.events("r", RunUndoing))


@pytest.mark.parametrize("how", ["check", "human"])
async def test_an_effect_found_to_have_happened_is_undone(theatre: Theatre, how: str) -> None:
    """Its driver died; the check, or a human, said that it happened."""

    async def unring(name: str, key: str, outcome: str) -> None:
        await take_back(name, key, outcome)

    @outlive.effect(undo=unring, settle_after=0)
    async def knock(name: str) -> str:
        world.ran.append(name)
        await world.gate(name)
        return name

    @outlive.flow
    async def knocking() -> None:
        await (pay("a") if how == "check" else knock("a"))
        raise ValueError("no good")

    world.hold("a")
    app = theatre.open()
    await app.start(knocking, id="r")
    await theatre.until(lambda: world.ran)
    await theatre.crash(app)
    (intent,) = await theatre.events("r", EffectIntended)
    world.done[recorded_key("r", intent)] = "a"
    app = theatre.open()
    handle = await app.start(knocking, id="r")
    if how == "human":
        await theatre.status("r", "in_doubt")
        await app.resolve("r", intent.step, "happened", b'"a"')

    await fails(theatre, handle)
    assert ["a", "undo a"] == world.ran
    assert how == (await theatre.events("r", EffectDone))[0].by


async def test_an_effect_that_did_not_happen_is_not_undone(theatre: Theatre) -> None:
    """Nor is one of which the flow was told that nobody knows."""

    @outlive.effect(undo=take_back, doubt="fail", settle_after=0)
    async def gamble(name: str) -> str:
        raise OSError("lost")

    @outlive.effect(undo=take_back, not_happened=(ConnectionError,))
    async def refused(name: str) -> str:
        raise ConnectionError("refused")

    @outlive.flow
    async def unlucky() -> None:
        for effect in (gamble, refused):
            with suppress(outlive.errors.InDoubt, OSError):
                await effect("x")
        raise ValueError("no good")

    await fails(theatre, await theatre.open().start(unlucky, id="r"))
    assert [] == world.ran
    assert [None, False] == [event.happened for event in await theatre.events("r", EffectRaised)]


async def test_an_outcome_that_could_not_be_recorded_is_undone_all_the_same(
    stage: Theatre,
) -> None:
    """It happened; only its outcome is not known."""
    seen: list[Any] = []

    async def undo(name: str, outcome: Any) -> None:
        seen.append((name, outcome))

    @outlive.effect(undo=undo)
    async def odd(name: str) -> Any:
        return object()

    @outlive.flow
    async def odd_flow() -> None:
        await odd("x")

    with pytest.raises(RunFailed, match="ValueRefused"):
        await stage.outcome(await stage.open().start(odd_flow, id="r"))
    assert [("x", None)] == seen


async def test_what_another_run_did_under_the_same_key_is_not_undone(theatre: Theatre) -> None:
    """It took that run's outcome; it is that run's to undo."""

    @outlive.effect(key="shared", check=world.find, undo=take_back)
    async def shared(name: str) -> str:
        world.ran.append(name)
        world.done[outlive.key()] = name
        return name

    @outlive.flow
    async def first() -> str:
        return await shared("x")

    @outlive.flow
    async def second() -> None:
        await shared("x")
        raise ValueError("no good")

    app = theatre.open()
    assert "x" == await theatre.outcome(await app.start(first, id="one"))
    await fails(theatre, await app.start(second, id="two"))

    assert ["x"] == world.ran
    assert {"shared": "x"} == world.done
