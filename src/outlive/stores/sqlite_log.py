"""Room in SQLite's write-ahead log, made once, so that a flush need not make the file longer.

A flush that makes a file longer has the file's new length and blocks to write down too, and takes
about twice as long as one into a file that has the room. The log grows until it is copied into the
database and begins anew; then it keeps its length, as long as anybody has the file open. So the
first hundred commits and more are slow ones. Once a few were made there will be others: then one
transaction that is too large for its cache is rolled back, and leaves behind as much log as will
be needed. It was never committed, so SQLite ignores it, and writes over it.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from outlive.errors import OutliveError
from outlive.stores.sqlite_connections import Connection, Connections
from outlive.stores.sqlite_health import CHECKPOINT_PAGES

#: Making room costs about what so many commits lose without it.
COMMITS_BEFORE = 16
#: What the commit that reaches ``CHECKPOINT_PAGES`` may have beyond them.
_PAGES_MORE = 32
#: A transaction of more pages goes to the log before its end.
_CACHE_PAGES = 8
#: A disk with less free, in rooms, is left alone.
_ROOMS_FREE_MIN = 16


class LogRoom:
    """The log of one file. A thread of its own makes the room, so that nobody's commit does."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._commits = 0

    def committed(self) -> None:
        """One commit more."""
        self._commits += 1
        if self._commits == COMMITS_BEFORE:
            threading.Thread(target=self._make, name="outlive-log", daemon=True).start()

    def _make(self) -> None:
        # Whatever is wrong with the file or the disk, the next commit meets it and tells.
        with suppress(OutliveError, OSError), self._connections.rolling_back() as db:
            page_bytes = db.execute("PRAGMA page_size").fetchone()[0]
            if _is_small(self._connections.path, page_bytes * CHECKPOINT_PAGES):
                spill(db, page_bytes * (CHECKPOINT_PAGES + _PAGES_MORE))
                self._connections.flush_log()


def _is_small(path: str, room: int) -> bool:
    disk = os.statvfs(path)
    is_spacious = disk.f_bavail * disk.f_frsize >= room * _ROOMS_FREE_MIN
    return is_spacious and os.stat(f"{path}-wal").st_size < room


def spill(db: Connection, size: int) -> None:
    """Write so many bytes to the log, in the transaction that is open."""
    (cache,) = db.execute("PRAGMA cache_size").fetchone()
    db.execute(f"PRAGMA cache_size = {_CACHE_PAGES}")
    try:
        db.execute(
            "INSERT INTO nodes (family, address, body) VALUES ('', x'', zeroblob(?))", (size,)
        )
    finally:
        db.execute(f"PRAGMA cache_size = {cache}")
