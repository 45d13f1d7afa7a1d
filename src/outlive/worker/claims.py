"""Entries that begin something: a run, or a worker's right to drive it."""

from __future__ import annotations

import msgspec

from outlive.journal.headers import header_of
from outlive.journal.record import LINK_START, pack
from outlive.model.events import KIND_BITS, Claimed, RunStarted, encode_events
from outlive.model.run import ENDED, fold
from outlive.store import Entry, Header, Offer


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
    return Entry(
        run_id=head.run_id,
        after=head.seq,
        last=head.seq + 1,
        epoch=epoch,
        record=record,
        link=link,
        header=_claimed(header),
        lease="take",
        worker=worker,
    )


def _claimed(header: Header) -> Header:
    """What the run shows once it is driven again, as its journal's fold will say."""
    if header.status in ENDED:
        return header  # only its parent has to be told
    # A doubt that waits for a human is shown until it is settled, whoever drives the run.
    status = header.status if header.status in ("in_doubt", "undoing") else "running"
    return msgspec.structs.replace(header, status=status, wake_at=0, reason="")


def start_entry(run_id: str, event: RunStarted) -> Entry:
    """A run that somebody else will drive."""
    record, link = pack(
        run_id,
        prev=LINK_START,
        epoch=0,
        seq=1,
        kinds=KIND_BITS[RunStarted],
        body=encode_events([event]),
    )
    header = header_of(fold([event]))
    return Entry(run_id=run_id, after=0, last=1, epoch=0, record=record, link=link, header=header)
