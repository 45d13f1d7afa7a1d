"""Entries that begin something: a run, or a worker's right to drive it."""

from __future__ import annotations

import msgspec

from outlive.journal.headers import first_entry, header_of, next_entry
from outlive.model.events import Claimed, RunStarted
from outlive.model.run import ENDED, fold
from outlive.stores.types import Entry, Header, Offer


def claim_entry(offer: Offer, worker: str, now: int) -> tuple[Entry, Claimed]:
    """The entry whose commit takes the offered lease and fences whoever held it; its event."""
    head, header = offer.head, offer.header
    epoch = head.epoch + 1
    # A run that nobody holds was handed over alive: its last attempts may still be running.
    certain = offer.certain and head.worker is not None
    claimed = Claimed(max(0, now - header.started_at), epoch, worker, certain)
    return next_entry(head, claimed, _claimed(header), epoch=epoch, taken_by=worker), claimed


def _claimed(header: Header) -> Header:
    """What the run shows once it is driven again, as its journal's fold will say."""
    if header.status in ENDED:
        return header  # only its parent has to be told
    # A doubt that waits for a human is shown until it is settled, whoever drives the run.
    status = header.status if header.status in ("in_doubt", "undoing") else "running"
    return msgspec.structs.replace(header, status=status, wake_at=0, reason="")


def start_entry(run_id: str, event: RunStarted) -> Entry:
    """A run that somebody else will drive; a child joins its parent's family."""
    entry = first_entry(run_id, event, header_of(fold([event])))
    is_child = event.family != run_id
    return msgspec.structs.replace(entry, joins=event.parent) if is_child else entry
