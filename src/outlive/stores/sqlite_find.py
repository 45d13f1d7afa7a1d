"""Runs by what their header says, in the order of their creation."""

from __future__ import annotations

from outlive.store import PAGE_MAX, Found, Query
from outlive.stores.asked import end_of_prefix
from outlive.stores.sqlite_connections import Connection, Value
from outlive.stores.sqlite_rows import FOUND_COLUMNS, listed_of
from outlive.stores.tables import written_tag

_PREFIXED = "run_id >= ? AND run_id < ?"
#: Bytes come after all texts.
_AFTER_ALL = b""


def find_runs(db: Connection, query: Query, begin: int, count: int) -> list[tuple[int, Found]]:
    """At most ``count`` runs, numbered above ``begin``, each with its number."""
    # A plus keeps SQLite from going through all runs in their order, where it had better not.
    number = "+id" if _are_few(db, query) else "id"
    conditions, values = _conditions(query)
    where = " AND ".join([f"{number} > ?", *conditions])
    sql = f"SELECT id, {FOUND_COLUMNS} FROM runs WHERE {where} ORDER BY {number} LIMIT ?"
    found: list[tuple[int, Found]] = []
    while True:
        rows = db.execute(sql, (begin, *values, count)).fetchall()
        found += [(row[0], run) for row in rows if _is_tagged(run := listed_of(row), query)]
        if len(rows) < count or len(found) >= count:
            return found[:count]
        begin = rows[-1][0]


def _conditions(query: Query) -> tuple[list[str], list[Value]]:
    conditions, values = list[str](), list[Value]()
    for column, value in (("status", query.status), ("flow", query.flow)):
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    if query.tag is not None:
        # Finds every run that has the tag and perhaps a few that do not: see _is_tagged.
        conditions.append("instr(tags, ?) > 0")
        values.append(written_tag(*query.tag))
    if query.ended_by is not None:
        conditions.append("ended_at <= ?")
        values.append(query.ended_by)
    if query.prefix:
        conditions.append(_PREFIXED)
        values += _bounds(query.prefix)
    return conditions, values


def _bounds(prefix: str) -> tuple[str, str | bytes]:
    return prefix, end_of_prefix(prefix) or _AFTER_ALL


def _are_few(db: Connection, query: Query) -> bool:
    """Whether they are better found by their prefix, or by their end, than by their numbers."""
    if not query.prefix and query.ended_by is None:
        return False
    narrow = Query(prefix=query.prefix) if query.prefix else Query(ended_by=query.ended_by)
    conditions, values = _conditions(narrow)
    row = db.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM runs WHERE {' AND '.join(conditions)} LIMIT ?)",
        (*values, PAGE_MAX + 1),
    ).fetchone()
    return bool(row[0] <= PAGE_MAX)


def _is_tagged(run: Found, query: Query) -> bool:
    return query.tag is None or run.header.tags.get(query.tag[0]) == query.tag[1]
