"""What keeps acknowledged events in the file, and what is wrong with it as a whole."""

from __future__ import annotations

import os
import struct
import threading
from contextlib import suppress

from outlive.errors import OutliveError, UnsafeSettings
from outlive.stores.shared import LIMITS, beside_problems
from outlive.stores.sqlite.connections import Connection, Connections

#: SQLite's "flush at every commit"; EXTRA (3) is more than that.
SYNCHRONOUS_FULL = 2
#: Pages of log before it is copied into the file: as many megabytes as by SQLite's own default, for
#: whoever opens the file after a crash reads all of them first (half a millisecond a megabyte).
CHECKPOINT_PAGES = 500
_SHOWN_MAX = 10
#: Of SQLite's log: its head, that of each frame, and where its index has the number of the last
#: frame and the salt of this generation.
_LOG_HEAD_BYTES, _FRAME_HEAD_BYTES, _INDEX_BYTES, _INDEX_END, _INDEX_SALT = 32, 24, 48, 16, 32
#: So often the log is looked at before it is called damaged: somebody may be writing.
_LOOKS = 3


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
        "SELECT run, count(*) FROM records WHERE run <> 0 AND run NOT IN (SELECT id FROM runs)"
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


def beside_journals(db: Connection, now: int) -> list[str]:
    """What is wrong with rows that stand beside the journals."""
    asked = (
        "SELECT run_id FROM tombstones WHERE keep_until > ? AND run_id IN (SELECT run_id FROM runs)"
        f" ORDER BY run_id LIMIT {_SHOWN_MAX}",
        "SELECT run_id, step FROM outcomes WHERE ? AND run_id NOT IN (SELECT run_id FROM runs)"
        f" ORDER BY id LIMIT {_SHOWN_MAX}",
        f"SELECT name, {', '.join(LIMITS)} FROM queues WHERE ? ORDER BY name",
    )
    stones, outcomes, queues = (db.execute(sql, (now,)).fetchall() for sql in asked)
    return beside_problems(stones, outcomes, queues)


def log_problems(path: str) -> list[str]:
    """Commits that stand in the log behind its end, as SQLite sees it: a frame between is damaged.

    SQLite takes the first frame that does not check out for the end of the log. Behind an end that
    a crash left there is one commit at most, the one that was being written: the next is written
    when it is flushed. Only heads of frames are read. Call it while the file is open.
    """
    try:
        seen = [_behind_the_end(path) for _ in range(_LOOKS)]
    except (OSError, struct.error):
        return []
    if seen[0] is None or any(each != seen[0] for each in seen):
        return []  # all is well, or somebody writes
    end, commits = seen[0]
    return [
        f"{path}-wal is damaged behind frame {end}: {commits} commits that follow it are not "
        "seen by SQLite; keep a copy of both files, and restore a backup"
    ]


def _read_index(path: str) -> bytes:
    """How the index of the log begins, by a descriptor that SQLite has of it.

    One of our own would have to be closed, and that drops all locks that this process has on it.
    """
    index = os.stat(path)
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):
            if os.path.samestat(os.fstat(int(name)), index):
                return os.pread(int(name), _INDEX_BYTES, 0)
    raise FileNotFoundError(path)


def _behind_the_end(path: str) -> tuple[int, int] | None:
    """Where the log ends, and how many commits of its generation follow; None: one at most."""
    index = _read_index(f"{path}-shm")
    (end,) = struct.unpack_from("=I", index, _INDEX_END)
    # As the index has it: a log that begins anew keeps its old head until a frame is written.
    salt = index[_INDEX_SALT : _INDEX_SALT + 8]
    with open(f"{path}-wal", "rb") as log:
        head = log.read(_LOG_HEAD_BYTES)
        (page_bytes,) = struct.unpack_from(">I", head, 8)
        size = _FRAME_HEAD_BYTES + page_bytes
        commits, place = 0, _LOG_HEAD_BYTES + end * size
        while True:
            log.seek(place)
            frame = log.read(_FRAME_HEAD_BYTES)
            if len(frame) < _FRAME_HEAD_BYTES:
                return (end, commits) if commits > 1 else None
            is_commit = struct.unpack_from(">I", frame, 4)[0] != 0
            commits += is_commit and frame[8:16] == salt
            place += size


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
