"""What an app's verbs refuse: to be called in a flow, and what no run could read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

import outlive
from outlive import loop
from outlive.app.app import App
from outlive.checkpoints import DurableRunner, SnapshotStore
from outlive.errors import RunFailed, UsageError
from outlive.stores.memory import MemoryStore


@outlive.step
async def double(number: int) -> int:
    return number * 2


VERBS: dict[str, Callable[[App, outlive.Handle[Any]], Awaitable[Any]]] = {
    "start": lambda app, handle: app.start(alone),
    "submit": lambda app, handle: app.submit(alone),
    "ensure": lambda app, handle: app.ensure(alone, id="e"),
    "find": lambda app, handle: app.find(),
    "retain": lambda app, handle: app.retain(outlive.Retention(completed=0)),
    "fork": lambda app, handle: app.fork("other", at=1),
    "resume": lambda app, handle: app.resume("other", [alone]),
    "outcome": lambda app, handle: handle.outcome(),
    "status": lambda app, handle: handle.status(),
    "signal": lambda app, handle: handle.signal("go"),
    "checkpoint": lambda app, handle: DurableRunner(SnapshotStore(app)).checkpoint("c", "s", {}),
    "loop": lambda app, handle: loop.resume(app, loop=Idle),
}


@outlive.flow(name="places_alone")
async def alone() -> int:
    return await double(2)


class Idle(loop.Loop):
    """One that is never driven."""

    def on_planning(self) -> loop.State:
        return loop.State.COMPLETE

    on_executing = on_observing = on_reflecting = on_planning


@pytest.mark.parametrize("verb", VERBS)
async def test_what_touches_the_store_is_refused_in_a_flow(verb: str) -> None:
    """With what to do instead; the app and its other runs go on."""
    async with App(MemoryStore()) as app:
        other = await app.start(alone, id="other")

        @outlive.flow
        async def flow() -> str:
            try:
                await VERBS[verb](app, other)
            except UsageError as error:
                return str(error)
            return "not refused"

        with pytest.raises(RunFailed, match="inside a flow; do it in a step"):
            await (await app.start(flow)).outcome()
        assert 4 == await other.outcome() == await (await app.start(alone)).outcome()


@pytest.mark.parametrize("by", [5, None, "a\nb", "\ud800"])
async def test_who_did_it_is_a_text(by: Any) -> None:
    """Refused before anything is sent: the run would never get past it."""
    async with App(MemoryStore()) as app:
        handle = await app.start(alone, id="r")
        for say in (handle.cancel, handle.answer):
            with pytest.raises(UsageError, match="`by` says who did it"):
                await say(*([1] if say == handle.answer else []), by=by)
        assert 4 == await handle.outcome()


async def test_a_sleep_until_an_instant_of_no_zone_is_refused() -> None:
    """The clock of another machine would make another instant of it."""

    @outlive.flow
    async def sleepy() -> str:
        try:
            await outlive.sleep(datetime(2030, 1, 1))  # noqa: DTZ001
        except UsageError as error:
            return str(error)
        return "slept"

    async with App(MemoryStore()) as app:
        told = await (await app.start(sleepy))

    assert "sleep until 2030-01-01 00:00:00 has no time zone; add one" == told
