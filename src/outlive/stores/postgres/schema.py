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

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from itertools import chain
from typing import NamedTuple

from outlive.envelope import enclose_old, enclose_old_outcome
from outlive.errors import StoreUnavailable, WrongVersion
from outlive.model.defaults import LEASE_SECONDS
from outlive.ports import Ports
from outlive.stores.plans import (
    HAS_ERROR,
    HAS_PARENT,
    IS_ASKING,
    IS_LISTED,
    IS_QUEUED,
    IS_RUN,
)
from outlive.stores.postgres.connection import PostgresConnection, Statement
from outlive.stores.postgres.errors import ServerRefused, Unreachable, translate
from outlive.stores.postgres.pool import Pool
from outlive.stores.postgres.regression import KEPT_MS_MAX
from outlive.stores.postgres.url import Place, parse_place
from outlive.stores.postgres.wire import blob, blobs, int8, int8s, text
from outlive.stores.queues import SLICES
from outlive.stores.shared import check_upgrade, workers_alive

#: Goes up whenever tables or functions change.
SCHEMA_VERSION = 10

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_META_THERE = "SELECT to_regclass($1) IS NOT NULL"
_VERSION = "SELECT value FROM {s}.meta WHERE name = 'outlive.schema'"
_ID = "SELECT value FROM {s}.meta WHERE name = 'outlive.id'"
_TABLES_THERE = "SELECT count(*) FROM information_schema.tables WHERE table_schema = $1"
_SCHEMA_THERE = "SELECT count(*) FROM pg_namespace WHERE nspname = $1"


#: How a function plans: arrays are joined with one another by hashing, with tables by probing.
_INDEXED = (
    "SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off"
    " SET enable_mergejoin = off"
)
_PLANS = {
    "{hashing}": f"{_INDEXED} SET enable_hashjoin = on SET enable_nestloop = off",
    "{probing}": f"{_INDEXED} SET enable_hashjoin = off SET enable_nestloop = on",
}
#: The conditions of partial indexes, which those who search repeat.
_CONDITIONS = {
    "{is_run}": IS_RUN,
    "{is_listed}": IS_LISTED,
    "{has_parent}": HAS_PARENT,
    "{is_queued}": IS_QUEUED,
    "{has_error}": HAS_ERROR,
    "{is_asking}": IS_ASKING,
}
_KEPT = f"{{s}}.now_v1(at) - {KEPT_MS_MAX}"
_WIDTH = f":= greatest(1, (least(rate_ms, 1::bigint << 50) + {SLICES - 1}) / {SLICES});"
_SLICE = ("OR REPLACE FUNCTION", "FUNCTION"), (_WIDTH, f":= (rate_ms + {SLICES - 1}) / {SLICES};")
_FREE = (("        afters := {s}.free_v1(run_ids, afters);\n", ""),)
#: Functions of earlier versions: by name, the one that replaced it, and what was different. And
#: what begins a run in a user's transaction, which holds the run's id itself.
_EARLIER: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "enlist_v1": ("commit_v5", _FREE),
    "commit_v3": ("commit_v4", _FREE),
    "commit_v2": ("commit_v3", (("admit_v2", "admit_v1"),)),
    "admit_v1": ("admit_v2", (("least(e.units, q.rate)", "e.units"),)),
    "delete_v3": (
        "delete_v4",
        ((f"    fallen CONSTANT bigint := {_KEPT};\n", ""), ("<= fallen", f"<= {_KEPT}")),
    ),
    "delete_v2": ("delete_v3", ((f" - {KEPT_MS_MAX}", ""),)),
    "post_v1": ("post_v2", ()),
    "consume_v1": ("consume_v1", ()),
    "spent_v1": ("spent_v1", _SLICE),
    "spend_v1": ("spend_v1", _SLICE),
    "lane_keys_v1": (
        "lane_keys_v2",
        (
            ("full_keys jsonb", "full_keys text[]"),
            ("NOT full_keys ? key", "key <> ALL (full_keys)"),
        ),
    ),
}


def _read_migrations() -> dict[int, tuple[str, ...]]:
    found: dict[int, list[str]] = {}
    functions: dict[str, str] = {}
    for file in (files(__package__) / "sql").iterdir():
        statements = file.read_text("utf-8").split("\n;\n")
        found[int(file.name.partition("-")[0])] = [
            each.strip() for each in statements if each.strip()
        ]
    for each in chain(*found.values()):
        if name := re.search(r"FUNCTION \{s\}\.(\w+)\(", each):
            functions[name[1]] = each
    for old, (new, changes) in _EARLIER.items():
        functions[old] = functions[new].replace(new, old)
        for now, before in changes:
            functions[old] = functions[old].replace(now, before)
    words = {f"{{{name}}}": functions[name] for name in _EARLIER} | _PLANS | _CONDITIONS
    return {
        version: tuple(_filled(each, words) for each in found[version]) for version in sorted(found)
    }


def _filled(statement: str, words: Mapping[str, str]) -> str:
    for word, meaning in words.items():
        statement = statement.replace(word, meaning)
    return statement


#: version -> the statements that lead to it from the one before: the files in ``sql``, in which
#: the name of an earlier function stands for that function.
MIGRATIONS = _read_migrations()

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
