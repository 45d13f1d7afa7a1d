"""What keeps acknowledged events in the file, and what is wrong with it as a whole."""

from __future__ import annotations

from outlive.errors import UnsafeSettings
from outlive.stores.sqlite_connections import Connection

#: SQLite's "flush at every commit"; EXTRA (3) is more than that.
SYNCHRONOUS_FULL = 2
#: Pages of log before it is copied into the file: as many megabytes as by SQLite's own default, for
#: whoever opens the file after a crash reads all of them first (half a millisecond a megabyte).
CHECKPOINT_PAGES = 500
_SHOWN_MAX = 10


def make_safe(db: Connection, path: str) -> None:
    """Set what durability needs, and read it back."""
    for setting in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "fullfsync = ON",
        "checkpoint_fullfsync = ON",
        "temp_store = MEMORY",
        f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
    ):
        db.execute(f"PRAGMA {setting}").fetchall()
    problems = durability_problems(db)
    if problems:
        raise UnsafeSettings(f"{path}: {problems[0]}; put the file on a local disk")


def durability_problems(db: Connection) -> list[str]:
    """What of this connection's settings would lose acknowledged events."""
    problems = []
    mode = db.execute("PRAGMA journal_mode").fetchone()[0]
    if mode != "wal":
        problems.append(f"SQLite keeps journal_mode={mode} instead of WAL")
    synchronous = db.execute("PRAGMA synchronous").fetchone()[0]
    if synchronous < SYNCHRONOUS_FULL:
        problems.append(f"SQLite has synchronous={synchronous} instead of 2 (FULL)")
    return problems


def file_problems(db: Connection) -> list[str]:
    """What SQLite finds wrong with its own trees, and records whose run is gone."""
    rows = db.execute(f"PRAGMA integrity_check({_SHOWN_MAX})").fetchall()
    problems = [f"SQLite says: {row[0]}" for row in rows if row[0] != "ok"]
    orphans = db.execute(
        "SELECT run, count(*) FROM records WHERE run NOT IN (SELECT id FROM runs)"
        f" GROUP BY run ORDER BY run LIMIT {_SHOWN_MAX}"
    ).fetchall()
    problems += [f"{count} records of run number {run} have no head" for run, count in orphans]
    hidden = db.execute(
        "SELECT run_id, mail_id FROM mail JOIN runs ON runs.id = mail.run WHERE mail.body"
        f" IS NOT NULL AND posted = consumed ORDER BY mail.id LIMIT {_SHOWN_MAX}"
    ).fetchall()
    return problems + [
        f"mail {mail_id!r} of run {run_id!r} waits, and is not counted: nobody posted it"
        for run_id, mail_id in hidden
    ]
