"""Flows that the tests of children are made of."""

from __future__ import annotations

import outlive
from outlive.engine import verbs as fanout
from outlive.errors import RunIdTaken
from outlive.model.events import ChildIntended
from tests.harness.theatre import Theatre
from tests.harness.world import note, pay


@outlive.flow
async def child(name: str) -> str:
    return f"child {await note(name)}"


@outlive.flow
async def sleepy(seconds: float) -> str:
    await outlive.sleep(seconds)
    return await pay(f"slept {seconds:g}")


@outlive.flow
async def failing_child(name: str) -> str:
    raise KeyError(name)


@outlive.flow
async def calling(name: str) -> str:
    return f"parent of {await fanout.call(child, name)}"


@outlive.flow
async def patient() -> str:
    return str(await fanout.call(sleepy, 3600))


@outlive.flow
async def naming(name: str, run_id: str) -> str:
    try:
        return str(await fanout.call(child, name, id=run_id))
    except RunIdTaken as error:
        return str(error)


async def child_of(theatre: Theatre, parent: str = "r") -> str:
    """Wait for the start of a child; its id."""
    intended: ChildIntended = await theatre.has(parent, ChildIntended)
    await theatre.until(lambda: theatre.read(intended.child_id))
    return intended.child_id
