"""Rows of ``runs`` to heads and headers, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from outlive.errors import CorruptRecord
from outlive.stores.plans import IS_RUN, LOOKED_AT_MAX, RunSearch, conditions, journals
from outlive.stores.shared import check_numbers, damaged_run, has_tags, read_tags
from outlive.stores.sqlite.connections import Connection
from outlive.stores.types import PAGE_MAX, Found, Head, Header, Query, StoredRecord

HEAD_COLUMNS = "run_id, seq, epoch, link, worker, posted, consumed"
HEADER_COLUMNS = (
    "flow, version, format, status, family, started_at, wake_at, ended_at, queue, queue_key,"
    " priority, units, parent, tags, reason, chapter, chapter_link, error, published, questions"
)
#: What ``found_of`` reads; whatever is selected before it is the caller's.
FOUND_COLUMNS = f"{HEAD_COLUMNS}, {HEADER_COLUMNS}"
#: A run by its id: by the index, and, where that finds nothing, by another one.
NAMED = ("run_id = ?", "run_id || '' = ?")
_HEAD_NAMES = HEAD_COLUMNS.split(", ")
_HEADER_NAMES = HEADER_COLUMNS.split(", ")
_FOUND_WIDTH = len(_HEAD_NAMES) + len(_HEADER_NAMES)

#: Only made: msgspec looks at a class once, and the first row that is read need not wait for it.
_LOOKED_AT = msgspec.msgpack.Decoder(Found)


def found_of(row: Sequence[Any]) -> Found:
    """Head and header from the last columns of a row.

    Raises:
        CorruptRecord: the row holds what was never written.
    """
    row = row[-_FOUND_WIDTH:]
    try:
        head = msgspec.convert(dict(zip(_HEAD_NAMES, row, strict=False)), Head)
        named = dict(zip(_HEADER_NAMES, row[len(_HEAD_NAMES) :], strict=True))
        named["tags"] = read_tags(named["tags"])
        return check_numbers(Found(head=head, header=msgspec.convert(named, Header)))
    except (msgspec.MsgspecError, TypeError) as error:
        raise CorruptRecord(str(row[0]), 0, f"its row is damaged ({error})") from error


def check_missing(db: Connection, run_id: str) -> None:
    """Confirm that there is no such run, by another index than the one that did not find it.

    Raises:
        CorruptRecord: there is one; the index is damaged.
    """
    if db.execute(f"SELECT 1 FROM runs WHERE {NAMED[1]}", (run_id,)).fetchone() is not None:
        why = (
            "the index of runs does not have it; stop the workers, then let SQLite REINDEX the file"
        )
        raise CorruptRecord(run_id, 0, why)


def listed_of(row: Sequence[Any]) -> Found:
    """The same for a list, where a damaged row must not hide its neighbours: listed as such."""
    try:
        return found_of(row)
    except CorruptRecord as error:
        return damaged_run(error)


def records_of(run_id: str, rows: Sequence[Any]) -> list[StoredRecord]:
    """Rows of (seq, body).

    Raises:
        CorruptRecord: a row holds what was never written.
    """
    return [
        StoredRecord(seq, body)
        if type(body) is bytes and type(seq) is int
        else _damaged(run_id, seq)
        for seq, body in rows
    ]


def bytes_of(value: object) -> bytes:
    """What a column holds that holds bytes; whatever else somebody put there is damage above."""
    return value if isinstance(value, bytes) else repr(value).encode()


def _damaged(run_id: str, seq: Any) -> NoReturn:
    raise CorruptRecord(run_id, int(seq or 0), "its row is damaged")


def find_journals(db: Connection, query: Query, begin: int, count: int) -> list[tuple[int, Found]]:
    """At most ``count`` journals of any kind, numbered above ``begin``, each with its number."""
    # A plus keeps SQLite from going through all of them in their order, where it had better not.
    number = "+id" if not query.all_tags and _are_few(db, query) else "id"
    names = [*_HEAD_NAMES, *_HEADER_NAMES]
    sql, values = journals(query, names, number, lateral=False)
    found: list[tuple[int, Found]] = []
    while True:
        rows = db.execute(sql.replace("{tables}", ""), (begin, *values, count)).fetchall()
        listed = [(row[0], listed_of(row)) for row in rows]
        found += [(number, run) for number, run in listed if has_tags(query, run.header.tags)]
        if len(rows) < count or len(found) >= count:
            return found[:count]
        begin = rows[-1][0]


def _are_few(db: Connection, query: Query) -> bool:
    """Whether they are better found by their prefix, or by their end, than by their numbers."""
    if not query.prefix and query.ended_by is None:
        return False
    narrow = Query(prefix=query.prefix) if query.prefix else Query(ended_by=query.ended_by)
    asked = conditions(narrow)
    row = db.execute(
        "SELECT count(*) FROM (SELECT 1 FROM runs"
        f" WHERE {' AND '.join(sql for sql, _ in asked)} LIMIT ?)",
        (*(value for _, each in asked for value in each), PAGE_MAX + 1),
    ).fetchone()
    return bool(row[0] <= PAGE_MAX)


def search_of(db: Connection) -> RunSearch:
    """What finds runs over this connection."""

    def ask(sql: str, values: Sequence[Any]) -> list[Any]:
        return db.execute(sql.replace("{tables}", ""), values).fetchall()

    return RunSearch(ask, [*_HEAD_NAMES, *_HEADER_NAMES], listed_of, lateral=False)


def moved_after(db: Connection, last: int | None, limit: int) -> tuple[list[Found], int]:
    """Runs that have records with a higher number, by the last of these, and where to go on."""
    if last is None:
        (newest,) = db.execute("SELECT max(id) FROM records").fetchone()
        return [], newest or 0
    rows = db.execute(
        "SELECT run, max(id) FROM (SELECT id, run FROM records WHERE id > ? ORDER BY id LIMIT ?)"
        " GROUP BY run ORDER BY 2 LIMIT ?",
        (last, LOOKED_AT_MAX, limit),
    ).fetchall()
    numbers = {number: place for place, (number, _) in enumerate(rows)}
    marks = ",".join("?" * len(numbers))
    found = db.execute(
        f"SELECT id, {FOUND_COLUMNS} FROM runs WHERE id IN ({marks}) AND {IS_RUN}", list(numbers)
    ).fetchall()
    found.sort(key=lambda row: numbers[row[0]])
    return [listed_of(row) for row in found], rows[-1][1] if rows else last
