"""LangGraph keeps a conversation that grows: all of it in the state, on its SQLite saver.

python -m bench.contestants.langgraph_values TURNS FOLDER      prints one JSON object

The graph's one node stands for a model call: it is given the state and adds a message to it. With
``durability="sync"``, as everywhere else.
"""

from __future__ import annotations

import asyncio
import json
import operator
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from bench.growth import WORKLOADS, Author

THREAD = "run"


class State(TypedDict):
    """The conversation; what a node returns is added to it."""

    messages: Annotated[list[Any], operator.add]


def graph_of(author: Author, turns: int, size: int, saver: Any) -> Any:
    """A loop over one node."""

    async def answer(state: State) -> dict[str, Any]:
        return {"messages": [author.message(size)]}

    graph = StateGraph(State)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_conditional_edges(
        "answer", lambda state: "answer" if len(state["messages"]) < turns else END
    )
    return graph.compile(checkpointer=saver)


async def grow(turns: int, path: Path) -> dict[str, Any]:
    """One thread, from its start to its end."""
    author, size = Author(1), WORKLOADS[0].size
    began = time.perf_counter()
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        graph = graph_of(author, turns, size, saver)
        config = {"configurable": {"thread_id": THREAD}, "recursion_limit": turns + 100}
        await graph.ainvoke({"messages": []}, config, durability="sync")
    seconds = time.perf_counter() - began
    stored = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
    return {
        "written": author.written,
        "stored": stored,
        "seconds": seconds,
        "version": version("langgraph"),
    }


if __name__ == "__main__":
    count, folder = sys.argv[1:]
    print(json.dumps(asyncio.run(grow(int(count), Path(folder) / "langgraph.db"))))
