"""The floor: the same bytes through sqlite3, one commit (WAL, synchronous=FULL) per step.

No engine, no replay, no lease; whoever makes each step durable on SQLite can't be faster.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from bench.contest import (
    STEPS_PER_RUN,
    Answer,
    Marks,
    Stopwatch,
    argument_of,
    main,
    settings_of,
)

Insert = tuple[str, int, str, str]


def open_database(folder: Path) -> sqlite3.Connection:
    """A table of steps, and each statement a transaction of its own."""
    database = sqlite3.connect(folder / "floor.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE IF NOT EXISTS steps (run, seq, argument, outcome)")
    return database


def commits(runs: int, steps: int, folder: Path) -> Answer:
    """Every step of every run, one after the other."""
    database, marks, watch = open_database(folder), Marks(), Stopwatch()
    settings = settings_of(lambda pragma: database.execute(pragma).fetchone()[0])
    with watch.running():
        for number in range(steps):
            for run in range(runs):
                argument = argument_of("all", number)
                row: Insert = (str(run), number, argument, marks.body(argument))
                database.execute("INSERT INTO steps VALUES (?, ?, ?, ?)", row)
    database.close()
    return {**watch.answer(runs * steps, marks.gaps()), "settings": settings}


def sequential(size: int, folder: Path) -> Answer:
    """One run."""
    return commits(1, size, folder)


def many(size: int, folder: Path) -> Answer:
    """Many runs of a few steps."""
    return commits(size, STEPS_PER_RUN, folder)


def starts(size: int, folder: Path) -> Answer:
    """Two commits for each run: its start, and its step with the end."""
    answer = commits(size, 2, folder)
    return {**answer, "operations": size}


if __name__ == "__main__":
    main(
        {"sequential": sequential, "many": many, "starts": starts},
        f"SQLite {sqlite3.sqlite_version}",
    )
