"""An explicit loop with a state of ten kilobytes: ours, or one UPDATE per checkpoint.

The last word says which: ``ours`` is a driven ``outlive.loop.Loop``; ``recipe`` writes the whole
snapshot as JSON into one row, one commit (WAL, synchronous=FULL) per transition. Both call the
same handler, and both checkpoint each of its transitions.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from bench.contest import Answer, Stopwatch, argument_of, kind, main, settings_of
from bench.contestants.ours import MARKS, measured
from outlive.loop import Loop, drive

#: About ten kilobytes that are hard to make smaller.
_DICE = random.Random(7)
LINES = [f"line {number}: {_DICE.randbytes(42).hex()}" for number in range(110)]


class Place(Enum):
    """Where a count stands."""

    COUNTING = 1
    OVER = 2


class Count(Loop):
    """Changes one line of its state per transition."""

    states = Place
    moves = {Place.COUNTING: (Place.COUNTING, Place.OVER)}
    keep = None

    def on_counting(self) -> Place:
        """What both do."""
        at = self.cursor % len(LINES)
        self.results = self.results or list(LINES)
        self.results[at] = f"{LINES[at]} {MARKS.body(argument_of('loop', self.cursor))[:10]}"
        self.cursor += 1
        return Place.OVER if self.cursor == self.request else Place.COUNTING


class AsyncCount(Count):
    """The same as an agent has it: its model and its tools are awaited."""

    async def on_counting(self) -> Place:  # type: ignore[override]  # awaited instead
        return super().on_counting()


def ours(size: int, folder: Path) -> Answer:
    """As a run."""
    return measured(folder, size, lambda app: drive(AsyncCount(size, id="loop"), app))


def recipe(size: int, folder: Path) -> Answer:
    """One row, overwritten."""
    database = sqlite3.connect(folder / "recipe.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE checkpoints (id TEXT PRIMARY KEY, body TEXT)")
    database.execute("INSERT INTO checkpoints VALUES ('loop', '')")
    settings = settings_of(lambda pragma: database.execute(pragma).fetchone()[0])
    loop, watch = Count(size, id="loop"), Stopwatch()
    with watch.running():
        while not loop.is_over:
            loop.state = loop.on_counting()
            loop.seq += 1
            body = json.dumps(loop.snapshot())
            database.execute("UPDATE checkpoints SET body = ? WHERE id = 'loop'", (body,))
    database.close()
    return {**watch.answer(size, MARKS.gaps()), "settings": settings}


WAYS: dict[str, Callable[[int, Path], Answer]] = {"ours": ours, "recipe": recipe}


def transitions(size: int, folder: Path) -> Answer:
    """So many of them."""
    return WAYS[kind("ours")](size, folder)


if __name__ == "__main__":
    main({"loop": transitions}, f"SQLite {sqlite3.sqlite_version}")
