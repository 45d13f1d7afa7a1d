"""Outlive with its defaults, each step a plain ``step`` or an ``effect`` (the last word says)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import outlive
import outlive.stores.postgres.store  # now, so that no clock has it in
import outlive.stores.sqlite.store
from bench.contest import (
    BRANCHES,
    CALLS_PER_AGENT,
    SETTLING_SECONDS,
    STEPS_PER_RUN,
    Answer,
    Marks,
    Stopwatch,
    argument_of,
    delay_of,
    die,
    in_turn,
    kind,
    main,
    postgres_settings,
    postgres_url,
    settings_of,
)
from outlive.app.app import App

MARKS = Marks()
DECLARE: Callable[..., Any] = outlive.effect if kind("step") == "effect" else outlive.step


@DECLARE
async def work(argument: str) -> str:
    """A trivial step."""
    return MARKS.body(argument)


@DECLARE
async def think(argument: str) -> str:
    """A pretend model call."""
    return await MARKS.think(argument)


@outlive.step
async def last(dying: bool) -> None:
    """The first new step: the process dies in it, and the next one is measured up to it."""
    if DYING:
        await asyncio.sleep(SETTLING_SECONDS)
        die()
    MARKS.begun["last"].append(time.perf_counter())


#: Whether the process was asked to prepare a store, and to die when it is prepared.
DYING = False


@outlive.flow
async def run_steps(run: str, count: int) -> int:
    """Steps, one after the other."""
    for number in range(count):
        await work(argument_of(run, number))
    return count


@outlive.flow
async def agent(run: str) -> None:
    """An agent that calls its model again and again."""
    for number in range(CALLS_PER_AGENT):
        await think(argument_of(run, number))


@outlive.flow
async def one(count: int) -> None:
    """A long past in one branch."""
    for number in range(count):
        await work(argument_of("past", number))
    await last(True)


@outlive.flow
async def branches(count: int) -> None:
    """A long past in a hundred branches."""

    async def branch() -> None:
        for number in range(count // BRANCHES):
            await work(argument_of("past", number))

    await asyncio.gather(*(branch() for _ in range(BRANCHES)))
    await last(True)


@outlive.flow
async def carried(count: int, done: bool = False) -> None:
    """A long past that ended in a new chapter."""
    if not done:
        for number in range(count):
            await work(argument_of("past", number))
        await outlive.carry(count, True)
    await last(True)


PASTS: dict[str, Any] = {"one": one, "branches": branches, "carried": carried}


def url_of(folder: Path) -> str:
    """The store's address."""
    return postgres_url() or f"sqlite:///{folder}/outlive.db"


def settings(app: App) -> Answer:
    """As the store's own connection has them."""
    store: Any = app.store
    if postgres_url():
        return postgres_settings(lambda asked: store._other(asked)[0][0])
    with store._connections.reading() as database:
        return settings_of(lambda pragma: database.execute(pragma).fetchone()[0])


def commit_trips(app: App) -> Answer:
    """How often the server was asked to commit, by the pool's own count."""
    store: Any = app.store
    return {"commit_trips": store.pool.round_trips["commit"]} if postgres_url() else {}


def measured(folder: Path, operations: int, act: Callable[[App], Awaitable[Any]]) -> Answer:
    """Do this with an app that is open, and tell what it cost."""
    watch = Stopwatch()

    async def main() -> Answer:
        async with outlive.open(url_of(folder)) as app:
            with watch.running():
                await act(app)
            flushes = app._writer.keeper.counters.flushes
            return {"commits": flushes, **commit_trips(app), "settings": settings(app)}

    told = asyncio.run(main())
    return {**watch.answer(operations, MARKS.gaps()), **told}


def sequential(size: int, folder: Path) -> Answer:
    """One run."""

    async def act(app: App) -> None:
        await (await app.start(run_steps, "0", size, id="0")).outcome()

    return measured(folder, size, act)


def many(size: int, folder: Path) -> Answer:
    """Many runs at once."""

    async def each(app: App, run: str) -> None:
        await (await app.start(run_steps, run, STEPS_PER_RUN, id=run)).outcome()

    async def act(app: App) -> None:
        await asyncio.gather(*(each(app, str(number)) for number in range(size)))

    return measured(folder, size * STEPS_PER_RUN, act)


def starts(size: int, folder: Path) -> Answer:
    """Runs of one step; ``start`` returns when the run is durable."""

    async def act(app: App) -> None:
        async def each(run: str) -> None:
            await (await app.start(run_steps, run, 1, id=run)).outcome()

        await in_turn(size, each)

    return measured(folder, size, act)


def model(size: int, folder: Path, spread: int = 1) -> Answer:
    """Agents that call a pretend model, begun one by one, or all in step."""

    async def each(app: App, number: int) -> None:
        await asyncio.sleep(delay_of(number, size) * spread)
        await (await app.start(agent, str(number), id=str(number))).outcome()

    async def act(app: App) -> None:
        await asyncio.gather(*(each(app, number) for number in range(size)))

    return measured(folder, size * CALLS_PER_AGENT, act)


def prepare(past: str) -> Callable[[int, Path], Answer]:
    """Record a long past, and die."""

    def work(size: int, folder: Path) -> Answer:
        global DYING
        DYING = True

        async def main() -> None:
            async with outlive.open(url_of(folder)) as app:
                await (await app.start(PASTS[past], size, id="long")).outcome()

        asyncio.run(main())
        return {}

    return work


def resume(past: str) -> Callable[[int, Path], Answer]:
    """From opening the store to the body of the first new step."""

    def work(size: int, folder: Path) -> Answer:
        watch = Stopwatch()
        asked = 0.0

        async def main() -> Answer:
            nonlocal asked
            opened = time.perf_counter()
            async with outlive.open(url_of(folder)) as app:
                found = settings(app)
                asked = time.perf_counter()
                with watch.running():
                    await (await app.start(PASTS[past], size, id="long")).outcome()
            reached = MARKS.begun["last"][0]
            return {
                "p50": reached - opened,
                "p50_asked": reached - asked,
                "repeated": MARKS.count() - 1,
                "settings": found,
            }

        told = asyncio.run(main())
        return {**watch.answer(size, []), **told}

    return work


if __name__ == "__main__":
    main(
        {
            "sequential": sequential,
            "many": many,
            "starts": starts,
            "model": model,
            "model-in-step": lambda size, folder: model(size, folder, 0),
            **{f"prepare-{past}": prepare(past) for past in PASTS},
            **{f"resume-{past}": resume(past) for past in PASTS},
        },
        f"outlive {version('outlive')}",
    )
