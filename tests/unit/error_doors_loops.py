"""Doors at which users meet the errors of loops."""

from __future__ import annotations

from outlive import errors
from outlive.loop import Loop, State, drive, resume
from tests.unit.error_doors import Place, raises


class Jumper(Loop):
    """Leaves out what comes in between."""

    keep = None

    async def on_planning(self) -> State:
        return State.COMPLETE if self.request == "well" else State.OBSERVING

    async def on_executing(self) -> State:
        return State.OBSERVING

    async def on_observing(self) -> State:
        return State.REFLECTING

    async def on_reflecting(self) -> State:
        return State.COMPLETE


class Newer(Jumper):
    """The same by name, with another schema."""

    name = "Jumper"
    version = 2


@raises(
    errors.IllegalTransition,
    r"Jumper: its handler of PLANNING returned OBSERVING, which may not follow; "
    r"legal is EXECUTING, COMPLETE, FAILED: return one of these, or add the move to `moves`",
)
async def jump(place: Place) -> None:
    await place.fail(Jumper.flow, "badly")


@raises(
    errors.IncompatibleCheckpoint,
    r"the checkpoint of loop r has version 1, this code reads 2; give an upcaster from version 1, "
    r"or use the code that wrote it",
)
async def go_on_with_other_code(place: Place) -> None:
    await drive(Jumper("well", id="r"), place.app)
    await resume(place.app, "r", Newer)
