"""A summary of a run: from its head and header, and its outcome."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from outlive.journal.headers import HIDDEN
from outlive.model.run import Run
from outlive.stores.types import Found, Header, Reading
from outlive.views.values import as_json, read_value

#: The replacement for a text that only a key opens.
SEALED = "(sealed)"

#: Read a journal after this seq to get its head and header alone.
AFTER_ALL = 1 << 62


def summary(found: Found | Reading) -> dict[str, Any]:
    """A summary of a run, without reading its journal."""
    head, header = found.head, found.header
    return {
        "id": head.run_id,
        "flow": header.flow,
        "version": header.version,
        "status": header.status,
        "reason": shown(header.reason),
        "seq": head.seq,
        "epoch": head.epoch,
        "link": head.link.hex(),
        "worker": head.worker,
        "started_at": iso(header.started_at),
        "wake_at": iso(header.wake_at) if header.wake_at else None,
        "ended_at": iso(header.ended_at),
        "duration_ms": None if header.ended_at is None else header.ended_at - header.started_at,
        "mail": head.posted - head.consumed,
        "queue": header.queue,
        "queue_key": header.queue_key or None,
        "priority": header.priority,
        "parent": header.parent,
        "tags": {name: shown(value) for name, value in header.tags.items()},
        "published": published(header),
    }


def published(header: Header) -> dict[str, Any] | str:
    """The newest published values as the header has them; sealed ones are masked."""
    if not header.published or header.published.startswith(HIDDEN):
        return shown(header.published) or {}
    try:
        return msgspec.json.decode(header.published, type=dict[str, Any])
    except msgspec.MsgspecError:
        return "(unreadable)"


def shown(text: str) -> str:
    """A text of a header; sealed text is masked."""
    return SEALED if text.startswith(HIDDEN) else text


def outcome(run: Run) -> tuple[Any, dict[str, str] | None]:
    """The flow's outcome as JSON, or the error that ended it."""
    error = run.error
    value = None if run.value is None else as_json(read_value(run.value))
    if error is None:
        return value, None
    return value, {"type": error.type_name, "message": error.message}


def iso(instant: int | None) -> str | None:
    """An instant (ms since 1970) as ISO text; None stays None."""
    if instant is None:
        return None
    try:
        when = datetime.fromtimestamp(instant / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{instant} ms since 1970"
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
