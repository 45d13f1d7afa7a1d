"""Claiming: the append that makes a worker the driver of a run."""

from __future__ import annotations

import msgspec

from outlive.journal.record import pack
from outlive.model.events import KIND_BITS, Claimed, encode_events
from outlive.store import Entry, Offer


def claim_entry(offer: Offer, worker: str, now: int) -> Entry:
    """The entry whose commit takes the offered lease, and fences whoever held it."""
    head, header = offer.head, offer.header
    epoch = head.epoch + 1
    # A run that nobody holds was handed over alive: its last attempts may still be running.
    certain = offer.certain and head.worker is not None
    claimed = Claimed(max(0, now - header.started_at), epoch, worker, certain)
    record, link = pack(
        head.run_id,
        prev=head.link,
        epoch=epoch,
        seq=head.seq + 1,
        kinds=KIND_BITS[Claimed],
        body=encode_events([claimed]),
    )
    # A doubt that waits for a human is shown until it is settled, whoever drives the run.
    status = "in_doubt" if header.status == "in_doubt" else "running"
    return Entry(
        run_id=head.run_id,
        after=head.seq,
        last=head.seq + 1,
        epoch=epoch,
        record=record,
        link=link,
        header=msgspec.structs.replace(header, status=status, wake_at=0, reason=""),
        lease="take",
        worker=worker,
    )
