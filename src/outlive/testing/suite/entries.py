"""Entries with sensible defaults and a clock that only moves when told: for tests of stores."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from outlive.stores.seam import Store
from outlive.stores.types import (
    Deletion,
    Entry,
    Header,
    Offer,
    Posted,
    Posting,
    QueueLimits,
    Wanted,
)

#: The lease of stores under test, and when their clock begins.
LEASE_SECONDS = 10.0
START_MS = 1_700_000_000_000

FLOW, VERSION, FORMAT = "support", "1", 3
WANTED = Wanted(flows={FLOW: frozenset({VERSION})}, format=FORMAT)


class HandClock:
    """Stands still until it is moved by hand."""

    def __init__(self) -> None:
        self.wall_ms = START_MS
        self.seconds = 100.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        """Let time go by."""
        self.wall_ms += round(seconds * 1000)
        self.seconds += seconds


def link_of(record: bytes) -> bytes:
    """A link as good as any: stores do not know how links are made."""
    return hashlib.blake2b(record, digest_size=16).digest()


def header(**changes: Any) -> Header:
    """The header of a run that is under way."""
    plain: dict[str, Any] = {
        "flow": FLOW,
        "version": VERSION,
        "format": FORMAT,
        "status": "running",
        "family": "family-1",
        "started_at": START_MS,
    }
    return Header(**(plain | changes))


def entry(run_id: str, after: int, record: bytes = b"", **changes: Any) -> Entry:
    """One event for a run, in epoch 1; the first entry brings a header along."""
    record = record or b"%d of %d" % (after + 1, len(run_id))
    plain: dict[str, Any] = {
        "run_id": run_id,
        "after": after,
        "last": after + 1,
        "epoch": 1,
        "record": record,
        "link": link_of(record),
        "header": header() if after == 0 else None,
    }
    return Entry(**(plain | changes))


def held(run_id: str, worker: str, **changes: Any) -> Entry:
    """A new run whose lease its creator takes."""
    return entry(run_id, 0, lease="take", worker=worker, **changes)


def parked(run_id: str, wake_at: int | None = None, **changes: Any) -> Entry:
    """A new run that waits, held by nobody."""
    return entry(run_id, 0, header=header(wake_at=wake_at, status="waiting", **changes))


def takeover(run_id: str, after: int, worker: str, *, epoch: int) -> Entry:
    """The claim of a run."""
    record = b"claimed by %s in %d" % (worker.encode(), epoch)
    return entry(run_id, after, record, lease="take", worker=worker, epoch=epoch)


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
    await store.set_queue(name, QueueLimits(**limits), replace=True)


async def post_one(store: Store, run_id: str, mail_id: str, body: bytes) -> Posted:
    """Post a single letter."""
    (answer,) = await store.post([Posting(run_id, mail_id, body)])
    return answer


async def delete_one(
    store: Store, run_id: str, *, seq: int, digest: bytes, keep_until: int
) -> bool:
    """Delete a single run."""
    one = Deletion(run_id=run_id, seq=seq, digest=digest, keep_until=keep_until)
    (is_gone,) = await store.delete([one])
    return is_gone
