"""DBOS, as its documents tell: ``DBOS.workflow``, ``DBOS.step``, ``DBOS.launch``.

Its asynchronous form is used throughout, since each work but the first has many runs in one
process; the settings are its own. It runs on SQLite, or on PostgreSQL if the runner names one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import sqlalchemy
from dbos import DBOS

from bench.contest import (
    CALLS_PER_AGENT,
    STEPS_PER_RUN,
    Answer,
    Marks,
    Stopwatch,
    argument_of,
    delay_of,
    die,
    in_turn,
    main,
    postgres_settings,
    postgres_url,
    settings_of,
)

MARKS = Marks()
REACHED = threading.Event()
#: Whether the process was asked to prepare a store, and to die when it is prepared.
DYING = threading.Event()


@DBOS.step()
async def work(argument: str) -> str:
    """A trivial step."""
    return MARKS.body(argument)


@DBOS.step()
async def think(argument: str) -> str:
    """A pretend model call."""
    return await MARKS.think(argument)


@DBOS.step()
async def last() -> None:
    """The first new step."""
    if DYING.is_set():
        die()
    MARKS.begun["last"].append(time.perf_counter())
    REACHED.set()


@DBOS.workflow()
async def run_steps(run: str, count: int) -> int:
    """Steps, one after the other."""
    for number in range(count):
        await work(argument_of(run, number))
    return count


@DBOS.workflow()
async def agent(run: str) -> None:
    """An agent that calls its model again and again."""
    for number in range(CALLS_PER_AGENT):
        await think(argument_of(run, number))


@DBOS.workflow()
async def one(count: int) -> None:
    """A long past."""
    for number in range(count):
        await work(argument_of("past", number))
    await last()


def launch(folder: Path) -> None:
    """Configure and launch."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": postgres_url() or f"sqlite:///{folder}/dbos.db",
            "log_level": "ERROR",
        }
    )
    DBOS.launch()


def settings() -> Answer:
    """As the system database's own pool has them."""
    from dbos._dbos import _get_dbos_instance

    engine: Any = _get_dbos_instance()._sys_db.engine
    read = postgres_settings if postgres_url() else settings_of
    with engine.connect() as connection:
        return read(lambda asked: connection.execute(sqlalchemy.text(asked)).scalar())


def measured(folder: Path, operations: int, act: Callable[[], Awaitable[Any]]) -> Answer:
    """Do this once launched, and tell what it cost."""
    watch = Stopwatch()

    async def main() -> None:
        with watch.running():
            await act()

    launch(folder)
    found = settings()
    asyncio.run(main())
    DBOS.destroy()
    return {**watch.answer(operations, MARKS.gaps()), "settings": found}


async def start(flow: Any, *args: Any) -> None:
    """Start in the background (durable when that returns), and wait for the outcome."""
    await (await DBOS.start_workflow_async(flow, *args)).get_result()


def sequential(size: int, folder: Path) -> Answer:
    """One run."""
    return measured(folder, size, lambda: run_steps("0", size))


def many(size: int, folder: Path) -> Answer:
    """Many runs at once."""

    async def act() -> None:
        await asyncio.gather(*(start(run_steps, str(n), STEPS_PER_RUN) for n in range(size)))

    return measured(folder, size * STEPS_PER_RUN, act)


def starts(size: int, folder: Path) -> Answer:
    """Runs of one step."""

    async def act() -> None:
        await in_turn(size, lambda run: start(run_steps, run, 1))

    return measured(folder, size, act)


def model(size: int, folder: Path, spread: int = 1) -> Answer:
    """Agents that call a pretend model, begun one by one, or all in step."""

    async def each(number: int) -> None:
        await asyncio.sleep(delay_of(number, size) * spread)
        await start(agent, str(number))

    async def act() -> None:
        await asyncio.gather(*(each(number) for number in range(size)))

    return measured(folder, size * CALLS_PER_AGENT, act)


def prepare(size: int, folder: Path) -> Answer:
    """Record a long past, and die."""
    DYING.set()
    launch(folder)
    asyncio.run(one(size))
    return {}


def resume(size: int, folder: Path) -> Answer:
    """From launching, which recovers what is pending, to the body of the first new step."""
    watch = Stopwatch()
    began = time.perf_counter()
    with watch.running():
        launch(folder)
        REACHED.wait(600)
    reached = MARKS.begun["last"][0] - began
    found = settings()
    time.sleep(0.2)
    DBOS.destroy()
    told = {"p50": reached, "repeated": MARKS.count() - 1, "settings": found}
    return {**watch.answer(size, []), **told}


if __name__ == "__main__":
    main(
        {
            "sequential": sequential,
            "many": many,
            "starts": starts,
            "model": model,
            "model-in-step": lambda size, folder: model(size, folder, 0),
            "prepare-one": prepare,
            "resume-one": resume,
        },
        f"dbos {version('dbos')}",
    )
