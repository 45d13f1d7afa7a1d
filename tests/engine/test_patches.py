"""``patched``: old runs go the old way, new runs the new one, each the same on every replay."""

from __future__ import annotations

from typing import Any

import pytest

import outlive
from outlive.engine.verbs import patched, pins
from outlive.errors import NotInRun
from outlive.model.events import Patched, StepDone
from tests.harness.theatre import Theatre
from tests.harness.world import note


def flow_of(body: Any) -> Any:
    """Today's code of the flow."""
    return outlive.flow(name="changing")(body)


async def before(rounds: int) -> list[str]:
    """As it was."""
    said = []
    for number in range(rounds):
        said.append(await note(f"old {number}"))
        await outlive.sleep("1m")
    return said


async def after(rounds: int) -> list[str]:
    """As it is now."""
    said = []
    for number in range(rounds):
        if patched("nicer words"):
            said.append(await note(f"new {number}"))
        else:
            said.append(await note(f"old {number}"))
        await outlive.sleep("1m")
    return said


async def test_a_new_run_goes_the_new_way(theatre: Theatre) -> None:
    """From its first line on."""
    handle = await theatre.open().start(flow_of(after), 2, id="r")
    assert ["NEW 0", "NEW 1"] == await theatre.outcome(handle, step=30)
    assert 2 == len(await theatre.events("r", Patched))


async def test_a_run_that_began_before_goes_on_in_the_new_way(theatre: Theatre) -> None:
    """What it went through stays as it was, and is not recorded as patched."""
    app = theatre.open()
    await app.start(flow_of(before), 4, id="r")
    await theatre.has("r", StepDone, 2, step=30)
    await theatre.status("r", "waiting", "running", step=0)
    await theatre.crash(app)

    handle = await theatre.open().start(flow_of(after), 4, id="r")
    assert ["OLD 0", "OLD 1", "NEW 2", "NEW 3"] == await theatre.outcome(handle, step=30)
    places = [event.place for event in await theatre.events("r", Patched)]
    assert ["0/patched:nicer words#3", "0/patched:nicer words#4"] == places


async def test_a_patch_is_the_same_wherever_the_run_is_killed(theatre: Theatre) -> None:
    """Killed again and again, it never changes its mind."""
    app = theatre.open()
    await app.start(flow_of(before), 5, id="r")
    for wanted in (1, 2, 3, 4):
        await theatre.has("r", StepDone, wanted, step=30)
        await theatre.crash(app)
        app = theatre.open()
        handle = await app.start(flow_of(after), 5, id="r")
    said = await theatre.outcome(handle, step=30)
    first_new = next(number for number, words in enumerate(said) if words.startswith("NEW"))
    assert [f"OLD {n}" for n in range(first_new)] == said[:first_new]
    assert [f"NEW {n}" for n in range(first_new, 5)] == said[first_new:]


async def test_pins_are_those_the_run_began_with(theatre: Theatre) -> None:
    """Whatever today's code would pin."""

    def asking(model: str) -> Any:
        @outlive.flow(name="asking", pins={"model": model})
        async def asking_flow() -> str:
            await outlive.sleep("1m")
            return pins()["model"]

        return asking_flow

    app = theatre.open()
    await app.start(asking("m-1"), id="r")
    await theatre.status("r", "waiting", "running", step=0)
    await theatre.crash(app)
    assert "m-1" == await theatre.outcome(await theatre.open().start(asking("m-2"), id="r"), 30)


def test_both_belong_into_a_flow() -> None:
    """Elsewhere they say so."""
    with pytest.raises(NotInRun, match="patched"):
        patched("x")
    with pytest.raises(NotInRun, match="pins"):
        pins()
