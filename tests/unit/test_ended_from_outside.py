"""Bodies that are ended from outside, as by a loop that ends: the run goes on, as after a kill."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path

import outlive
from outlive.app.app import App
from outlive.model.events import EffectDoubted, RunFailed, StepRaised

#: What bodies began, and whether they wait for ever.
BEGUN: list[str] = []
WAITS: dict[str, bool] = {"": False}
SECONDS = 10.0


async def body(name: str) -> str:
    BEGUN.append(name)
    if WAITS[""]:
        await asyncio.Event().wait()
    return name


@outlive.step
async def look(name: str) -> str:
    return await body(name)


@outlive.step(retry=outlive.Retry(attempts=3, delay="1ms"))
async def look_again(name: str) -> str:
    return await body(name)


@outlive.effect(check=lambda name: name)
async def pay(name: str) -> str:
    return await body(name)


@outlive.flow
async def steps(name: str) -> list[str]:
    return [await look(name), await look_again(f"{name} again")]


@outlive.flow
async def effects(name: str) -> str:
    return await pay(name)


FLOWS = (steps, effects)


def url_of(path: Path) -> str:
    return f"sqlite:///{path / 'runs.db'}"


async def begin(app: App) -> None:
    """Runs whose bodies are under way."""
    BEGUN.clear()
    WAITS[""] = True
    for flow in FLOWS:
        await app.start(flow, flow.name, id=flow.name)
    async with asyncio.timeout(SECONDS):
        while len(BEGUN) < len(FLOWS):
            await asyncio.sleep(0.001)
    WAITS[""] = False


async def check(app: App) -> None:
    """They end well, and nothing in their journals says otherwise."""
    handles = [await app.start(flow, flow.name, id=flow.name) for flow in FLOWS]
    async with asyncio.timeout(SECONDS):
        outcomes = [await handle.outcome() for handle in handles]
    events = [event for handle in handles for event in await handle.read()]
    assert [["steps", "steps again"], "effects"] == [*outcomes]
    assert not [event for event in events if isinstance(event, (StepRaised, RunFailed))]
    assert 1 == sum(isinstance(event, EffectDoubted) for event in events)


def test_a_loop_that_ends_is_no_failure_of_what_it_ran(tmp_path: Path) -> None:
    """A script that is over, or Ctrl-C: ``asyncio.run`` cancels whatever is left."""

    async def first() -> None:
        await begin(outlive.open(url_of(tmp_path)))

    async def second() -> None:
        async with outlive.open(url_of(tmp_path)) as app:
            await check(app)

    asyncio.run(first())
    asyncio.run(second())


async def test_who_cancels_all_tasks_ends_no_run(tmp_path: Path) -> None:
    """The app goes on, and begins the bodies again."""
    async with outlive.open(url_of(tmp_path)) as app:
        await begin(app)
        for task in asyncio.all_tasks():
            work = task.get_coro()
            if isinstance(work, Coroutine) and work.__name__ == "_attempt":
                task.cancel()
        await check(app)


@outlive.step
async def gives_up() -> str:
    raise asyncio.CancelledError


@outlive.flow
async def gives_up_at_once() -> str:
    try:
        return await gives_up()
    except outlive.errors.StepFailed as failed:
        return failed.type_name


def test_a_body_may_end_itself(tmp_path: Path) -> None:
    assert "CancelledError" == outlive.run(gives_up_at_once, store=url_of(tmp_path))
