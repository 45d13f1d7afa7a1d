"""What is wrong with the file as a whole, where no journal could tell."""

from __future__ import annotations

from outlive.stores.sqlite_connections import Connection

_SHOWN_MAX = 10


def file_problems(db: Connection) -> list[str]:
    """What SQLite finds wrong with its own trees, and records whose run is gone."""
    rows = db.execute(f"PRAGMA integrity_check({_SHOWN_MAX})").fetchall()
    problems = [f"SQLite says: {row[0]}" for row in rows if row[0] != "ok"]
    orphans = db.execute(
        "SELECT run, count(*) FROM records WHERE run NOT IN (SELECT id FROM runs)"
        f" GROUP BY run ORDER BY run LIMIT {_SHOWN_MAX}"
    ).fetchall()
    return problems + [
        f"{count} records of run number {run} have no head" for run, count in orphans
    ]
