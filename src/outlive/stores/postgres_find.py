"""Runs by what their header says, in the order of their creation.

Numbers are given before a run is committed, so a run may come up behind one with a higher number.
Whoever pages past that place at this very moment does not see it; the next listing does.
"""

from __future__ import annotations

from typing import Protocol

from outlive.store import PAGE_MAX, Found, Query
from outlive.stores.asked import end_of_prefix
from outlive.stores.postgres_rows import FOUND_COLUMNS, listed_of
from outlive.stores.postgres_wire import TEXT, Parameter, Row, int8, text, writable
from outlive.stores.tables import written_tag


class Ask(Protocol):
    """Sends a statement, answers with its rows."""

    def __call__(self, sql: str, *parameters: Parameter) -> list[Row]: ...


def find_runs(ask: Ask, query: Query, begin: int, count: int) -> list[tuple[int, Found]]:
    """At most ``count`` runs, numbered above ``begin``, each with its number."""
    # A sum keeps the server from going through all runs in their order, where it had better not.
    number = "r.id + 0" if _are_few(ask, query) else "r.id"
    conditions, values = _conditions(query, 3)
    where = " AND ".join([f"{number} > $1", *conditions])
    sql = f"SELECT r.id, {FOUND_COLUMNS} FROM {{s}}.runs r WHERE {where} ORDER BY {number} LIMIT $2"
    found: list[tuple[int, Found]] = []
    while True:
        rows = ask(sql, int8(begin), int8(count), *values)
        listed = [(row[0], listed_of(row[1:])) for row in rows]
        found += [(number, run) for number, run in listed if _is_tagged(run, query)]
        if len(rows) < count or len(found) >= count:
            return found[:count]
        begin = rows[-1][0]


def _are_few(ask: Ask, query: Query) -> bool:
    """Whether they are better found by their prefix, or by their end, than by their numbers."""
    if not query.prefix and query.ended_by is None:
        return False
    narrow = Query(prefix=query.prefix) if query.prefix else Query(ended_by=query.ended_by)
    conditions, values = _conditions(narrow, 2)
    where = " AND ".join(conditions)
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {{s}}.runs r WHERE {where} LIMIT $1) AS x"
    ((count,),) = ask(sql, int8(PAGE_MAX + 1), *values)
    return bool(count <= PAGE_MAX)


def _conditions(query: Query, first: int) -> tuple[list[str], list[Parameter]]:
    """What is asked, with parameters from the first on."""
    asked = [
        ("r.status = ${}", _text(query.status)),
        ("r.flow = ${}", _text(query.flow)),
        # Finds every run that has the tag and perhaps a few that do not: see _is_tagged.
        ("strpos(r.tags, ${}) > 0", _text(query.tag and written_tag(*query.tag))),
        # Two bounds, so that an index finds them.
        ("r.run_id >= ${}", _text(query.prefix or None)),
        ("r.run_id < ${}", _end_of_prefix(query.prefix)),
        ("r.ended_at <= ${}", None if query.ended_by is None else int8(query.ended_by)),
    ]
    conditions, values = list[str](), list[Parameter]()
    for condition, value in asked:
        if value is not None:
            conditions.append(condition.format(first + len(values)))
            values.append(value)
    return conditions, values


def _end_of_prefix(prefix: str | None) -> Parameter | None:
    """Of the prefix as it is written."""
    end = end_of_prefix(writable(prefix)) if prefix else ""
    return (TEXT, end.encode()) if end else None


def _text(value: str | None) -> Parameter | None:
    return None if value is None else text(value)


def _is_tagged(run: Found, query: Query) -> bool:
    return query.tag is None or run.header.tags.get(query.tag[0]) == query.tag[1]
