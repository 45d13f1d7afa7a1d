"""A run that begins in the user's own transaction, in the same file: it is there if that commits.

The connection is the user's: what it does to rows and texts is left as it is, and nothing of ours
stays on it. Whatever SQLite has to say about their transaction is theirs to hear.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from typing import Any

from outlive.errors import UnsafeSettings, UsageError
from outlive.store import Entry, Reading
from outlive.stores.sqlite_health import SYNCHRONOUS_FULL
from outlive.stores.sqlite_rows import FOUND_COLUMNS, HEADER_COLUMNS, found_of, records_of
from outlive.stores.tables import header_values

_COLUMNS = f"run_id, seq, epoch, link, {HEADER_COLUMNS}"
_MARKS = ", ".join("?" for _ in _COLUMNS.split(", "))
_CREATE = f"""
    INSERT INTO runs ({_COLUMNS}) SELECT {_MARKS}
    WHERE NOT EXISTS (SELECT 1 FROM runs WHERE run_id = ?)
    AND NOT EXISTS (SELECT 1 FROM tombstones WHERE run_id = ? AND keep_until > ?)
"""


def enlist(path: str, connection: Any, entry: Entry, now: int) -> tuple[bool, Reading | None]:
    """Whether the run is in, else the run that has its id (None: one that was deleted)."""
    _check(path, connection)
    assert entry.header is not None, "a run begins with a header"
    run_id = entry.run_id
    head = (run_id, entry.last, entry.epoch, entry.link)
    values = (*head, *header_values(entry.header), run_id, run_id, now)
    if not _cursor(connection).execute(_CREATE, values).rowcount:
        return False, _reading(connection, run_id)
    _cursor(connection).execute(
        "INSERT INTO records (run, seq, body) SELECT id, 1, ? FROM runs WHERE run_id = ?",
        (entry.record, run_id),
    )
    for node in entry.nodes:
        _cursor(connection).execute(
            "INSERT OR IGNORE INTO nodes (family, address, body) VALUES (?, ?, ?)",
            (entry.header.family, node.address, node.body),
        )
    return True, None


def _check(path: str, connection: Any) -> None:
    if not isinstance(connection, sqlite3.Connection):
        raise UsageError(
            f"connection={connection!r} is none of sqlite3; the store is the file {path}"
        )
    (found,) = [
        file for _, name, file in _rows(connection, "PRAGMA database_list") if name == "main"
    ]
    if not found or not os.path.samefile(found, path):
        raise UsageError(f"the connection is to {found or 'memory'}, the store is {path}")
    if not connection.in_transaction and _is_autocommit(connection):
        raise UsageError(
            "the connection is in autocommit and has no transaction; execute BEGIN before, or the "
            "run would not begin together with what you write"
        )
    ((synchronous,),) = _rows(connection, "PRAGMA synchronous")
    if synchronous < SYNCHRONOUS_FULL:
        raise UnsafeSettings(
            f"the connection has synchronous={synchronous}, which would lose committed runs at a "
            "power cut; leave it at 2 (FULL)"
        )


def _is_autocommit(connection: sqlite3.Connection) -> bool:
    """No statement begins a transaction by itself; ``autocommit`` is there from Python 3.12 on."""
    return connection.isolation_level is None or getattr(connection, "autocommit", None) is True


def _cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None
    return cursor


def _rows(connection: sqlite3.Connection, sql: str, values: Sequence[Any] = ()) -> list[Any]:
    return _cursor(connection).execute(sql, values).fetchall()


def _reading(connection: sqlite3.Connection, run_id: str) -> Reading | None:
    rows = _rows(connection, f"SELECT id, {FOUND_COLUMNS} FROM runs WHERE run_id = ?", (run_id,))
    if not rows:
        return None
    found = found_of(rows[0])
    records = _rows(
        connection,
        "SELECT seq, body FROM records WHERE run = ? AND seq >= ? ORDER BY seq LIMIT 1",
        (rows[0][0], found.header.chapter),
    )
    return Reading(
        head=found.head, header=found.header, records=records_of(run_id, records), mail=()
    )
