"""The tables in PostgreSQL, why they are shaped so, and making them exactly once.

Every table is led by the run's id (nodes by the family's), and no statement of a commit touches
rows of two runs at once, so the schema distributes by run. ``runs`` has one row per journal: the
head, which every commit checks and moves, and the header. A plain append changes no indexed column
and finds room on the row's own page (``fillfactor``), so it touches no index of ``runs`` at all.
Records and nodes are not compressed by the server: whoever writes them may have done so.

A migration is one transaction behind a lock of that transaction: those who start at once queue, who
dies on the way leaves nothing. Functions have their version in their name and stay when later ones
come, so that workers of two releases can share a schema during a deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from outlive.envelope import enclose_old, enclose_old_outcome
from outlive.errors import StoreUnavailable, WrongVersion
from outlive.model.defaults import LEASE_SECONDS
from outlive.ports import Ports
from outlive.stores.postgres.connection import PostgresConnection, Statement
from outlive.stores.postgres.deletion import (
    DELETIONS,
    DELETIONS_AT_ANY_NUMBER,
    DELETIONS_REMEMBERED,
    FAMILIES,
)
from outlive.stores.postgres.enlist import ENLISTING
from outlive.stores.postgres.errors import ServerRefused, Unreachable, translate
from outlive.stores.postgres.functions import (
    APPEND_ONE,
    FUNCTIONS,
    FUNCTIONS_OF_ANY_COST,
    FUNCTIONS_OF_ENVELOPES,
    FUNCTIONS_OF_HEADERS,
    FUNCTIONS_OF_OPEN_IDS,
    PROBING,
)
from outlive.stores.postgres.pool import Pool
from outlive.stores.postgres.queues import LANES, QUEUES, QUEUES_OF_ANY_COST, QUEUES_OF_ANY_WIDTH
from outlive.stores.postgres.queues import TABLES as QUEUE_TABLES
from outlive.stores.postgres.transactions import OUTCOMES
from outlive.stores.postgres.url import Place, parse_place
from outlive.stores.postgres.wire import blob, blobs, int8, int8s, text
from outlive.stores.shared import check_upgrade, workers_alive

_WANTED = "flows text[], versions text[], newest bigint"
_PAIRS = "unnest(flows, versions) AS w (flow, version)"
_DRIVABLE = "r.flow = w.flow AND r.version = w.version AND r.format <= newest"
_UNQUEUED = f"{_DRIVABLE} AND r.queue = 'default'"

#: Free runs whose time has come, at most so many of each kind, the longest waiting first.
_DUE = f"""
CREATE FUNCTION {{s}}.due_v2({_WANTED}, at bigint, count bigint)
RETURNS SETOF {{s}}.runs LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    instant CONSTANT bigint := {{s}}.now_v1(at);
BEGIN
    RETURN QUERY SELECT r.* FROM {_PAIRS} CROSS JOIN LATERAL (
        SELECT * FROM {{s}}.runs r WHERE {_UNQUEUED} AND r.worker IS NULL AND r.ended_at IS NULL
            AND r.wake_at <= instant
        ORDER BY r.wake_at LIMIT count FOR UPDATE SKIP LOCKED
    ) AS r;
END $$
"""

#: When the next free run gets due.
_NEXT = f"""
CREATE FUNCTION {{s}}.next_v2({_WANTED}, names text[], at bigint)
RETURNS bigint LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    instant CONSTANT bigint := {{s}}.now_v1(at);
BEGIN
    RETURN least((SELECT min(r.wake_at) FROM {_PAIRS} CROSS JOIN LATERAL (
        SELECT r.wake_at FROM {{s}}.runs r WHERE {_UNQUEUED} AND r.worker IS NULL
            AND r.ended_at IS NULL AND r.wake_at > instant
            AND (names IS NULL OR 'default' = ANY (names))
        ORDER BY r.wake_at LIMIT 1
    ) AS r), (SELECT min(r.wake_at) FROM {_PAIRS}
        CROSS JOIN unnest({{s}}.queue_names_v1(names)) AS n (name) CROSS JOIN LATERAL (
        SELECT r.wake_at FROM {{s}}.runs r WHERE {_DRIVABLE} AND r.queue = n.name
            AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch > 0
            AND r.wake_at > instant
        ORDER BY r.wake_at LIMIT 1
    ) AS r));
END $$
"""

#: Free runs with mail.
_MAILED = f"""
CREATE FUNCTION {{s}}.mailed_v2({_WANTED}, count bigint)
RETURNS SETOF {{s}}.runs LANGUAGE plpgsql {PROBING} AS $$
BEGIN
    RETURN QUERY SELECT r.* FROM {_PAIRS} CROSS JOIN LATERAL (
        SELECT * FROM {{s}}.runs r WHERE {_UNQUEUED} AND coalesce(r.worker, '') = ''
            AND r.ended_at IS NULL AND r.posted <> r.consumed
        LIMIT count FOR UPDATE SKIP LOCKED
    ) AS r;
END $$
"""

#: Runs that these workers hold.
_LEFT = f"""
CREATE FUNCTION {{s}}.left_v2({_WANTED}, names text[], holders text[], count bigint)
RETURNS SETOF {{s}}.runs LANGUAGE plpgsql {PROBING} AS $$
BEGIN
    RETURN QUERY SELECT r.* FROM {_PAIRS} CROSS JOIN LATERAL (
        SELECT * FROM {{s}}.runs r WHERE {_DRIVABLE} AND r.worker = ANY (holders)
            AND r.ended_at IS NULL AND (names IS NULL OR r.queue = ANY (names))
        LIMIT count FOR UPDATE SKIP LOCKED
    ) AS r;
END $$
"""

LOOKS = (_DUE, _NEXT, _MAILED, _LEFT)


#: Goes up whenever tables or functions change.
SCHEMA_VERSION = 9

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_META_THERE = "SELECT to_regclass($1) IS NOT NULL"
_VERSION = "SELECT value FROM {s}.meta WHERE name = 'outlive.schema'"
_ID = "SELECT value FROM {s}.meta WHERE name = 'outlive.id'"
_TABLES_THERE = "SELECT count(*) FROM information_schema.tables WHERE table_schema = $1"
_SCHEMA_THERE = "SELECT count(*) FROM pg_namespace WHERE nspname = $1"

_TABLES = (
    'CREATE TABLE {s}.meta (name text COLLATE "C" PRIMARY KEY, value text NOT NULL)',
    """
    CREATE TABLE {s}.runs (
        run_id text COLLATE "C" PRIMARY KEY,
        id bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY,
        seq bigint NOT NULL,
        epoch bigint NOT NULL,
        link bytea NOT NULL,
        worker text COLLATE "C",
        posted bigint NOT NULL DEFAULT 0,
        consumed bigint NOT NULL DEFAULT 0,
        flow text COLLATE "C" NOT NULL,
        version text COLLATE "C" NOT NULL,
        format bigint NOT NULL,
        status text COLLATE "C" NOT NULL,
        family text COLLATE "C" NOT NULL,
        started_at bigint NOT NULL,
        wake_at bigint,
        ended_at bigint,
        queue text COLLATE "C" NOT NULL,
        parent text COLLATE "C",
        tags text COLLATE "C" NOT NULL,
        reason text COLLATE "C" NOT NULL,
        chapter bigint NOT NULL,
        chapter_link bytea NOT NULL
    ) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05)
    """,
    """
    CREATE TABLE {s}.records (
        run_id text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (run_id, seq)
    )
    """,
    """
    CREATE TABLE {s}.mail (
        run_id text COLLATE "C" NOT NULL,
        mail_id text COLLATE "C" NOT NULL,
        number bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
        posted_at bigint NOT NULL,
        mark bytea NOT NULL,
        body bytea,
        PRIMARY KEY (run_id, mail_id)
    )
    """,
    """
    CREATE TABLE {s}.nodes (
        family text COLLATE "C" NOT NULL,
        address bytea NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (family, address)
    )
    """,
    """
    CREATE TABLE {s}.tombstones (
        run_id text COLLATE "C" PRIMARY KEY,
        seq bigint NOT NULL,
        digest bytea NOT NULL,
        flow text COLLATE "C" NOT NULL,
        ended_at bigint NOT NULL,
        keep_until bigint NOT NULL
    )
    """,
    """
    CREATE TABLE {s}.workers (
        worker text COLLATE "C" PRIMARY KEY,
        beats bigint NOT NULL,
        beat_at bigint NOT NULL
    ) WITH (fillfactor = 50)
    """,
    "ALTER TABLE {s}.records ALTER body SET STORAGE EXTERNAL",
    "ALTER TABLE {s}.nodes ALTER body SET STORAGE EXTERNAL",
    "ALTER TABLE {s}.mail ALTER body SET STORAGE EXTERNAL",
    "CREATE INDEX runs_by_number ON {s}.runs (id)",
    # A root's family is its own id, which the primary key finds.
    "CREATE INDEX runs_of_family ON {s}.runs (family) WHERE family <> run_id",
    "CREATE INDEX runs_held ON {s}.runs (worker) WHERE worker IS NOT NULL",
    """
    CREATE INDEX runs_due ON {s}.runs (flow, version, wake_at)
    WHERE worker IS NULL AND ended_at IS NULL AND wake_at IS NOT NULL
    """,
    """
    CREATE INDEX runs_with_mail ON {s}.runs (coalesce(worker, ''), flow, version)
    WHERE ended_at IS NULL AND posted <> consumed
    """,
    "CREATE INDEX mail_waiting ON {s}.mail (run_id, number) WHERE body IS NOT NULL",
    "CREATE INDEX tombstones_by_end ON {s}.tombstones (keep_until)",
)

#: version -> the statements that lead to it from the one before.
MIGRATIONS = {
    1: _TABLES + FUNCTIONS,
    2: (
        *OUTCOMES,
        APPEND_ONE,
        *QUEUE_TABLES,
        *QUEUES,
        *FAMILIES,
        *FUNCTIONS_OF_HEADERS,
        *LOOKS,
        *DELETIONS,
    ),
    3: (*QUEUES_OF_ANY_COST, *FUNCTIONS_OF_ANY_COST),
    4: DELETIONS_REMEMBERED,
    5: (*ENLISTING, *FUNCTIONS_OF_OPEN_IDS),
    6: LANES,
    7: DELETIONS_AT_ANY_NUMBER,
    8: QUEUES_OF_ANY_WIDTH,
    9: FUNCTIONS_OF_ENVELOPES,
}

#: The version since which letters are in envelopes.
ENVELOPES_SINCE = 9
_LETTERS = """
SELECT m.number, m.run_id, m.mail_id, m.body FROM {s}.mail m
WHERE m.number > $1 AND m.body IS NOT NULL ORDER BY m.number LIMIT 500
"""
_REWRITE = """
UPDATE {s}.mail m SET body = g.body FROM unnest($1::bigint[], $2::bytea[]) AS g (number, body)
WHERE m.number = g.number
"""
_OUTCOMES_KEPT = """
SELECT o.run_id, o.step, o.seq, o.body FROM {s}.outcomes o WHERE o.body IS NOT NULL AND o.seq >= 0
"""
_REWRITE_OUTCOME = "UPDATE {s}.outcomes SET body = $3 WHERE run_id = $1 AND step = $2"
_ALIVE = """
SELECT w.worker FROM {s}.workers w WHERE w.beat_at > {s}.now_v1(NULL) - $1 ORDER BY w.worker LIMIT 5
"""

Failpoint = Callable[[str], None]


class Upgrade(NamedTuple):
    """Who opens a place, where its tables may have to change."""

    failpoint: Failpoint
    #: False: this one only looks or posts, and leaves tables of an earlier release alone.
    is_allowed: bool = True
    #: Workers that beat within such a time are alive.
    lease_ms: int = round(LEASE_SECONDS * 1000)


def check_schema(db: PostgresConnection, place: Place, upgrade: Upgrade) -> str:
    """See that the tables are there and of this release; make them, or bring them up to date.

    Returns the store's own id, by which it is told from others.

    Raises:
        WrongVersion: a later release made them, or an earlier one, and this one may not upgrade.
        StoreUnavailable: another program's tables are there, or this role may not make ours, or
            workers of an earlier release are alive.
    """
    with _opening(place):
        found = _found_version(db, place)
        if found != SCHEMA_VERSION:
            if found:
                check_upgrade(place.name, found, SCHEMA_VERSION, upgrades=upgrade.is_allowed)
            _migrate(db, place, upgrade)
        ((row,),) = db.run(Statement(_ID.format(s=f'"{place.schema}"')))
    return str(row[0])


def is_made(url: str, ports: Ports) -> tuple[bool, str]:
    """Whether the tables are there, and the place as it may be shown.

    Raises:
        StoreUnavailable: no server is there to be asked.
    """
    pool = Pool(parse_place(url), ports)
    db = pool.open_first()
    try:
        with _opening(pool.place):
            return _found_version(db, pool.place) > 0, pool.place.name
    finally:
        db.close()


@contextmanager
def _opening(place: Place) -> Iterator[None]:
    try:
        yield
    except ServerRefused as error:
        raise translate(error, place.name) from error
    except Unreachable as error:
        raise StoreUnavailable(f"{place.name} was lost while it was opened: {error}") from error


def _found_version(db: PostgresConnection, place: Place) -> int:
    ((there,),) = db.run(Statement(_META_THERE, [text(f'"{place.schema}".meta')]))
    if not there[0]:
        return 0
    (rows,) = db.run(Statement(_VERSION.format(s=f'"{place.schema}"')))
    found = rows[0][0] if rows else "nothing"
    if not found.isdecimal() or not 1 <= int(found) <= SCHEMA_VERSION:
        raise WrongVersion(
            f"{place.name} has schema {found}, this release of outlive has schema "
            f"{SCHEMA_VERSION}; use the release that made it, or another schema name"
        )
    return int(found)


def _migrate(db: PostgresConnection, place: Place, upgrade: Upgrade) -> None:
    failpoint = upgrade.failpoint
    db.run(Statement("BEGIN"))
    try:
        db.run(Statement(_LOCK, [text(f"outlive.schema.{place.schema}")]))
        _make_schema(db, place)
        found = _version_inside(db, place)
        if 0 < found < SCHEMA_VERSION:
            _check_alone(db, place, upgrade.lease_ms)
        for version in range(found + 1, SCHEMA_VERSION + 1):
            for number, statement in enumerate(MIGRATIONS[version]):
                failpoint(f"migrate.{version}.{number}")
                db.run(Statement(statement.replace("{s}", f'"{place.schema}"')))
            if version == ENVELOPES_SINCE:
                _enclose_mail(db, place)
                _enclose_outcomes(db, place)
            _write_version(db, place, version)
        failpoint("migrate.commit")
        db.run(Statement("COMMIT"))
    except BaseException:
        db.close()  # rolls back
        raise


def _check_alone(db: PostgresConnection, place: Place, lease_ms: int) -> None:
    """Tables change only while nobody drives (R32)."""
    ((rows),) = db.run(
        Statement(_ALIVE.replace("{s}", f'"{place.schema}"'), [int8(lease_ms)]),
    )
    if rows:
        raise workers_alive(place.name, [str(row[0]) for row in rows])


def _enclose_mail(db: PostgresConnection, place: Place) -> None:
    """Put letters under way into envelopes."""
    schema = f'"{place.schema}"'
    db.run(Statement(f"LOCK TABLE {schema}.mail IN EXCLUSIVE MODE"))
    last = 0
    while rows := db.run(Statement(_LETTERS.replace("{s}", schema), [int8(last)]))[0]:
        last = rows[-1][0]
        numbers = [int(row[0]) for row in rows]
        bodies = [enclose_old(run_id, mail_id, body) for _, run_id, mail_id, body in rows]
        rewrite = _REWRITE.replace("{s}", schema)
        db.run(Statement(rewrite, [int8s(numbers), blobs(bodies)]))


def _enclose_outcomes(db: PostgresConnection, place: Place) -> None:
    """The same for outcomes of transactional steps; they are few."""
    schema = f'"{place.schema}"'
    (rows,) = db.run(Statement(_OUTCOMES_KEPT.replace("{s}", schema)))
    for run_id, step, seq, body in rows:
        enclosed = enclose_old_outcome(str(run_id), str(step), int(seq), bytes(body))
        rewrite = Statement(
            _REWRITE_OUTCOME.replace("{s}", schema), [text(run_id), text(step), blob(enclosed)]
        )
        db.run(rewrite)


def _make_schema(db: PostgresConnection, place: Place) -> None:
    ((row,),) = db.run(Statement(_SCHEMA_THERE, [text(place.schema)]))
    if not row[0]:
        db.run(Statement(f'CREATE SCHEMA "{place.schema}"'))


def _version_inside(db: PostgresConnection, place: Place) -> int:
    """The version that whoever held the lock before us left."""
    ((row,),) = db.run(Statement(_TABLES_THERE, [text(place.schema)]))
    if not row[0]:
        return 0
    found = _found_version(db, place)
    if not found:
        raise StoreUnavailable(
            f"{place.name} holds another program's tables; name another schema in the URL"
        )
    return found


def _write_version(db: PostgresConnection, place: Place, version: int) -> None:
    db.run(
        Statement(
            f"INSERT INTO \"{place.schema}\".meta VALUES ('outlive.schema', $1::int8::text)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [int8(version)],
        )
    )
