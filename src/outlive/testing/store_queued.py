"""Runs in queues, and a worker's way of taking them: for tests of stores."""

from __future__ import annotations

from typing import Any

import msgspec

from outlive.store import Entry, Offer, Queueing, QueueLimits, Store, Wanted
from outlive.testing.store_entries import START_MS, WANTED, entry, header


def queued(run_id: str, queue: str = "q", **changes: Any) -> Entry:
    """A new run that waits in a queue."""
    place = {"status": "pending", "wake_at": START_MS, "queue": queue} | changes
    return entry(run_id, 0, epoch=0, header=header(**place))


def claim_of(offer: Offer, worker: str, number: int = 0) -> Entry:
    """The entry that takes an offered run; with another number it is no repeat of one before."""
    head = offer.head
    driven = msgspec.structs.replace(offer.header, status="running", wake_at=0)
    record = b"claimed by %s in %d, %d" % (worker.encode(), head.epoch + 1, number)
    taken: dict[str, Any] = {"lease": "take", "worker": worker, "header": driven}
    return entry(head.run_id, head.seq, record, epoch=head.epoch + 1, **taken)


class Desk:
    """A worker that takes runs, parks them and ends them by hand."""

    def __init__(self, store: Store, worker: str, wanted: Wanted = WANTED) -> None:
        self.store, self.worker, self.wanted = store, worker, wanted
        self.held: dict[str, Offer] = {}

    async def offered(self, limit: int = 100) -> list[str]:
        """What it may take."""
        claims = await self.store.claim(self.worker, self.wanted, limit)
        return [offer.head.run_id for offer in claims.offers]

    async def take(self, limit: int = 100) -> list[str]:
        """Take what is offered; which runs it got."""
        claims = await self.store.claim(self.worker, self.wanted, limit)
        return await self.take_these(list(claims.offers))

    async def take_these(self, offers: list[Offer]) -> list[str]:
        """Take these, whatever the store would offer."""
        answers = await self.store.commit([claim_of(offer, self.worker) for offer in offers])
        won = [offer for offer, no in zip(offers, answers, strict=True) if no is None]
        self.held |= {offer.head.run_id: offer for offer in won}
        return [offer.head.run_id for offer in won]

    async def leave(self, run_id: str, *, wake_at: int | None = None, ends: bool = False) -> None:
        """Let go of a run: it waits, or it ended."""
        before = self.held.pop(run_id)
        changes: dict[str, Any] = {"status": "waiting", "wake_at": wake_at}
        if ends:
            changes = {"status": "completed", "wake_at": None, "ended_at": START_MS}
        shown = msgspec.structs.replace(before.header, **changes)
        head, what = before.head, b"left"
        answer = await self.store.commit(
            [entry(run_id, head.seq + 1, what, epoch=head.epoch + 1, lease="free", header=shown)]
        )
        assert [None] == list(answer)

    async def end(self, run_id: str) -> None:
        """The run is over."""
        await self.leave(run_id, ends=True)


async def offer_of(store: Store, run_id: str) -> Offer:
    """A run as it would be offered, whether or not it is its turn."""
    reading = await store.read(run_id)
    assert reading is not None
    return Offer(head=reading.head, header=reading.header, certain=True)


async def limit_queue(store: Store, name: str = "q", **limits: Any) -> None:
    """Set limits anew."""
    assert isinstance(store, Queueing)
    await store.set_queue(name, QueueLimits(**limits), replace=True)
