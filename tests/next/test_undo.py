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
    Claimed,
    EffectDone,
    EffectIntended,
    EffectRaised,
    KeyHeld,
    Parked,
    RunUndoing,
)
from outlive.model.events import RunFailed as RunHasFailed
from tests.next.theatre import Theatre
from tests.next.world import find, note, pay, ring, take_back, world


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
    world.done[intent.key] = "a"
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

    @outlive.effect(key="shared", check=find, undo=take_back)
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
