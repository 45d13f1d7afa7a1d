"""Rows of ``runs`` to heads and headers, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from outlive.store import Found, Head, Header
from outlive.stores.sqlite_connections import Value

HEAD_COLUMNS = "run_id, seq, epoch, link, worker, posted, consumed"
HEADER_COLUMNS = (
    "flow, version, format, status, family, started_at, wake_at, ended_at, queue, parent, tags,"
    " reason"
)
#: What ``found_of`` reads; whatever is selected before it is the caller's.
FOUND_COLUMNS = f"{HEAD_COLUMNS}, {HEADER_COLUMNS}"
_FOUND_WIDTH = FOUND_COLUMNS.count(",") + 1
_HEAD_WIDTH = HEAD_COLUMNS.count(",") + 1

_read_tags = msgspec.json.Decoder(dict[str, str]).decode
_write_tags = msgspec.json.Encoder().encode


def found_of(row: Sequence[Any]) -> Found:
    """Head and header from the last columns of a row."""
    row = row[-_FOUND_WIDTH:]
    return Found(head=_head_of(row[:_HEAD_WIDTH]), header=_header_of(row[_HEAD_WIDTH:]))


def header_values(header: Header) -> tuple[Value, ...]:
    """A header as the values of its columns."""
    return (
        header.flow,
        header.version,
        header.format,
        header.status,
        header.family,
        header.started_at,
        header.wake_at,
        header.ended_at,
        header.queue,
        header.parent,
        _write_tags(header.tags).decode() if header.tags else "{}",
        header.reason,
    )


def written_tag(name: str, value: str) -> str:
    """How a tag looks inside the ``tags`` column."""
    return _write_tags({name: value}).decode()[1:-1]


def _head_of(row: Sequence[Any]) -> Head:
    run_id, seq, epoch, link, worker, posted, consumed = row
    return Head(
        run_id=run_id,
        seq=seq,
        epoch=epoch,
        link=link,
        worker=worker,
        posted=posted,
        consumed=consumed,
    )


def _header_of(row: Sequence[Any]) -> Header:
    flow, version, format_, status, family, started, wake, ended, queue, parent, tags, reason = row
    return Header(
        flow=flow,
        version=version,
        format=format_,
        status=status,
        family=family,
        started_at=started,
        wake_at=wake,
        ended_at=ended,
        queue=queue,
        parent=parent,
        tags={} if tags == "{}" else _read_tags(tags),
        reason=reason,
    )
