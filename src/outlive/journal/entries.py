"""Entries of one event: what is written by others than a run's driver."""

from __future__ import annotations

from outlive.journal.record import LINK_START, pack
from outlive.journal.values import Values, parted_body
from outlive.model.events import Event, encode_events
from outlive.model.kinds import KIND_BITS
from outlive.store import Entry, Head, Header


def first_entry(journal: str, event: Event, header: Header) -> Entry:
    """The entry that begins a journal."""
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
    """The entry that follows a head; with ``taken_by`` it takes the lease."""
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
