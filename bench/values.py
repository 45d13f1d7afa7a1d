"""How much a run keeps of values that grow and change a little at every step.

Each workload is a flow that gives its whole state to a step and has it saved as the outcome, at
every turn. What the store holds in the end, tables, indexes and envelopes, is compared with the
text that was truly new.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import outlive
from bench.growth import WORKLOADS, Author


@outlive.step
async def consider(state: Any) -> Any:
    """Stands for a model call: is given everything; what it returns is the state that is saved."""
    return state


@outlive.flow(name="values")
async def turns(number: int, count: int, seed: int) -> int:
    """The whole state is an argument and a saved outcome, at every turn."""
    workload, author = WORKLOADS[number], Author(seed)
    for state in workload.states(author, count, workload.size):
        await consider(state)
    return author.written


@dataclass(frozen=True, slots=True)
class Kept:
    """What came of a workload."""

    written: int
    stored: int
    seconds: float

    @property
    def ratio(self) -> float:
        return self.stored / self.written


async def run_on_sqlite(number: int, count: int, folder: Path) -> Kept:
    """A workload on a file of its own."""
    path = folder / f"values-{number}.db"
    async with outlive.open(f"sqlite:///{path}"):
        pass
    empty = _bytes_of(path)  # a page for each table and index, mostly
    began = time.perf_counter()
    async with outlive.open(f"sqlite:///{path}") as app:
        written = await (await app.start(turns, number, count, 1, id=f"run-{number}")).outcome()
    seconds = time.perf_counter() - began
    return Kept(written, _bytes_of(path) - empty, seconds)


def _bytes_of(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))


async def run_on_postgres(number: int, count: int, url: str, schema: str) -> Kept:
    """A workload in a schema of its own."""
    began = time.perf_counter()
    async with outlive.open(url) as app:
        empty = _bytes_in(url, schema)  # a page for each index, mostly
        written = await (await app.start(turns, number, count, 1, id=f"run-{number}")).outcome()
    seconds = time.perf_counter() - began
    return Kept(written, _bytes_in(url, schema) - empty, seconds)


def _bytes_in(url: str, schema: str) -> int:
    import psycopg

    sizes = (
        "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'r'"
    )
    with psycopg.connect(url.split("?")[0]) as connection:
        row = connection.execute(sizes, (schema,)).fetchone()
    assert row is not None, "a sum has a row"
    size: int = row[0]
    return size
