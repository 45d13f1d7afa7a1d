"""The floor on PostgreSQL: the same bytes through psycopg, a one-row commit per round trip.

No engine, no replay, no lease; whoever makes each step durable there can't be faster.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from bench.contest import (
    STEPS_PER_RUN,
    Answer,
    Marks,
    Stopwatch,
    argument_of,
    main,
    postgres_settings,
    postgres_url,
)

TABLE = """CREATE TABLE IF NOT EXISTS steps
  (run text, seq int, argument text, outcome text, PRIMARY KEY (run, seq))"""
INSERT = "INSERT INTO steps VALUES (%s, %s, %s, %s)"


def commits(runs: int, steps: int) -> Answer:
    """Every step of every run, one after the other."""
    marks, watch = Marks(), Stopwatch()
    # Prepared at once, each statement a transaction of its own: a round trip each.
    with psycopg.connect(postgres_url(), autocommit=True, prepare_threshold=0) as database:
        database.execute(TABLE)

        def ask(sql: str) -> Any:
            (value,) = database.execute(sql.encode()).fetchone() or (None,)
            return value

        settings = postgres_settings(ask)
        with watch.running():
            for number in range(steps):
                for run in range(runs):
                    argument = argument_of("all", number)
                    row = (str(run), number, argument, marks.body(argument))
                    database.execute(INSERT, row)
    return {**watch.answer(runs * steps, marks.gaps()), "settings": settings}


def sequential(size: int, folder: Path) -> Answer:
    """One run."""
    return commits(1, size)


def many(size: int, folder: Path) -> Answer:
    """Many runs of a few steps."""
    return commits(size, STEPS_PER_RUN)


def starts(size: int, folder: Path) -> Answer:
    """Two commits for each run: its start, and its step with the end."""
    answer = commits(size, 2)
    return {**answer, "operations": size}


if __name__ == "__main__":
    main(
        {"sequential": sequential, "many": many, "starts": starts},
        f"psycopg {psycopg.__version__}",
    )
