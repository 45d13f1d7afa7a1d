"""Headers: the searchable summary of a run in the store, made from its fold."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from outlive.errors import RunIdTaken
from outlive.journal.codec.values import Values, parted_body
from outlive.journal.lane import Lane
from outlive.journal.record import FORMAT, LINK_START, pack
from outlive.model.events import Event, encode_events
from outlive.model.kinds import KIND_BITS
from outlive.model.queues import QueuePlace
from outlive.model.run import Run
from outlive.model.shared import Brief
from outlive.stores.seam import Store
from outlive.stores.types import Entry, Head, Header

T = TypeVar("T")

_NO_PLACE = QueuePlace()
#: The prefix of a sealed store's text, which only a key opens.
HIDDEN = "~1:"


def header_of(run: Run, chapter_link: bytes = b"") -> Header:
    """The header of a run, as the store shows it."""
    if run.brief is not None and run.started is None:
        return brief_header(run.brief)
    if run.started is None:
        return _header_beside(run)
    start, place = run.started, run.started.place or _NO_PLACE
    return Header(
        flow=start.flow,
        version=start.version,
        format=FORMAT,
        status=run.shown_status,
        family=start.family,
        started_at=start.started_at,
        wake_at=run.wake_at,
        ended_at=run.ended_at,
        queue=start.queue,
        queue_key=place.key,
        priority=place.priority,
        units=place.units,
        parent=start.parent,
        tags=start.tags,
        reason=_reason(run),
        chapter=0 if run.chapter is None else run.chapter.seq,
        chapter_link=chapter_link,
    )


def _header_beside(run: Run) -> Header:
    """The header of a mark or a key: only a mark's id names its run."""
    if run.marked is not None:
        return key_header("mark", ended_at=run.marked.at)
    if run.kept is not None:
        return key_header("kept", ended_at=run.kept.at)
    return key_header()


def brief_header(brief: Brief) -> Header:
    """The header of a journal that is not a run's: never due, never driven."""
    return Header(
        flow="",
        version="",
        format=FORMAT,
        status=brief.status,
        family=brief.family,
        started_at=brief.started_at,
        ended_at=brief.ended_at,
    )


def _reason(run: Run) -> str:
    if run.error is not None:
        return f"{run.error.type_name}: {run.error.message}"[:500]
    return run.reason[:500]


def key_header(
    status: str = "held", *, ended_at: int | None = None, parent: str | None = None
) -> Header:
    """The header of a key's journal, or of a mark: never due, never driven."""
    return Header(
        flow="",
        version="",
        format=FORMAT,
        status=status,
        family="",
        started_at=0,
        wake_at=None,
        ended_at=ended_at,
        parent=parent,
    )


def first_entry(journal: str, event: Event, header: Header) -> Entry:
    """Make the entry that creates a journal."""
    body, nodes, flags = parted_body([event], Values())
    kinds = KIND_BITS[type(event)]
    record, link = pack(
        journal, prev=LINK_START, epoch=0, seq=1, kinds=kinds, body=body, flags=flags
    )
    return Entry(
        run_id=journal,
        after=0,
        last=1,
        epoch=0,
        record=record,
        link=link,
        header=header,
        nodes=nodes,
    )


def next_entry(
    head: Head, event: Event, header: Header, *, epoch: int, taken_by: str | None = None
) -> Entry:
    """Make the entry that follows a head; with ``taken_by`` it takes the lease."""
    kinds, body = KIND_BITS[type(event)], encode_events([event])
    record, link = pack(
        head.run_id, prev=head.link, epoch=epoch, seq=head.seq + 1, kinds=kinds, body=body
    )
    return Entry(
        run_id=head.run_id,
        after=head.seq,
        last=head.seq + 1,
        epoch=epoch,
        record=record,
        link=link,
        header=header,
        lease="keep" if taken_by is None else "take",
        worker=taken_by,
    )


#: The delay between two attempts, which doubles; and their number: about a minute in all.
_PAUSE_FIRST, _PAUSE_MAX = 0.02, 1.0
_TRIES_MAX = 65


async def find_or_begin(
    store: Store, lane: Lane, entry: Entry, read: Callable[[], Awaitable[T | None]]
) -> T | None:
    """The run whose first entry was refused; None: the id belonged to one that was deleted.

    Raises:
        RunIdTaken: the transaction that holds the id does not end.
    """
    pause = _PAUSE_FIRST
    for _ in range(_TRIES_MAX):
        found = await read()
        if found is not None:
            return found
        (answer,) = await lane(store.commit([entry]))
        if answer is not None and answer.gone:
            return None
        if answer is not None and answer.seq == 0:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX)
    raise RunIdTaken(entry.run_id, "a transaction that is still open has begun it")
