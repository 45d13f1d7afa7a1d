"""Which journals in memory are meant: by those who look for runs, and by workers."""

from __future__ import annotations

from outlive.store import DEFAULT_QUEUE, Header, Query, Wanted


def is_asked(query: Query, run_id: str, header: Header) -> bool:
    """Whether a query asks for this run."""
    return (
        query.status in (None, header.status)
        and query.flow in (None, header.flow)
        and (query.tag is None or header.tags.get(query.tag[0]) == query.tag[1])
        and run_id.startswith(query.prefix or "")
        and (query.ended_by is None or _ended_by(header, query.ended_by))
    )


def is_wanted(wanted: Wanted, run_id: str, header: Header) -> bool:
    """Whether a worker is able and willing to drive this run."""
    return (
        header.version in wanted.flows.get(header.flow, ())
        and header.format <= wanted.format
        and (wanted.run_ids is None or run_id in wanted.run_ids)
        and _is_in_queues(wanted, header)
    )


def _is_in_queues(wanted: Wanted, header: Header) -> bool:
    if header.queue == DEFAULT_QUEUE:
        return wanted.takes_unqueued(header.flow)
    return wanted.queues is None or header.queue in wanted.queues


def _ended_by(header: Header, instant: int) -> bool:
    return header.ended_at is not None and header.ended_at <= instant
