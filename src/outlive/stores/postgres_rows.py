"""Rows of ``runs`` to heads and headers, and back."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outlive.errors import CorruptRecord
from outlive.store import Entry, Found, Head, Header
from outlive.stores.postgres_functions import HEADER_NAMES
from outlive.stores.postgres_wire import Parameter, Row, blobs, int8s, texts
from outlive.stores.tables import check_numbers, damaged_run, header_values, read_tags

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
