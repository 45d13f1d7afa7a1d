"""Outlive, what no peer does on SQLite alone: sleepers, takeover, recovery, signals, answers.

Settings are the defaults. Where two processes are needed, this one starts the other.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import outlive
import outlive.stores.sqlite.store  # now, so that no clock has it in
from bench.contest import (
    SETTLING_SECONDS,
    SIGNALS_PER_RUN,
    Answer,
    Stopwatch,
    Work,
    argument_of,
    die,
    main,
    resident_bytes,
    spread_of,
)
from bench.contestants.ours import settings, url_of

#: Of all sleepers, these are due at one instant.
DUE = 1000
#: How long after the last of them went to sleep that instant is.
DUE_AFTER_SECONDS = 12.0
#: Runs that are recovered at once.
AT_ONCE = 1000

#: Of the store that the work was done on, read back from it.
SETTINGS: Answer = {}
#: Bodies that began here: run -> when.
BEGUN: dict[str, float] = {}
#: What a process that is to die has begun so far, and how much it is to begin.
VICTIM = {"begun": 0, "of": 0}


@outlive.flow
async def sleeper(until: str) -> str:
    """Sleeps up to an instant."""
    await outlive.sleep(datetime.fromisoformat(until))
    return until


@outlive.step
async def hold(run: str) -> str:
    """Never ends in a process that is to die; a trivial step in any other."""
    BEGUN[run] = time.perf_counter()
    if VICTIM["of"]:
        VICTIM["begun"] += 1
        if VICTIM["begun"] == VICTIM["of"]:
            print("held", flush=True)
        await asyncio.sleep(3600)
    return argument_of("held", 1)


@outlive.flow
async def held(run: str) -> str:
    """One step, in which its process dies."""
    return await hold(run)


@outlive.flow
async def listener(count: int) -> int:
    """Takes signals, one after the other."""
    for _ in range(count):
        await outlive.wait_signal("news", type=str)
    return count


@outlive.flow
async def asker(run: str) -> str:
    """Asks a human."""
    answer = await outlive.ask("Which one?", type=str)
    return await hold(run + answer)


FLOWS: list[Any] = [sleeper, held, listener, asker]


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[outlive.App]:
    """Outlive on the folder's store; its settings are read when the work is done."""
    async with outlive.open(url_of(folder)) as app:
        yield app
        SETTINGS.update(settings(app))


def with_settings(work: Work) -> Work:
    """The same, telling what the store's settings were."""
    return lambda size, folder: {**work(size, folder), "settings": dict(SETTINGS)}


async def in_batches(count: int, each: Callable[[int], Awaitable[Any]]) -> None:
    """Do it this many times, a thousand at once."""
    for first in range(0, count, AT_ONCE):
        await asyncio.gather(*(each(n) for n in range(first, min(first + AT_ONCE, count))))


async def until(true: Callable[[], Awaitable[bool]], pause: float = 0.01) -> None:
    """Ask again and again."""
    while not await true():
        await asyncio.sleep(pause)


async def count_of(app: outlive.App, status: str, flow: str) -> int:
    """How many runs of a flow stand so."""
    count, after = 0, None
    while True:
        page = await app.find(status=status, flow=flow, limit=1000, after=after)
        count, after = count + len(page.items), page.next
        if after is None:
            return count


# sleepers


def far_away() -> str:
    """A year from now."""
    return datetime.fromtimestamp(time.time() + 365 * 86400, UTC).isoformat()


def prepare_sleepers(size: int, folder: Path) -> Answer:
    """Let them all fall asleep, those that are due soon as the last, and die."""
    far = far_away()

    async def main() -> None:
        async with opened(folder) as app:

            async def far_one(number: int) -> None:
                await app.start(sleeper, far, id=f"far-{number}")

            async def all_asleep() -> bool:
                return await count_of(app, "waiting", sleeper.name) == size

            await in_batches(size, far_one)
            await until(all_asleep, 0.5)
            await asyncio.sleep(SETTLING_SECONDS)
            die()

    asyncio.run(main())
    return {}


def sleepers(size: int, folder: Path) -> Answer:
    """Start a worker among them; then let a thousand more be due at one instant."""
    watch = Stopwatch()

    async def main() -> Answer:
        began = time.perf_counter()
        before = resident_bytes()
        async with opened(folder) as app, app.worker(FLOWS):
            await (await app.submit(held, "first", id=f"first-{time.time_ns()}")).outcome()
            ready = BEGUN["first"] - began
            await asyncio.sleep(1.0)
            resident = resident_bytes()
            told = await wake_due(app)
            return {
                "startup": ready,
                "resident": resident,
                "resident_before": before,
                "resident_after": resident_bytes(),
                **told,
            }

    with watch.running():
        told = asyncio.run(main())
    return {**watch.answer(size, []), **told}


async def wake_due(app: outlive.App) -> Answer:
    """A thousand runs that are due at one instant: how long until all have ended."""
    instant = time.time() + DUE_AFTER_SECONDS
    due = datetime.fromtimestamp(instant, UTC).isoformat()
    await asyncio.gather(*(app.submit(sleeper, due, id=f"due-{n}") for n in range(DUE)))

    async def over() -> bool:
        return await count_of(app, "completed", sleeper.name) == DUE

    late = time.time() > instant
    await asyncio.sleep(instant - time.time())
    cpu = time.process_time()
    await until(over, 0.05)
    return {
        "due_seconds": time.time() - instant,
        "due_cpu": time.process_time() - cpu,
        "due": DUE,
        "due_late": late,
    }


# the death of others


def victim(size: int, folder: Path) -> Answer:
    """Hold this many runs until killed."""
    VICTIM["of"] = size
    prefix = os.environ.get("BENCH_PREFIX", "run")

    async def main() -> None:
        async with opened(folder) as app:
            await in_batches(
                size, lambda number: app.start(held, f"{prefix}-{number}", id=f"{prefix}-{number}")
            )
            await asyncio.sleep(3600)

    asyncio.run(main())
    return {}


def start_victim(size: int, folder: Path, prefix: str) -> subprocess.Popen[str]:
    """A process that holds this many runs, once this returns."""
    command = [sys.executable, "-m", "bench.contestants.ours_waiting", "victim"]
    process = subprocess.Popen(
        [*command, str(size), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "BENCH_PREFIX": prefix},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def prepare_interrupted(size: int, folder: Path) -> Answer:
    """Runs whose process was killed in their midst; the one that asked dies, too."""
    kill(start_victim(size, folder, "run"))
    die()
    return {}


def kill(process: subprocess.Popen[str]) -> None:
    """As it comes to processes."""
    process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def takeover(size: int, folder: Path) -> Answer:
    """From the kill of one worker to the body of its run's step in another, again and again."""
    waits: list[float] = []
    watch = Stopwatch()

    async def main() -> None:
        async with opened(folder) as app, app.worker(FLOWS):
            for number in range(size):
                prefix = f"round{number}"
                process = await asyncio.to_thread(start_victim, 1, folder, prefix)
                await asyncio.sleep(SETTLING_SECONDS)
                killed = time.perf_counter()
                kill(process)
                while f"{prefix}-0" not in BEGUN:
                    await asyncio.sleep(0.001)
                waits.append(BEGUN[f"{prefix}-0"] - killed)

    with watch.running():
        asyncio.run(main())
    return {**watch.answer(size, []), **spread_of(waits)}


def interrupted(size: int, folder: Path) -> Answer:
    """From opening the store to the end of the last of the runs that were interrupted."""
    watch = Stopwatch()

    async def main() -> Answer:
        began = time.perf_counter()
        async with opened(folder) as app, app.worker(FLOWS, concurrency=AT_ONCE):

            async def over() -> bool:
                return len(BEGUN) == size and await count_of(app, "completed", held.name) == size

            await until(over)
            first = min(BEGUN.values()) - began
            return {"p50": time.perf_counter() - began, "first": first}

    with watch.running():
        told = asyncio.run(main())
    return {**watch.answer(size, []), **told}


# mail


def signals(size: int, folder: Path) -> Answer:
    """Signals to this many runs, twenty each: from the first post until all runs have ended."""
    watch = Stopwatch()

    async def main() -> None:
        async with opened(folder) as app:
            runs = [
                await app.start(listener, SIGNALS_PER_RUN, id=str(number)) for number in range(size)
            ]
            await asyncio.sleep(SETTLING_SECONDS)

            async def each(run: outlive.Handle[int]) -> None:
                for number in range(SIGNALS_PER_RUN):
                    await run.signal("news", argument_of("news", number), id=str(number))
                await run.outcome()

            with watch.running():
                await asyncio.gather(*map(each, runs))

    asyncio.run(main())
    return watch.answer(size * SIGNALS_PER_RUN, [])


def answers(size: int, folder: Path, pause: float = SETTLING_SECONDS) -> Answer:
    """From a human's answer (posted, not yet acknowledged) to the body of the next step."""
    waits: list[float] = []
    watch = Stopwatch()

    async def main() -> None:
        async with opened(folder) as app:
            runs = [await app.start(asker, f"{n} ", id=str(n)) for n in range(size)]
            await asyncio.sleep(pause)
            for number, run in enumerate(runs):
                posted = time.perf_counter()
                await run.answer("this")
                await run.outcome()
                waits.append(BEGUN[f"{number} this"] - posted)

    with watch.running():
        asyncio.run(main())
    return {**watch.answer(size, []), **spread_of(waits)}


def answers_evicted(size: int, folder: Path) -> Answer:
    """The same, when the runs that ask have left memory."""
    return answers(size, folder, pause=4.0)


WORKS: dict[str, Work] = {
    "prepare-sleepers": prepare_sleepers,
    "resume-sleepers": sleepers,
    "victim": victim,
    "takeover": takeover,
    "prepare-interrupted": prepare_interrupted,
    "resume-interrupted": interrupted,
    "signals": signals,
    "answers": answers,
    "answers-evicted": answers_evicted,
}

if __name__ == "__main__":
    works = {name: with_settings(work) for name, work in WORKS.items()}
    main(works, f"outlive {version('outlive')}")
