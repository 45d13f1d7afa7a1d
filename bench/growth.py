"""States that grow and change a little at every turn, and the text in them that is truly new.

Only the standard library is used here: whoever keeps them runs in an environment of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

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
