"""What stores that keep their journals in tables share: what is in columns, batches as waves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from outlive.errors import CorruptRecord
from outlive.store import DAMAGED, Entry, Found, Head, Header, QueueLimits

#: What a header's columns hold.
Value: TypeAlias = str | bytes | int | None

#: The columns of a queue's limits.
LIMITS = ("concurrency", "per_key", "per_worker", "rate", "rate_ms")

read_tags = msgspec.json.Decoder(dict[str, str]).decode
_write_tags = msgspec.json.Encoder().encode


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
        header.queue_key,
        header.priority,
        header.units,
        header.parent,
        _write_tags(header.tags).decode() if header.tags else "{}",
        header.reason,
        header.chapter,
        header.chapter_link,
    )


def limits_of(row: Sequence[int | None]) -> QueueLimits:
    """Limits from the values of their columns."""
    concurrency, per_key, per_worker, rate, rate_ms = row
    return QueueLimits(
        concurrency=concurrency,
        per_key=per_key,
        per_worker=per_worker,
        rate=rate,
        rate_ms=rate_ms or 1,
    )


def limit_values(limits: QueueLimits) -> tuple[int | None, ...]:
    """Limits as the values of their columns."""
    return (limits.concurrency, limits.per_key, limits.per_worker, limits.rate, limits.rate_ms)


def written_tag(name: str, value: str) -> str:
    """How a tag looks inside the ``tags`` column."""
    return _write_tags({name: value}).decode()[1:-1]


def damaged_run(error: CorruptRecord) -> Found:
    """A row that can't be read, for a list: it must not hide its neighbours."""
    head = Head(run_id=error.run_id, seq=0, epoch=0, link=b"")
    header = Header(
        flow="", version="", format=0, status=DAMAGED, family="", started_at=0, reason=error.why
    )
    return Found(head=head, header=header)


def is_append(entry: Entry) -> bool:
    """Whether an entry is a record and nothing else."""
    return (
        entry.header is None
        and entry.lease == "keep"
        and entry.after > 0
        and not entry.nodes
        and not entry.consumed
    )


def bytes_in(entry: Entry) -> int:
    """What an entry weighs, its record and its nodes."""
    size = len(entry.record)
    for node in entry.nodes:
        size += len(node.body)
    return size


def waves(batch: Sequence[Entry]) -> list[list[int]]:
    """The batch's positions, in waves in which no run occurs twice."""
    found: list[list[int]] = []
    times: dict[str, int] = {}
    for position, entry in enumerate(batch):
        wave = times.get(entry.run_id, 0)
        times[entry.run_id] = wave + 1
        if wave == len(found):
            found.append([])
        found[wave].append(position)
    return found
