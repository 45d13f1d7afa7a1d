"""Rows of ``runs`` to heads and headers, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

import msgspec

from outlive.errors import CorruptRecord
from outlive.stores.postgres.wire import (
    TEXT,
    Parameter,
    Row,
    blobs,
    int8,
    int8s,
    text,
    texts,
    writable,
)
from outlive.stores.shared import (
    check_numbers,
    damaged_run,
    end_of_prefix,
    header_values,
    read_tags,
    written_tag,
)
from outlive.stores.types import PAGE_MAX, Entry, Found, Head, Header, Mail, Posted, Posting, Query

_HEADER = (
    "flow, version, format, status, family, started_at, wake_at, ended_at, queue, queue_key,"
    " priority, units, parent, tags, reason, chapter, chapter_link, error, published, questions"
)
HEADER_TYPES = {
    "format": "bigint",
    "started_at": "bigint",
    "wake_at": "bigint",
    "ended_at": "bigint",
    "priority": "bigint",
    "units": "bigint",
    "chapter": "bigint",
    "chapter_link": "bytea",
}
HEADER_NAMES = tuple(_HEADER.split(", "))
_HEAD_NAMES = ("run_id", "seq", "epoch", "link", "worker", "posted", "consumed")
_NAMES = (*_HEAD_NAMES, *HEADER_NAMES)
#: What ``found_of`` reads, of a table called ``r``.
FOUND_COLUMNS = ", ".join(f"r.{name}" for name in _NAMES)
_TAGS = HEADER_NAMES.index("tags")

_NO_HEADER: Row = (None,) * len(HEADER_NAMES)


def found_of(row: Row) -> Found:
    """Head and header from the columns of ``FOUND_COLUMNS``.

    Raises:
        CorruptRecord: the row holds what was never written.
    """
    head, header = row[: len(_HEAD_NAMES)], list(row[len(_HEAD_NAMES) :])
    try:
        header[_TAGS] = read_tags(header[_TAGS])
        found = Found(
            head=Head(**dict(zip(_HEAD_NAMES, head, strict=True))),
            header=Header(**dict(zip(HEADER_NAMES, header, strict=True))),
        )
        return check_numbers(found)
    except (msgspec.MsgspecError, TypeError) as error:
        raise CorruptRecord(str(row[0]), 0, f"its row is damaged ({error})") from error


def listed_of(row: Row) -> Found:
    """The same for a list, where a damaged row must not hide its neighbours: listed as such."""
    try:
        return found_of(row)
    except CorruptRecord as error:
        return damaged_run(error)


def header_parameters(entries: Sequence[Entry]) -> list[Parameter]:
    """The headers of entries, an array per column; NULLs for an entry with none."""
    rows = [_values(entry.header) for entry in entries]
    columns = list(zip(*rows, strict=True))
    return [
        (blobs if name == "chapter_link" else int8s if name in _NUMBERS else texts)(column)
        for name, column in zip(HEADER_NAMES, columns, strict=True)
    ]


_NUMBERS = frozenset(
    {"format", "started_at", "wake_at", "ended_at", "chapter", "priority", "units"}
)


def _values(header: Header | None) -> Row:
    return _NO_HEADER if header is None else header_values(header)


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


_MARK_BYTES = 8
# In the order of the ids, so that two who post to the same runs wait for one another in one order.
POST_ALL = """
SELECT p.answer, p.holder FROM (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[])
        WITH ORDINALITY AS g (run_id, mail_id, body, mark, place) ORDER BY g.place
) AS g CROSS JOIN LATERAL {s}.post_v2(g.run_id, g.mail_id, g.body, g.mark, $5) AS p
ORDER BY g.place
"""
MAIL_OF = """
SELECT m.run_id, m.mail_id, m.body, m.posted_at FROM {s}.mail m
WHERE m.run_id = ANY ($1) AND m.body IS NOT NULL ORDER BY m.number
"""

#: Sends a statement, answers with its rows.
AskRows = Callable[..., list[Row]]


def post_all(
    ask: AskRows, batch: Sequence[Posting], entropy: Callable[[int], bytes], now: int | None
) -> tuple[list[Posted], set[str | None]]:
    """How each was answered, and who holds the runs that got mail (None: nobody)."""
    order = sorted(range(len(batch)), key=lambda place: batch[place].run_id)
    sent = [batch[place] for place in order]
    parameters: list[Parameter] = [
        texts([each.run_id for each in sent]),
        texts([each.mail_id for each in sent]),
        blobs([each.body for each in sent]),
        blobs([entropy(_MARK_BYTES) for _ in sent]),
        int8(now),
    ]
    answered = dict(zip(order, ask(POST_ALL, *parameters), strict=True))
    answers = [cast(Posted, answered[place][0]) for place in range(len(batch))]
    return answers, {holder for answer, holder in answered.values() if answer == "posted"}


def mail_of(ask: AskRows, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mail]]:
    """What waits for each of these runs."""
    found: dict[str, list[Mail]] = {run_id: [] for run_id in run_ids}
    for run_id, mail_id, body, posted_at in ask(MAIL_OF, texts(run_ids)):
        found[run_id].append(Mail(mail_id=mail_id, body=body, posted_at=posted_at))
    return found
