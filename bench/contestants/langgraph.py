"""LangGraph on SQLite with ``durability="sync"``: a graph whose one node is the step.

Its state holds only the newest argument and outcome, which is the cheapest that a graph can do; a
thread of a graph is what elsewhere is a run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from bench.contest import (
    CALLS_PER_AGENT,
    MODEL_SECONDS,
    STARTS_AT_ONCE,
    STEPS_PER_RUN,
    Answer,
    Marks,
    Stopwatch,
    argument_of,
    delay_of,
    die,
    main,
    settings_of,
)

MARKS = Marks()


class State(TypedDict):
    """What a thread keeps from step to step."""

    run: str
    number: int
    count: int
    argument: str
    outcome: str


async def work(state: State) -> dict[str, Any]:
    """A trivial step."""
    number = state["number"]
    outcome = MARKS.body(state["run"], number)
    return {"number": number + 1, "argument": argument_of(number + 1), "outcome": outcome}


async def think(state: State) -> dict[str, Any]:
    """A pretend model call."""
    number, run = state["number"], state["run"]
    MARKS.begun[run].append(time.perf_counter())
    await asyncio.sleep(MODEL_SECONDS)
    MARKS.ended[run].append(time.perf_counter())
    return {"number": number + 1, "argument": argument_of(number + 1), "outcome": "said"}


async def die_last(state: State) -> dict[str, Any]:
    """The process dies in the first new step."""
    die()
    return {}


async def reach_last(state: State) -> dict[str, Any]:
    """The first new step."""
    MARKS.begun["last"].append(time.perf_counter())
    return {"outcome": "reached"}


async def done(state: State) -> dict[str, Any]:
    """Nothing more to do."""
    return {}


def graph_of(node: Any, last: Any, saver: Any) -> Any:
    """A loop over one node, and a last node behind it; ``None`` for none."""
    graph = StateGraph(State)
    graph.add_node("work", node)
    graph.add_edge(START, "work")
    if last is not None:
        graph.add_node("last", last)
        graph.add_edge("last", END)
    behind = END if last is None else "last"
    graph.add_conditional_edges(
        "work", lambda state: "work" if state["number"] < state["count"] else behind
    )
    return graph.compile(checkpointer=saver)


def config_of(run: str, count: int) -> dict[str, Any]:
    """Which thread, and how many steps are not too many."""
    return {"configurable": {"thread_id": run}, "recursion_limit": count + 100}


async def invoke(graph: Any, run: str, count: int) -> None:
    """One thread, from its start to its end."""
    state = State(run=run, number=0, count=count, argument=argument_of(0), outcome="")
    await graph.ainvoke(state, config_of(run, count), durability="sync")


async def settings(saver: AsyncSqliteSaver) -> Answer:
    """As the saver's own connection has them."""
    found = {}
    for pragma in ("PRAGMA journal_mode", "PRAGMA synchronous"):
        async with saver.conn.execute(pragma) as cursor:
            found[pragma] = (await cursor.fetchone())[0]
    return settings_of(found.__getitem__)


def measured(
    folder: Path, operations: int, act: Callable[[Any], Awaitable[Any]], node: Any = work
) -> Answer:
    """Do this with a graph that is compiled, and tell what it cost."""
    watch = Stopwatch()

    async def main() -> Answer:
        async with AsyncSqliteSaver.from_conn_string(f"{folder}/langgraph.db") as saver:
            await saver.setup()
            graph = graph_of(node, None, saver)
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
    gate = asyncio.Semaphore(STARTS_AT_ONCE)

    async def each(graph: Any, run: str) -> None:
        async with gate:
            await invoke(graph, run, 1)

    async def act(graph: Any) -> None:
        await asyncio.gather(*(each(graph, str(number)) for number in range(size)))

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
        async with AsyncSqliteSaver.from_conn_string(f"{folder}/langgraph.db") as saver:
            await invoke(graph_of(work, die_last, saver), "long", size)

    asyncio.run(main())
    return {}


def resume(size: int, folder: Path) -> Answer:
    """From opening the saver to the body of the first new step; a human must ask for it."""
    watch = Stopwatch()

    async def main() -> Answer:
        began = time.perf_counter()
        async with AsyncSqliteSaver.from_conn_string(f"{folder}/langgraph.db") as saver:
            graph = graph_of(work, reach_last, saver)
            with watch.running():
                await graph.ainvoke(None, config_of("long", size), durability="sync")
            return {
                "p50": MARKS.begun["last"][0] - began,
                "repeated": MARKS.count() - 1,
                "settings": await settings(saver),
            }

    told = asyncio.run(main())
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
        f"langgraph {version('langgraph')}, saver {version('langgraph-checkpoint-sqlite')}",
    )
