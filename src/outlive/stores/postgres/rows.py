"""Rows of ``runs`` to heads and headers, and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

import msgspec

from outlive.errors import CorruptRecord
from outlive.stores.plans import IndexedText, RunSearch, SendSQL, conditions, journals
from outlive.stores.postgres.wire import (
    TEXT,
    Parameter,
    Row,
    blobs,
    int8,
    int8s,
    text,
    texts,
)
from outlive.stores.shared import (
    check_numbers,
    damaged_run,
    has_tags,
    header_values,
    not_a_page,
    read_tags,
)
from outlive.stores.types import (
    PAGE_MAX,
    Changes,
    Entry,
    Found,
    Head,
    Header,
    Mail,
    Posted,
    Posting,
    Query,
)

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


def find_journals(ask: Ask, query: Query, begin: int, count: int) -> list[tuple[int, Found]]:
    """At most ``count`` journals of any kind, numbered above ``begin``, each with its number."""
    # A sum keeps the server from going through all of them, where it had better not.
    number = "id + 0" if not query.all_tags and _are_few(ask, query) else "id"
    sql, values = journals(query, _NAMES, number, lateral=True)
    found: list[tuple[int, Found]] = []
    while True:
        rows = asking(ask)(sql, (begin, *values, count))
        listed = [(row[0], listed_of(tuple(row[1:]))) for row in rows]
        found += [(number, run) for number, run in listed if has_tags(query, run.header.tags)]
        if len(rows) < count or len(found) >= count:
            return found[:count]
        begin = rows[-1][0]


def _are_few(ask: Ask, query: Query) -> bool:
    """Whether they are better found by their prefix, or by their end, than by their numbers."""
    if not query.prefix and query.ended_by is None:
        return False
    narrow = Query(prefix=query.prefix) if query.prefix else Query(ended_by=query.ended_by)
    asked = conditions(narrow)
    where = " AND ".join(sql for sql, _ in asked)
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {{tables}}runs WHERE {where} LIMIT ?) AS x"
    values = [value for _, each in asked for value in each]
    ((count,),) = asking(ask)(sql, (*values, PAGE_MAX + 1))
    return bool(count <= PAGE_MAX)


def asking(ask: Ask) -> SendSQL:
    """Sends SQL with a "?" for each value."""

    def send(sql: str, values: Sequence[str | int | None], /) -> list[Row]:
        parts = sql.replace("{tables}", "{s}.").split("?")
        numbered = [f"{part}${number}" for number, part in enumerate(parts[:-1], 1)]
        return ask("".join([*numbered, parts[-1]]), *map(_parameter, values))

    return send


def _parameter(value: str | int | None) -> Parameter:
    if isinstance(value, IndexedText):
        return TEXT, value.encode()
    return int8(value) if isinstance(value, int) else text(value)


def search_of(ask: Ask) -> RunSearch:
    """What finds runs on this server."""
    return RunSearch(asking(ask), _NAMES, lambda row: listed_of(tuple(row)), lateral=True)


_SNAPSHOT = r"\d{1,19}:\d{1,19}:(?:\d{1,19}(?:,\d{1,19})*)?"
#: Where a look ended; or two of those and the run in the middle of what moved between them.
_FEED = re.compile(rf"({_SNAPSHOT})(?:\|({_SNAPSHOT})\|(.*))?", re.ASCII | re.DOTALL)
_MOVED = f"""
SELECT {FOUND_COLUMNS} FROM {{s}}.moved_v1($1, $2, $3, $4) AS m (run_id)
CROSS JOIN LATERAL (SELECT * FROM {{s}}.runs r WHERE r.run_id = m.run_id LIMIT 1) AS r
ORDER BY r.run_id
"""


def moved_after(ask: Ask, after: str | None, limit: int) -> Changes:
    """Runs with records that became visible since a look; snapshots tell which did.

    A snapshot knows every transaction that was under way: none is lost that ends late, whatever
    its number is, and none is told twice.
    """
    found = None if after is None else _FEED.fullmatch(after)
    if after is not None and found is None:
        raise not_a_page(after)
    until = found[2] if found else None
    if until is None:
        ((until,),) = ask("SELECT txid_current_snapshot()::text")
    if found is None:
        return Changes(items=(), next=until)
    begin = text(found[3] or "")
    rows = ask(_MOVED, text(found[1]), text(until), begin, int8(limit))
    items = [listed_of(row) for row in rows]
    following = f"{found[1]}|{until}|{rows[-1][0]}" if len(rows) == limit else until
    return Changes(items=[each for each in items if each.header.flow], next=following)


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
