"""Runs by what their header says, in the order of their creation.

Numbers are given before a run is committed, so a run may come up behind one with a higher number.
Whoever pages past that place at this very moment does not see it; the next listing does.
"""

from __future__ import annotations

from typing import Protocol

from outlive.store import Found, Query
from outlive.stores.asked import end_of_prefix
from outlive.stores.postgres_rows import FOUND_COLUMNS, listed_of
from outlive.stores.postgres_wire import TEXT, Parameter, Row, int8, text, writable
from outlive.stores.tables import written_tag


class Ask(Protocol):
    """Sends a statement, answers with its rows."""

    def __call__(self, sql: str, *parameters: Parameter) -> list[Row]: ...


def find_runs(ask: Ask, query: Query, begin: int, count: int) -> list[tuple[int, Found]]:
    """At most ``count`` runs, numbered above ``begin``, each with its number."""
    conditions, values = _conditions(query)
    sql = (
        f"SELECT r.id, {FOUND_COLUMNS} FROM {{s}}.runs r"
        f" WHERE {' AND '.join(conditions)} ORDER BY r.id LIMIT $2"
    )
    found: list[tuple[int, Found]] = []
    while True:
        rows = ask(sql, int8(begin), int8(count), *values)
        listed = [(row[0], listed_of(row[1:])) for row in rows]
        found += [(number, run) for number, run in listed if _is_tagged(run, query)]
        if len(rows) < count or len(found) >= count:
            return found[:count]
        begin = rows[-1][0]


def _conditions(query: Query) -> tuple[list[str], list[Parameter]]:
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
    conditions, values = ["r.id > $1"], list[Parameter]()
    for condition, value in asked:
        if value is not None:
            values.append(value)
            conditions.append(condition.format(len(values) + 2))
    return conditions, values


def _end_of_prefix(prefix: str | None) -> Parameter | None:
    """Of the prefix as it is written."""
    end = end_of_prefix(writable(prefix)) if prefix else ""
    return (TEXT, end.encode()) if end else None


def _text(value: str | None) -> Parameter | None:
    return None if value is None else text(value)


def _is_tagged(run: Found, query: Query) -> bool:
    return query.tag is None or run.header.tags.get(query.tag[0]) == query.tag[1]
