"""The SQLite file: its tables, why they are shaped so, and making them exactly once.

``runs`` has one row per journal: the head, which every commit checks and moves, and the header.
Its ``id`` is never used twice (AUTOINCREMENT), so pages of ``find`` are stable.
``records`` is an ordinary rowid table with an index over (run, seq): appends of many runs land
side by side. Clustering it by run would halve the throughput of commits.
``queues`` has the limits of queues and how far each has come, ``spent`` what of a rate is spent.
``mail`` keeps the id of a consumed mail for ever, with its body dropped.
``outcomes`` has those of transactional steps, each until its journal has it.
Indexes over ``runs`` are partial where they can be, and a plain append touches none of them.
"""

from __future__ import annotations

from collections.abc import Callable

from outlive.envelope import enclose_old, enclose_old_outcome
from outlive.errors import StoreUnavailable, WrongVersion
from outlive.stores.sqlite_connections import Connection

#: Goes up whenever the tables change.
SCHEMA_VERSION = 5
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
    "CREATE INDEX runs_of_family ON runs (family)",
    "CREATE INDEX runs_held ON runs (worker) WHERE worker IS NOT NULL",
    *_QUEUES,
    *_SECOND_WAYS,
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
}


def check_release(db: Connection) -> None:
    """Refuse a SQLite that is too old."""
    (found,) = db.execute("SELECT sqlite_version()").fetchone()
    if tuple(int(part) for part in found.split(".")) < SQLITE_VERSION_MIN:
        oldest = ".".join(str(part) for part in SQLITE_VERSION_MIN)
        raise WrongVersion(f"this Python has SQLite {found}, outlive needs {oldest} or later")


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
