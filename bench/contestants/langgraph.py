"""LangGraph with ``durability="sync"``: a graph, or its functional form (the last word says).

A graph's one node is the step. Its state holds only the newest argument and outcome, which is the
cheapest that a graph can do. In the functional form each step is a ``task`` of one ``entrypoint``.
A thread is what elsewhere is a run. The saver is that of SQLite, or of PostgreSQL with a pool of
connections, as its documents tell, if the runner names one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from bench.contest import (
    CALLS_PER_AGENT,
    DURABILITY,
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
    spread_of,
)

MARKS = Marks()
#: Of the pool, where there is one.
CONNECTIONS = 20


class State(TypedDict):
    """What a thread keeps from step to step."""

    run: str
    number: int
    count: int
    argument: str
    outcome: str


Body = Callable[[str], Awaitable[str]]
Last = Callable[[], Awaitable[None]]


async def work(argument: str) -> str:
    """A trivial step."""
    return MARKS.body(argument)


async def think(argument: str) -> str:
    """A pretend model call."""
    return await MARKS.think(argument)


async def die_last() -> None:
    """The process dies in the first new step."""
    await asyncio.sleep(SETTLING_SECONDS)
    die()


async def reach_last() -> None:
    """The first new step."""
    MARKS.begun["last"].append(time.perf_counter())


def graph_of(body: Body, last: Last | None, saver: Any) -> Any:
    """A loop over one node, and perhaps a last node behind it."""

    async def step(state: State) -> dict[str, Any]:
        argument, number = state["argument"], state["number"] + 1
        outcome = await body(argument)
        return {
            "number": number,
            "argument": argument_of(state["run"], number),
            "outcome": outcome,
        }

    async def end(state: State) -> dict[str, Any]:
        assert last is not None
        await last()
        return {"outcome": "reached"}

    graph = StateGraph(State)
    graph.add_node("work", step)
    graph.add_edge(START, "work")
    if last is not None:
        graph.add_node("last", end)
        graph.add_edge("last", END)
    behind = END if last is None else "last"
    graph.add_conditional_edges(
        "work", lambda state: "work" if state["number"] < state["count"] else behind
    )
    return graph.compile(checkpointer=saver)


def entry_of(body: Body, last: Last | None, saver: Any) -> Any:
    """An entrypoint that calls one task again and again, and perhaps a last one."""
    step = task(body)

    @task
    async def end() -> None:
        assert last is not None
        await last()

    @entrypoint(checkpointer=saver)
    async def steps(state: State) -> int:
        for number in range(state["count"]):
            await step(argument_of(state["run"], number))
        if last is not None:
            await end()
        return state["count"]

    return steps


FORMS = {"graph": graph_of, "task": entry_of}
FORM = FORMS[kind("graph")]


def config_of(run: str, count: int) -> dict[str, Any]:
    """Which thread, and how many steps are not too many."""
    return {"configurable": {"thread_id": run}, "recursion_limit": count + 100}


async def invoke(graph: Any, run: str, count: int) -> None:
    """One thread, from its start to its end."""
    state = State(run=run, number=0, count=count, argument=argument_of(run, 0), outcome="")
    await graph.ainvoke(state, config_of(run, count), durability="sync")


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Any]:
    """A saver that is set up."""
    if not postgres_url():
        async with AsyncSqliteSaver.from_conn_string(f"{folder}/langgraph.db") as saver:
            await saver.setup()
            yield saver
        return
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    how = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(postgres_url(), max_size=CONNECTIONS, kwargs=how) as pool:
        pooled = AsyncPostgresSaver(pool)  # type: ignore[arg-type]
        await pooled.setup()
        yield pooled


async def settings(saver: Any) -> Answer:
    """As the saver's own connection has them."""
    found: dict[str, Any] = {}
    if postgres_url():
        async with saver.conn.connection() as connection:
            for name in DURABILITY:
                row = await (await connection.execute(f"SHOW {name}")).fetchone()
                found[f"SHOW {name}"] = row[name]
        return postgres_settings(found.__getitem__)
    for pragma in ("PRAGMA journal_mode", "PRAGMA synchronous"):
        async with saver.conn.execute(pragma) as cursor:
            found[pragma] = (await cursor.fetchone())[0]
    return settings_of(found.__getitem__)


def measured(
    folder: Path, operations: int, act: Callable[[Any], Awaitable[Any]], body: Body = work
) -> Answer:
    """Do this with a graph that is compiled, and tell what it cost."""
    watch = Stopwatch()

    async def main() -> Answer:
        async with opened(folder) as saver:
            graph = FORM(body, None, saver)
            with watch.running():
                await act(graph)
            return await settings(saver)

    found = asyncio.run(main())
    return {**watch.answer(operations, MARKS.gaps()), "settings": found}


def sequential(size: int, folder: Path) -> Answer:
    """One thread."""
    return measured(folder, size, lambda graph: invoke(graph, "0", size))


def many(size: int, folder: Path) -> Answer:
    """Many threads at once."""

    async def act(graph: Any) -> None:
        await asyncio.gather(*(invoke(graph, str(n), STEPS_PER_RUN) for n in range(size)))

    return measured(folder, size * STEPS_PER_RUN, act)


def starts(size: int, folder: Path) -> Answer:
    """Threads of one step."""

    async def act(graph: Any) -> None:
        await in_turn(size, lambda run: invoke(graph, run, 1))

    return measured(folder, size, act)


def model(size: int, folder: Path, spread: int = 1) -> Answer:
    """Agents that call a pretend model, begun one by one, or all in step."""

    async def each(graph: Any, number: int) -> None:
        await asyncio.sleep(delay_of(number, size) * spread)
        await invoke(graph, str(number), CALLS_PER_AGENT)

    async def act(graph: Any) -> None:
        await asyncio.gather(*(each(graph, number) for number in range(size)))

    return measured(folder, size * CALLS_PER_AGENT, act, think)


def prepare(size: int, folder: Path) -> Answer:
    """Record a long past, and die."""

    async def main() -> None:
        async with opened(folder) as saver:
            await invoke(FORM(work, die_last, saver), "long", size)

    asyncio.run(main())
    return {}


def resume(size: int, folder: Path) -> Answer:
    """From opening the saver to the body of the first new step; a human must ask for it."""
    watch = Stopwatch()

    async def main() -> Answer:
        began = time.perf_counter()
        async with opened(folder) as saver:
            graph = FORM(work, reach_last, saver)
            with watch.running():
                await graph.ainvoke(None, config_of("long", size), durability="sync")
            return {
                "p50": MARKS.begun["last"][0] - began,
                "repeated": MARKS.count() - 1,
                "settings": await settings(saver),
            }

    told = asyncio.run(main())
    return {**watch.answer(size, []), **told}


# a human


def asking_graph(saver: Any) -> Any:
    """A node that asks, and one behind it."""

    async def ask(state: State) -> dict[str, Any]:
        return {"outcome": interrupt("Which one?")}

    async def go_on(state: State) -> dict[str, Any]:
        MARKS.begun[state["run"]].append(time.perf_counter())
        return {}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_node("go_on", go_on)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "go_on")
    graph.add_edge("go_on", END)
    return graph.compile(checkpointer=saver)


def answers(size: int, folder: Path) -> Answer:
    """From giving the answer to the body of the next node; nothing of a thread is in memory."""
    watch, waits = Stopwatch(), []

    async def main() -> Answer:
        async with opened(folder) as saver:
            graph = asking_graph(saver)
            await asyncio.gather(*(invoke(graph, str(number), 0) for number in range(size)))
            for number in range(size):
                posted = time.perf_counter()
                said: Any = Command(resume="this")
                await graph.ainvoke(said, config_of(str(number), 0), durability="sync")
                waits.append(MARKS.begun[str(number)][0] - posted)
            return await settings(saver)

    with watch.running():
        found = asyncio.run(main())
    return {**watch.answer(size, []), **spread_of(waits), "settings": found}


SAVER = f"langgraph-checkpoint-{'postgres' if postgres_url() else 'sqlite'}"

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
            "answers-evicted": answers,
        },
        f"langgraph {version('langgraph')}, saver {version(SAVER)}",
    )
