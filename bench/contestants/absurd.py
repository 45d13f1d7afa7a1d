"""Absurd on PostgreSQL, as its documents tell: tasks, ``ctx.step``, workers that claim by lease.

Its asynchronous form is used. A client has one connection, so there are several workers, as many as
Outlive has connections. Nobody polls for outcomes: the clock stops when the last task is found
completed, which is asked for once all handlers have come to their ends.
"""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import absurdctl
import psycopg
from absurd_sdk import AsyncAbsurd, AsyncTaskContext

from bench.contest import (
    SETTLING_SECONDS,
    STARTS_AT_ONCE,
    STEPS_PER_RUN,
    Answer,
    Marks,
    Stopwatch,
    argument_of,
    die,
    main,
    postgres_settings,
    postgres_url,
)

QUEUE = "bench"
WORKERS = 8
#: A lease: of tasks that go on in another process it has run out when they do.
CLAIM_SECONDS = 10
LOOK_SECONDS = 0.002

Client = TypeVar("Client", bound=AsyncAbsurd)

MARKS = Marks()
#: Whether the process was asked to prepare a store, and to die when it is prepared.
DYING = asyncio.Event()
REACHED = asyncio.Event()
#: Runs whose handler came to its end; the task is completed right after.
DONE: list[str] = []


async def run_steps(asked: Any, ctx: AsyncTaskContext) -> int:
    """Steps, one after the other."""
    for number in range(asked["count"]):
        argument = argument_of(asked["run"], number)

        async def work(argument: str = argument) -> str:
            return MARKS.body(argument)

        await ctx.step("work", work)
    DONE.append(asked["run"])
    return int(asked["count"])


async def last() -> None:
    """The first new step: the process dies in it, and the next one is measured up to it."""
    if DYING.is_set():
        await asyncio.sleep(SETTLING_SECONDS)
        die()
    MARKS.begun["last"].append(time.perf_counter())
    REACHED.set()


async def one(asked: Any, ctx: AsyncTaskContext) -> int:
    """A long past."""
    await run_steps(asked, ctx)
    await ctx.step("last", last)
    return int(asked["count"])


def client(kind: type[Client] = AsyncAbsurd) -> Client:
    """A client with a connection of its own, and what it can do."""
    app = kind(postgres_url(), queue_name=QUEUE)
    app.register_task("run_steps", default_max_attempts=5)(run_steps)
    app.register_task("one", default_max_attempts=5)(one)
    return app


def install() -> Answer:
    """The schema of its command line, and a queue."""
    with psycopg.connect(postgres_url(), autocommit=True) as database:
        database.execute(absurdctl.BUNDLED_SCHEMA_SQL.encode())
        database.execute("SELECT absurd.create_queue(%s)", (QUEUE,))

        def ask(sql: str) -> Any:
            (value,) = database.execute(sql.encode()).fetchone() or (None,)
            return value

        return postgres_settings(ask)


class Crew:
    """Workers on connections of their own, and one more to look whether all is done."""

    def __init__(self, workers: int, tasks: int) -> None:
        self.clients = [client() for _ in range(workers)]
        self._tasks_each = -(-tasks // workers)

    async def connect(self) -> None:
        """All of them; nobody's clock runs yet."""
        for each in self.clients:
            await each._ensure_connected()

    async def spawn(self, size: int, count: int) -> None:
        """So many tasks; each is durable when that returns."""
        left = iter(range(size))

        async def each(app: AsyncAbsurd) -> None:
            for run in left:
                await app.spawn("run_steps", {"run": str(run), "count": count})

        await asyncio.gather(*map(each, self.clients))

    async def work(self, size: int) -> None:
        """Until so many are completed."""
        workers = [
            asyncio.create_task(
                each.start_worker(claim_timeout=CLAIM_SECONDS, concurrency=self._tasks_each)
            )
            for each in self.clients
        ]
        async with await psycopg.AsyncConnection.connect(
            postgres_url(), autocommit=True
        ) as database:
            # Nobody asks the server before there is something to be told.
            while len(DONE) < size or await self._completed(database) < size:
                await asyncio.sleep(LOOK_SECONDS)
        for worker in workers:
            worker.cancel()

    @staticmethod
    async def _completed(database: psycopg.AsyncConnection) -> int:
        asked = "SELECT count(*) FROM absurd.t_bench WHERE state = 'completed'"
        (found,) = await (await database.execute(asked)).fetchone() or (0,)
        return int(found)

    async def close(self) -> None:
        """Whatever is open."""
        for each in self.clients:
            await each.close()


def measured(crew_size: int, operations: int, tasks: int, steps: int) -> Answer:
    """So many tasks of so many steps, and what they cost."""
    watch = Stopwatch()

    async def main() -> None:
        crew = Crew(crew_size, min(tasks, STEPS_PER_RUN * STARTS_AT_ONCE))
        await crew.connect()
        with watch.running():
            await crew.spawn(tasks, steps)
            await crew.work(tasks)
        await crew.close()

    found = install()
    asyncio.run(main())
    return {**watch.answer(operations, MARKS.gaps()), "settings": found}


def sequential(size: int, folder: Path) -> Answer:
    """One run."""
    return measured(1, size, 1, size)


def many(size: int, folder: Path) -> Answer:
    """Many runs at once."""
    return measured(WORKERS, size * STEPS_PER_RUN, size, STEPS_PER_RUN)


def starts(size: int, folder: Path) -> Answer:
    """Runs of one step."""
    return measured(WORKERS, size, size, 1)


def prepare(size: int, folder: Path) -> Answer:
    """Record a long past, and die."""

    async def main() -> None:
        app = client()
        await app.spawn("one", {"run": "past", "count": size})
        DYING.set()
        await app.start_worker(claim_timeout=CLAIM_SECONDS)

    install()
    asyncio.run(main())
    return {}


class Claiming(AsyncAbsurd):
    """A client that notes when it asked for what it got."""

    asked = 0.0

    async def claim_tasks(self, *args: Any, **more: Any) -> Any:
        asked = time.perf_counter()
        claimed = await super().claim_tasks(*args, **more)
        if claimed:
            self.asked = asked
        return claimed


def resume(size: int, folder: Path) -> Answer:
    """From connecting to the body of the first new step, and from the claim that got the task."""
    watch = Stopwatch()

    async def main() -> Answer:
        began = time.perf_counter()
        app = client(Claiming)
        worker = asyncio.create_task(app.start_worker(claim_timeout=CLAIM_SECONDS))
        with watch.running():
            await REACHED.wait()
        worker.cancel()
        await app.close()
        reached = MARKS.begun["last"][0]
        return {"p50": reached - began, "p50_asked": reached - app.asked}

    told = asyncio.run(main())
    return {**watch.answer(size, []), **told, "repeated": MARKS.count() - 1}


if __name__ == "__main__":
    main(
        {
            "sequential": sequential,
            "many": many,
            "starts": starts,
            "prepare-one": prepare,
            "resume-one": resume,
        },
        f"absurd-sdk {version('absurd-sdk')}",
    )
