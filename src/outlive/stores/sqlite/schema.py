"""The SQLite file: its tables, why they are shaped so, and making them exactly once.

``runs`` has one row per journal: the head, which every commit checks and moves, and the header.
Its ``id`` is never used twice (AUTOINCREMENT), so pages of ``find`` are stable.
``records`` is an ordinary rowid table with an index over (run, seq): appends of many runs land
side by side. Clustering it by run would halve the throughput of commits.
``queues`` has the limits of queues and how far each has come, ``spent`` what of a rate is spent.
``mail`` keeps the id of a consumed mail for ever, with its body dropped.
``outcomes`` has those of transactional steps, each until its journal has it.
``tags`` has a row per tag of a run, kept by triggers of ``runs``: no way to write a run forgets it.
Indexes over ``runs`` are partial where they can be, and a plain append touches none of them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from outlive.envelope import enclose_old, enclose_old_outcome
from outlive.errors import StoreUnavailable, WrongVersion
from outlive.stores.liveness import living
from outlive.stores.plans import (
    HAS_ERROR,
    HAS_PARENT,
    INDEXED_CHARS_MAX,
    IS_ASKING,
    IS_LISTED,
    IS_QUEUED,
    IS_RUN,
    UNLISTED,
)
from outlive.stores.shared import check_upgrade, workers_alive
from outlive.stores.sqlite.connections import Connection
from outlive.stores.sqlite.files import (
    FILE_MODE,
    check_private,
    make_private_file,
    make_private_folder,
    unavailable,
)
from outlive.stores.sqlite.health import make_safe

#: Goes up whenever the tables change.
SCHEMA_VERSION = 6
#: The oldest SQLite that this was made for: earlier ones take too few parameters.
SQLITE_VERSION_MIN = (3, 32, 0)

#: Runs of a queue are found through the queue: those that never began (all of them are due) by
#: priority and key, those that wake up by time. All others have the shorter way.
_QUEUES = (
    """
    CREATE TABLE queues (
        name TEXT PRIMARY KEY,
        concurrency INTEGER,
        per_key INTEGER,
        per_worker INTEGER,
        rate INTEGER,
        rate_ms INTEGER NOT NULL,
        turn INTEGER NOT NULL DEFAULT 0,
        turn_key TEXT NOT NULL DEFAULT ''
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE spent (
        queue TEXT NOT NULL,
        slice_at INTEGER NOT NULL,
        units INTEGER NOT NULL,
        PRIMARY KEY (queue, slice_at)
    ) WITHOUT ROWID
    """,
    """
    CREATE INDEX runs_due ON runs (flow, version, wake_at)
    WHERE worker IS NULL AND ended_at IS NULL AND queue = 'default'
    """,
    """
    CREATE INDEX runs_with_mail ON runs (flow, version, queue)
    WHERE ended_at IS NULL AND posted <> consumed
    """,
    """
    CREATE INDEX runs_queued ON runs (queue, flow, version, priority, queue_key, id)
    WHERE worker IS NULL AND ended_at IS NULL AND queue <> 'default' AND epoch = 0
    """,
    """
    CREATE INDEX runs_oldest ON runs (queue, flow, version, id, queue_key)
    WHERE worker IS NULL AND ended_at IS NULL AND queue <> 'default' AND epoch = 0
    """,
    """
    CREATE INDEX runs_woken ON runs (queue, flow, version, wake_at)
    WHERE worker IS NULL AND ended_at IS NULL AND queue <> 'default' AND epoch > 0
    """,
    """
    CREATE INDEX runs_held_of_queue ON runs (queue, queue_key, worker)
    WHERE worker IS NOT NULL AND queue <> 'default'
    """,
)
_OUTCOMES = """
    CREATE TABLE outcomes (
        id INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL,
        step TEXT NOT NULL,
        seq INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (run_id, step)
    )
"""
#: Ended runs are found by their end. And a second way to a run and to a tombstone: before a run
#: begins that the first index does not know, the second is asked, so that damage of one index is
#: not taken for an id that is free. Over an expression, for SQLite would not tell two indexes of
#: one column apart.
_SECOND_WAYS = (
    "CREATE INDEX runs_by_end ON runs (ended_at) WHERE ended_at IS NOT NULL",
    "CREATE INDEX runs_again ON runs (run_id || '')",
    "CREATE INDEX tombstones_again ON tombstones (run_id || '')",
)
#: How a tag is indexed: its first characters, without NUL, which SQLite's JSON would end at. Who
#: finds a run by its tags compares the tags themselves.
_TAGS_OF = """
    SELECT substr(key, 1, {most}) AS name, substr(value, 1, {most}) AS value, {row}.started_at,
        {row}.id{more}
    FROM {tables}json_each(CASE WHEN json_valid({row}.tags)
        THEN replace({row}.tags, '\\u0000', '\\ufffd') ELSE '{{}}' END)
"""


def _tags_of(row: str, *, status: bool = False, tables: str = "") -> str:
    shown = f", CASE WHEN {UNLISTED.format(row=f'{row}.')} THEN '' ELSE {row}.status END"
    more = shown if status else ""
    return _TAGS_OF.format(row=row, most=INDEXED_CHARS_MAX, more=more, tables=tables)


_FORGET_TAGS = f"""
    DELETE FROM tags WHERE (name, value, started_at, run) IN ({_tags_of("OLD")});
"""
_KEEP_TAGS = f"""
    INSERT OR IGNORE INTO tags (name, value, started_at, run, status)
        {_tags_of("NEW", status=True)};
"""
_STATUS_MOVED = (
    "NEW.status <> OLD.status AND NOT"
    f" ({UNLISTED.format(row='NEW.')} AND {UNLISTED.format(row='OLD.')})"
)
#: What ``find`` goes by, always in the order of the starts. A run that is held and running, as most
#: are until they complete, is in no index of statuses: the index of holders has it. One index for
#: flows and versions, and none of families for their roots: what a run begins with is written once.
_FIND = (
    "ALTER TABLE runs ADD COLUMN error TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE runs ADD COLUMN published TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE runs ADD COLUMN questions TEXT NOT NULL DEFAULT ''",
    # What runs of earlier releases ask only their journals know.
    f"UPDATE runs SET questions = '?' WHERE {IS_RUN} AND ended_at IS NULL",
    """
    CREATE TABLE tags (
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        started_at INTEGER NOT NULL,
        run INTEGER NOT NULL,
        status TEXT NOT NULL,
        PRIMARY KEY (name, value, started_at, run)
    ) WITHOUT ROWID
    """,
    """
    CREATE INDEX tags_by_status ON tags (name, value, status, started_at, run)
    WHERE status <> ''
    """,
    f"INSERT OR IGNORE INTO tags {_tags_of('runs', status=True, tables='runs, ')}",
    f"""
    CREATE TRIGGER tags_of_new AFTER INSERT ON runs WHEN NEW.tags <> '{{}}'
    BEGIN {_KEEP_TAGS} END
    """,
    f"""
    CREATE TRIGGER tags_of_moved AFTER UPDATE OF tags, status ON runs
    WHEN (NEW.tags <> '{{}}' OR OLD.tags <> '{{}}') AND (NEW.tags <> OLD.tags OR {_STATUS_MOVED})
    BEGIN {_FORGET_TAGS} {_KEEP_TAGS} END
    """,
    f"""
    CREATE TRIGGER tags_of_gone AFTER DELETE ON runs WHEN OLD.tags <> '{{}}'
    BEGIN {_FORGET_TAGS} END
    """,
    "DROP INDEX IF EXISTS runs_of_family",
    "CREATE INDEX runs_of_family ON runs (family) WHERE family <> run_id",
    f"CREATE INDEX runs_by_start ON runs (started_at) WHERE {IS_RUN}",
    f"CREATE INDEX runs_of_flow ON runs (flow, version, started_at) WHERE {IS_RUN}",
    f"CREATE INDEX runs_of_status ON runs (status, started_at) WHERE {IS_LISTED}",
    f"CREATE INDEX runs_of_flow_by_status ON runs (flow, status, started_at) WHERE {IS_LISTED}",
    f"CREATE INDEX runs_of_parent ON runs (parent, started_at) WHERE {HAS_PARENT}",
    f"CREATE INDEX runs_of_queue ON runs (queue, started_at) WHERE {IS_QUEUED}",
    f"CREATE INDEX runs_of_error ON runs (error, started_at) WHERE {HAS_ERROR}",
    f"CREATE INDEX runs_asking ON runs (started_at) WHERE {IS_ASKING}",
)

_TABLES = (
    """
    CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run_id TEXT NOT NULL UNIQUE,
        seq INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        link BLOB NOT NULL,
        worker TEXT,
        posted INTEGER NOT NULL DEFAULT 0,
        consumed INTEGER NOT NULL DEFAULT 0,
        flow TEXT NOT NULL,
        version TEXT NOT NULL,
        format INTEGER NOT NULL,
        status TEXT NOT NULL,
        family TEXT NOT NULL,
        started_at INTEGER NOT NULL,
        wake_at INTEGER,
        ended_at INTEGER,
        queue TEXT NOT NULL,
        parent TEXT,
        tags TEXT NOT NULL,
        reason TEXT NOT NULL,
        chapter INTEGER NOT NULL DEFAULT 0,
        chapter_link BLOB NOT NULL DEFAULT x'',
        queue_key TEXT NOT NULL DEFAULT '',
        priority INTEGER NOT NULL DEFAULT 0,
        units INTEGER NOT NULL DEFAULT 1
    )
    """,
    """
    CREATE TABLE records (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        body BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE mail (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        mail_id TEXT NOT NULL,
        posted_at INTEGER NOT NULL,
        body BLOB
    )
    """,
    """
    CREATE TABLE nodes (
        id INTEGER PRIMARY KEY,
        family TEXT NOT NULL,
        address BLOB NOT NULL,
        body BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE tombstones (
        run_id TEXT PRIMARY KEY,
        seq INTEGER NOT NULL,
        digest BLOB NOT NULL,
        flow TEXT NOT NULL,
        ended_at INTEGER NOT NULL,
        keep_until INTEGER NOT NULL
    )
    """,
    _OUTCOMES,
    "CREATE UNIQUE INDEX records_of_run ON records (run, seq)",
    "CREATE UNIQUE INDEX mail_of_run ON mail (run, mail_id)",
    "CREATE INDEX mail_waiting ON mail (run) WHERE body IS NOT NULL",
    "CREATE UNIQUE INDEX nodes_of_family ON nodes (family, address)",
    "CREATE INDEX tombstones_by_end ON tombstones (keep_until)",
    "CREATE INDEX runs_held ON runs (worker) WHERE worker IS NOT NULL",
    *_QUEUES,
    *_SECOND_WAYS,
    *_FIND,
)


#: Letters that are rewritten at a time.
_LETTERS = 500


def _enclose_mail(db: Connection) -> None:
    """Put letters under way into envelopes. A damaged row stays as it is: it is damage still."""
    last = 0
    while rows := db.execute(
        "SELECT mail.id, run_id, mail_id, body FROM mail JOIN runs ON runs.id = mail.run"
        f" WHERE mail.id > ? AND body IS NOT NULL ORDER BY mail.id LIMIT {_LETTERS}",
        (last,),
    ).fetchall():
        last = rows[-1][0]
        for number, run_id, mail_id, body in rows:
            if type(body) is bytes and type(mail_id) is str:
                enclosed = enclose_old(run_id, mail_id, body)
                db.execute("UPDATE mail SET body = ? WHERE id = ?", (enclosed, number))


def _enclose_outcomes(db: Connection) -> None:
    """The same for outcomes of transactional steps; they are few."""
    rows = db.execute("SELECT id, run_id, step, seq, body FROM outcomes").fetchall()
    for number, run_id, step, seq, body in rows:
        if (type(run_id), type(step), type(seq), type(body)) == (str, str, int, bytes) and seq >= 0:
            enclosed = enclose_old_outcome(run_id, step, seq, body)
            db.execute("UPDATE outcomes SET body = ? WHERE id = ?", (enclosed, number))


#: What turns the tables of one schema into those of the next.
_UPGRADES: dict[int, tuple[str | Callable[[Connection], None], ...]] = {
    1: (
        "ALTER TABLE runs ADD COLUMN chapter INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN chapter_link BLOB NOT NULL DEFAULT x''",
    ),
    2: (
        _OUTCOMES,
        "ALTER TABLE runs ADD COLUMN queue_key TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN units INTEGER NOT NULL DEFAULT 1",
        "DROP INDEX runs_due",
        "DROP INDEX runs_with_mail",
        *_QUEUES,
    ),
    3: _SECOND_WAYS,
    4: (_enclose_mail, _enclose_outcomes),
    5: _FIND,
}


def check_release(db: Connection) -> None:
    """Refuse a SQLite that is too old."""
    (found,) = db.execute("SELECT sqlite_version()").fetchone()
    if tuple(int(part) for part in found.split(".")) < SQLITE_VERSION_MIN:
        oldest = ".".join(str(part) for part in SQLITE_VERSION_MIN)
        raise WrongVersion(f"this Python has SQLite {found}, outlive needs {oldest} or later")
    try:
        db.execute("SELECT json_valid('{}')")
    except Exception as error:
        raise WrongVersion(
            f"this Python has SQLite {found} without JSON; outlive needs it"
        ) from error


def is_ready(db: Connection, path: str) -> bool:
    """Whether the tables are there. Only reads, so that a foreign file is left as it was.

    Raises:
        WrongVersion: a later release made them.
        StoreUnavailable: another program did.
    """
    return schema_of(db, path) == SCHEMA_VERSION


def has_tables(db: Connection, path: str) -> bool:
    """Whether a release of ours made tables; it may have been an earlier one."""
    return schema_of(db, path) > 0


def schema_of(db: Connection, path: str) -> int:
    """The schema of the tables that are there; 0: there are none."""
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_master").fetchall()}
    if not names:
        return 0
    found = None
    if "meta" in names:
        found = db.execute("SELECT value FROM meta WHERE name = 'outlive.schema'").fetchone()
    if found is None:
        raise StoreUnavailable(f"{path} is another program's database; choose another file")
    if not found[0].isdecimal() or not 1 <= int(found[0]) <= SCHEMA_VERSION:
        raise WrongVersion(
            f"{path} has schema {found[0]}, this release of outlive has schema {SCHEMA_VERSION}; "
            "use the release that made it, or another file"
        )
    return int(found[0])


def create_tables(db: Connection, path: str) -> None:
    """Make the tables, or bring those of an earlier release up to date; once, all or nothing."""
    db.execute("BEGIN IMMEDIATE")
    found = schema_of(db, path)
    if not found:
        for statement in _TABLES:
            db.execute(statement)
        db.execute("INSERT INTO meta VALUES ('outlive.schema', ?)", (str(SCHEMA_VERSION),))
    for schema in range(found, SCHEMA_VERSION) if found else ():
        for step in _UPGRADES[schema]:
            if isinstance(step, str):
                db.execute(step)
            else:
                step(db)
    db.execute("UPDATE meta SET value = ? WHERE name = 'outlive.schema'", (str(SCHEMA_VERSION),))
    db.execute("COMMIT")


#: Records of a step or two fill such a page with less left over than one of SQLite's 4096.
PAGE_BYTES = 8192


class Making:
    """The file of one store, and what stands beside it."""

    def __init__(self, path: str, *, upgrades: bool = True) -> None:
        self._path, self._upgrades = Path(path), upgrades
        self.workers = Path(f"{path}-workers")
        self._mark = self.workers / "made"

    def make_file(self) -> None:
        """See that there is a file, and that SQLite may look at it.

        Raises:
            StoreUnavailable: it can't be made, or it is empty and was a store.
        """
        try:
            make_private_folder(self._path.parent)
            if not self._path.exists():
                self._make_new()
            elif self._path.is_file() and not self._path.stat().st_size:
                self._take_empty()
        except OSError as error:
            raise unavailable(str(self._path), error) from error

    def _make_new(self) -> None:
        with self._alone():
            if not self._path.exists():
                self._mark.unlink(missing_ok=True)  # of a store that was removed
                make_private_file(self._path)

    def _take_empty(self) -> None:
        with self._alone():
            if self._path.stat().st_size:
                return  # somebody made the tables meanwhile
            # SQLite would drop the log of an empty file at its first look.
            if self._mark.exists() or self._has_log():
                raise self._lost()
            self._path.chmod(FILE_MODE)

    def _has_log(self) -> bool:
        log = Path(f"{self._path}-wal")
        return log.exists() and log.stat().st_size > 0

    def make_tables(self, db: Connection) -> None:
        """Make them, or bring those of an earlier release up to date."""
        try:
            # SQLite does not wait when two switch a new file to WAL at once, so they queue here.
            with self._alone():
                self._make_tables(db, str(self._path))
        except OSError as error:
            raise unavailable(str(self.workers), error) from error

    def _make_tables(self, db: Connection, path: str) -> None:
        if self._mark.exists() and not has_tables(db, path):
            raise self._lost()
        if has_tables(db, path):
            self._check_upgrade(db, path)
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # counts only before there is a table
        make_safe(db, path)
        create_tables(db, path)

    def _check_upgrade(self, db: Connection, path: str) -> None:
        """Only a driver brings a file up to date, and only while nobody else drives (R32)."""
        if is_ready(db, path):
            return  # somebody did so meanwhile
        check_upgrade(path, schema_of(db, path), SCHEMA_VERSION, upgrades=self._upgrades)
        alive = living(self.workers)
        if alive:
            raise workers_alive(path, alive)

    def mark(self) -> None:
        """The tables are there: from now on an empty file is a loss."""
        try:
            if not self._mark.exists():
                make_private_folder(self.workers)
                make_private_file(self._mark)
            check_private(self.workers)
        except OSError as error:
            raise unavailable(str(self.workers), error) from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        make_private_folder(self.workers)
        check_private(self.workers)
        descriptor = os.open(self.workers, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _lost(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._path} is empty and was a store: what it held is lost; restore it from a "
            f"backup, or remove it to begin anew"
        )
