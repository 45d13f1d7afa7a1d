"""Chapters and patches of plain flows are those of async ones."""

from __future__ import annotations

from typing import Any

import pytest

import outlive as awaiting
from outlive import sync as outlive
from outlive.model.events import ChapterBegan, Patched
from tests.harness.theatre import EVICTING, STAYING, Theatre
from tests.harness.world import note, world


@outlive.flow(name="chaptered")
def chaptered(left: int) -> str:
    step: Any = note
    is_new = outlive.patched("new")
    step(f"{left} {is_new}")
    outlive.sleep(0.1)
    if left:
        outlive.carry(left - 1)
    return str(step("done"))


@awaiting.flow(name="chaptered")
async def chaptered_async(left: int) -> str:
    is_new = awaiting.patched("new")
    await note(f"{left} {is_new}")
    await awaiting.sleep(0.1)
    if left:
        await awaiting.carry(left - 1)
    return await note("done")


@pytest.mark.parametrize("settings", [EVICTING, STAYING], ids=["evicting", "staying"])
@pytest.mark.parametrize("flow", [chaptered, chaptered_async], ids=["plain", "async"])
async def test_a_flow_goes_on_chapter_by_chapter(settings: Any, flow: Any) -> None:
    """Each chapter begins in a new thread, with the arguments that the last one carried on."""
    world.begin()
    stage = Theatre(settings)
    handle = await stage.open().start(flow, 2, id="r")

    assert "DONE" == await stage.outcome(handle)
    assert ["2 True", "1 True", "0 True", "done"] == world.ran
    events = await stage.events("r")
    assert any(isinstance(event, ChapterBegan) for event in events)
    assert any(isinstance(event, Patched) for event in events)
    await stage.close()
