"""Runs by what their header says, in the order of their creation."""

from __future__ import annotations

from outlive.store import Found, Query
from outlive.stores.asked import end_of_prefix
from outlive.stores.sqlite_connections import Connection, Value
from outlive.stores.sqlite_rows import FOUND_COLUMNS, listed_of
from outlive.stores.tables import written_tag


def find_runs(db: Connection, query: Query, begin: int, count: int) -> list[tuple[int, Found]]:
    """At most ``count`` runs, numbered above ``begin``, each with its number."""
    conditions, values = _conditions(query)
    sql = (
        f"SELECT id, {FOUND_COLUMNS} FROM runs WHERE {' AND '.join(conditions)} ORDER BY id LIMIT ?"
    )
    found: list[tuple[int, Found]] = []
    while True:
        rows = db.execute(sql, (begin, *values, count)).fetchall()
        found += [(row[0], run) for row in rows if _is_tagged(run := listed_of(row), query)]
        if len(rows) < count or len(found) >= count:
            return found[:count]
        begin = rows[-1][0]


def _conditions(query: Query) -> tuple[list[str], list[Value]]:
    conditions, values = ["id > ?"], list[Value]()
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
        conditions.append("run_id >= ?")
        values.append(query.prefix)
        end = end_of_prefix(query.prefix)
        if end:
            conditions.append("run_id < ?")
            values.append(end)
    return conditions, values


def _is_tagged(run: Found, query: Query) -> bool:
    return query.tag is None or run.header.tags.get(query.tag[0]) == query.tag[1]
