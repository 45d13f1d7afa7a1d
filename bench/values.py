"""How much a run keeps of values that grow and change a little at every step.

Each workload is a flow that gives its whole state to a step and has it saved as the outcome, at
every turn. What the store holds in the end, tables, indexes and envelopes, is compared with the
text that was truly new. ``python -m bench.values`` prints the table; ``--small`` takes a tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import outlive
from outlive.journal.codec import Registry, codec_for
from outlive.model.ids import digest

State: TypeAlias = Any
#: Printable, and hardly smaller when compressed.
_LETTERS = "".join(map(chr, range(33, 127)))


class Author:
    """Writes random text and knows how much of it there is."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.written = 0

    def text(self, size: int) -> str:
        self.written += size
        return "".join(self._rng.choices(_LETTERS, k=size))

    def message(self, size: int) -> dict[str, str]:
        return {"role": "user", "content": self.text(size)}

    def place(self, length: int) -> int:
        return self._rng.randrange(length)


def appended(author: Author, turns: int, size: int) -> Iterator[State]:
    """A conversation that grows by a message."""
    messages: list[Any] = []
    for _ in range(turns):
        messages.append(author.message(size))
        yield messages


def edited(author: Author, turns: int, size: int) -> Iterator[State]:
    """A message somewhere is written anew."""
    messages = [author.message(size) for _ in range(turns)]
    for _ in range(turns):
        messages[author.place(turns)] = author.message(size)
        yield messages


def inserted(author: Author, turns: int, size: int) -> Iterator[State]:
    """A message comes in somewhere."""
    messages: list[Any] = []
    for turn in range(turns):
        messages.insert(author.place(turn + 1), author.message(size))
        yield messages


def windowed(author: Author, turns: int, size: int) -> Iterator[State]:
    """The newest fifty."""
    messages: list[Any] = []
    for _ in range(turns):
        messages = [*messages[-49:], author.message(size)]
        yield messages


def prompted(author: Author, turns: int, size: int) -> Iterator[State]:
    """A conversation that grows, under a system prompt that changes each time."""
    messages: list[Any] = []
    for _ in range(turns):
        messages.append(author.message(size))
        yield [{"role": "system", "content": author.text(size)}, *messages]


def keyed(author: Author, turns: int, size: int) -> Iterator[State]:
    """A dict of 500 keys, of which one changes."""
    state = {f"key-{number}": author.text(size) for number in range(500)}
    for _ in range(turns):
        state[f"key-{author.place(500)}"] = author.text(size)
        yield state


@dataclass(frozen=True, slots=True)
class Workload:
    """What a run does, and what its store may hold of it, by the new text."""

    name: str
    states: Callable[[Author, int, int], Iterator[State]]
    turns: int
    size: int
    on_sqlite: float
    on_postgres: float


WORKLOADS = (
    Workload("200 messages of 10 kB, one more each turn", appended, 200, 10_000, 1.15, 1.2),
    Workload("one of 200 messages of 10 kB edited", edited, 200, 10_000, 1.2, 1.2),
    Workload("200 messages of 10 kB inserted anywhere", inserted, 200, 10_000, 1.2, 1.2),
    Workload("a window of 50 messages of 10 kB", windowed, 200, 10_000, 1.2, 1.2),
    Workload("200 messages under a changing system prompt", prompted, 200, 10_000, 1.2, 1.2),
    Workload("1,000 messages of 1 kB, one more each turn", appended, 1_000, 1_000, 1.8, 2.0),
    Workload("5 MB in 500 keys, one changed", keyed, 200, 10_000, 1.1, 1.1),
)


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
    began = time.perf_counter()
    async with outlive.open(f"sqlite:///{path}") as app:
        written = await (await app.start(turns, number, count, 1, id=f"run-{number}")).outcome()
    seconds = time.perf_counter() - began
    return Kept(written, _bytes_of(path), seconds)


def _bytes_of(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))


async def run_on_postgres(number: int, count: int, url: str, schema: str) -> Kept:
    """A workload in a schema of its own."""
    began = time.perf_counter()
    async with outlive.open(url) as app:
        written = await (await app.start(turns, number, count, 1, id=f"run-{number}")).outcome()
    seconds = time.perf_counter() - began
    return Kept(written, _bytes_in(url, schema), seconds)


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


def put_microseconds(length: int, size: int) -> tuple[float, float]:
    """CPU per message of a list that is passed on again, one longer; and of encoding it whole."""
    codec = codec_for([list[Any]], Registry())
    author = Author(1)
    messages = [author.message(size) for _ in range(length)]
    codec.write(messages)

    def put() -> object:
        written = codec.write(messages)
        return digest(written)

    return _best(put) / length, _best(lambda: digest(codec.encode(messages))) / length


def _best(work: Callable[[], object], times: int = 15) -> float:
    taken = []
    for _ in range(times):
        began = time.thread_time()
        work()
        taken.append(time.thread_time() - began)
    return min(taken) * 1e6


def main() -> None:
    """Print what each workload keeps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a tenth of the turns")
    small = parser.parse_args().small
    print("| workload | new | stored | x | s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for number, workload in enumerate(WORKLOADS):
            count = workload.turns // 10 if small else workload.turns
            kept = asyncio.run(run_on_sqlite(number, count, Path(folder)))
            print(
                f"| {workload.name} | {kept.written:,} | {kept.stored:,} | {kept.ratio:.3f} "
                f"| {kept.seconds:.1f} |"
            )
            sys.stdout.flush()
    print(
        "\n| messages | bytes each | put, us per message | encoded whole, us |\n|---|---|---|---|"
    )
    for length, size in ((50, 10_000), (200, 10_000), (1_000, 1_000), (5_000, 1_000)):
        put, whole = put_microseconds(length, size)
        print(f"| {length} | {size} | {put:.2f} | {whole:.2f} |")


if __name__ == "__main__":
    main()
