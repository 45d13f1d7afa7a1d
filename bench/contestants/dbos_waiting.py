"""DBOS on SQLite where runs wait: sleepers, recovery, messages.

A workflow that waits stays in the memory of the process that runs it; a process that is started
again takes up its own pending workflows when it launches. There is no worker that would take over
from another one on SQLite.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dbos import DBOS

from bench.contest import (
    SETTLING_SECONDS,
    SIGNALS_PER_RUN,
    Answer,
    Stopwatch,
    argument_of,
    die,
    main,
    resident_bytes,
    spread_of,
)
from bench.contestants.dbos import launch, settings

YEAR_SECONDS = 365 * 86400
#: How long a workflow waits for a message.
PATIENCE_SECONDS = 600

#: Bodies that began here: run -> when.
BEGUN: dict[str, float] = {}
#: Whether the process was asked to prepare a store, and to die when it is prepared.
DYING = threading.Event()


@DBOS.step()
async def hold(run: str) -> str:
    """Never ends in a process that is to die; a trivial step in any other."""
    BEGUN[run] = time.perf_counter()
    if DYING.is_set():
        await asyncio.sleep(3600)
    return argument_of("held", 1)


@DBOS.workflow()
async def held(run: str) -> str:
    """One step, in which its process dies."""
    return await hold(run)


@DBOS.workflow()
async def sleeper(run: str) -> None:
    """Sleeps for a year."""
    BEGUN[run] = time.perf_counter()
    await DBOS.sleep_async(YEAR_SECONDS)


@DBOS.workflow()
async def listener(count: int) -> int:
    """Takes messages, one after the other."""
    for _ in range(count):
        await DBOS.recv_async("news", PATIENCE_SECONDS)
    return count


@DBOS.workflow()
async def asker(run: str) -> str:
    """Waits for a human's answer."""
    answer = await DBOS.recv_async("answer", PATIENCE_SECONDS)
    return await hold(run + answer)


async def start_all(flow: Any, size: int) -> None:
    """Start this many, and wait until each has begun."""
    await asyncio.gather(*(DBOS.start_workflow_async(flow, str(n)) for n in range(size)))
    while len(BEGUN) < size:
        await asyncio.sleep(0.01)


def prepare(flow: Any) -> Callable[[int, Path], Answer]:
    """Let this many begin, and die."""

    def work(size: int, folder: Path) -> Answer:
        DYING.set()
        launch(folder)

        async def act() -> None:
            await start_all(flow, size)
            await asyncio.sleep(2 * SETTLING_SECONDS)
            die()

        asyncio.run(act())
        return {}

    return work


def launched(folder: Path, act: Callable[[], Awaitable[Answer]]) -> Answer:
    """Do this once launched; what launching takes is in it."""
    watch = Stopwatch()

    async def main() -> Answer:
        return await act()

    with watch.running():
        launch(folder)
        told = asyncio.run(main())
    found = settings()
    DBOS.destroy()
    return {"seconds": watch.seconds, "cpu": watch.cpu, "settings": found, **told}


def sleepers(size: int, folder: Path) -> Answer:
    """Start among them."""
    began, before = time.perf_counter(), resident_bytes()

    async def act() -> Answer:
        await (await DBOS.start_workflow_async(held, "first")).get_result()
        ready = BEGUN["first"] - began
        while len(BEGUN) < size + 1:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        return {
            "operations": size,
            "startup": ready,
            "resident": resident_bytes(),
            "resident_before": before,
        }

    return launched(folder, act)


def interrupted(size: int, folder: Path) -> Answer:
    """From launching to the end of the last of the runs that were interrupted."""
    began = time.perf_counter()

    def over() -> bool:
        done = DBOS.list_workflows(status="SUCCESS", load_input=False, load_output=False)
        return len(done) == size

    async def act() -> Answer:
        while len(BEGUN) < size or not await asyncio.to_thread(over):
            await asyncio.sleep(0.01)
        first = min(BEGUN.values()) - began
        return {"operations": size, "p50": time.perf_counter() - began, "first": first}

    return launched(folder, act)


def signals(size: int, folder: Path) -> Answer:
    """Messages to this many runs: from the first send until all runs have ended."""
    watch = Stopwatch()

    async def act() -> Answer:
        runs = [await DBOS.start_workflow_async(listener, SIGNALS_PER_RUN) for _ in range(size)]
        await asyncio.sleep(SETTLING_SECONDS)

        async def each(run: Any) -> None:
            for number in range(SIGNALS_PER_RUN):
                said = argument_of("news", number)
                await DBOS.send_async(run.workflow_id, said, "news", idempotency_key=str(number))
            await run.get_result()

        with watch.running():
            await asyncio.gather(*map(each, runs))
        return watch.answer(size * SIGNALS_PER_RUN, [])

    return launched(folder, act)


def answers(size: int, folder: Path) -> Answer:
    """From sending the answer to the body of the next step."""
    waits: list[float] = []

    async def act() -> Answer:
        runs = [await DBOS.start_workflow_async(asker, f"{number} ") for number in range(size)]
        await asyncio.sleep(SETTLING_SECONDS)
        for number, run in enumerate(runs):
            posted = time.perf_counter()
            await DBOS.send_async(run.workflow_id, "this", "answer")
            await run.get_result()
            waits.append(BEGUN[f"{number} this"] - posted)
        return {"operations": size, **spread_of(waits)}

    return launched(folder, act)


if __name__ == "__main__":
    main(
        {
            "prepare-sleepers": prepare(sleeper),
            "resume-sleepers": sleepers,
            "prepare-interrupted": prepare(held),
            "resume-interrupted": interrupted,
            "signals": signals,
            "answers": answers,
        },
        f"dbos {version('dbos')}",
    )
