"""Runs as a worker reads them: the last chapter of each, verified and folded, and read once.

Who claims a run commits right after the head that it was offered. So what was read of it before,
with that very head, and the claim itself are the whole chapter: there is no need to read it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from outlive.errors import OutliveError
from outlive.journal.codec.restore import read_whole
from outlive.journal.fork import events_of
from outlive.journal.mail import without_copies
from outlive.journal.record import FORMAT
from outlive.model.events import Claimed, Event
from outlive.model.run import Run, apply, fold
from outlive.stores.seam import Store
from outlive.stores.types import (
    DEFAULT_QUEUE,
    LAST_CHAPTER,
    Claims,
    Entry,
    Offer,
    Reading,
    Wanted,
)

#: Events that are in memory at once before their runs are driven; a longer run comes alone.
EVENTS_AT_ONCE = 5_000
#: Records that are read of a run before it is known whether it is driven here.
LOOK_RECORDS = 256


@dataclass(slots=True)
class Chapter:
    """What a run's journal says; its records themselves are not kept."""

    reading: Reading
    events: list[Event]
    run: Run
    #: Why it can't be read.
    error: OutliveError | None = None

    def ends_at(self, offer: Offer) -> bool:
        """This is all that there was when the run was offered."""
        head = self.reading.head
        return (head.seq, head.epoch, head.link) == (
            offer.head.seq,
            offer.head.epoch,
            offer.head.link,
        )

    def claim(self, entry: Entry, event: Claimed) -> None:
        """The claim that follows was committed."""
        head = msgspec.structs.replace(
            self.reading.head,
            seq=entry.last,
            epoch=entry.epoch,
            link=entry.link,
            worker=entry.worker,
        )
        header = entry.header or self.reading.header
        self.reading = msgspec.structs.replace(self.reading, head=head, header=header)
        if self.error is None:
            self.events.append(event)
            apply(self.run, event)


async def read_chapter(store: Store, run_id: str) -> Chapter | None:
    """The last chapter of a run; None if there is no such run."""
    reading = await read_whole(store, run_id, LAST_CHAPTER)
    return None if reading is None else await _chapter_of(store, reading)


async def _chapter_of(store: Store, reading: Reading) -> Chapter:
    run_id = reading.head.run_id
    bare = msgspec.structs.replace(reading, records=())
    try:
        events = await events_of(store, reading)
        run = fold(events)
        mail = await without_copies(store, run_id, run.chapter, reading.mail)
        return Chapter(msgspec.structs.replace(bare, mail=mail), events, run)
    except OutliveError as error:
        return Chapter(bare, [], Run(), error)


@dataclass(frozen=True, slots=True)
class RunFound:
    """A run that somebody asked for by its id: its first records, and whether it may be claimed."""

    reading: Reading
    #: What may be claimed at once, and the whole of its last chapter.
    claimable: tuple[Offer, Chapter] | None = None


async def look_at(store: Store, run_id: str, now: int) -> RunFound | None:
    """One look at a run, for one call of a lane; None if there is no such run.

    One that waits, or that somebody holds, is read no further than is needed to compare it.
    """
    reading = await read_whole(store, run_id, LAST_CHAPTER, limit=LOOK_RECORDS)
    if reading is None:
        return None
    offer = await _offer_of(store, reading, now)
    if offer is None:
        return RunFound(reading)
    whole = await _with_rest(store, reading)
    if whole is None:
        return RunFound(reading)
    return RunFound(reading, (offer, await _chapter_of(store, whole)))


async def _with_rest(store: Store, reading: Reading) -> Reading | None:
    """All of a chapter whose first records were read; None: it went on meanwhile."""
    if len(reading.records) < LOOK_RECORDS:
        return reading
    rest = await read_whole(store, reading.head.run_id, reading.records[-1].seq)
    if rest is None or rest.head != reading.head:
        return None
    nodes = {**reading.nodes, **rest.nodes}
    records = [*reading.records, *rest.records]
    return msgspec.structs.replace(reading, records=records, nodes=nodes, mail=rest.mail)


async def _offer_of(store: Store, reading: Reading, now: int) -> Offer | None:
    """The offer of a run that may be claimed for certain; all else is the store's to decide."""
    head, header = reading.head, reading.header
    is_known = header.format <= FORMAT and header.status != "quarantined"
    if header.ended_at is not None or header.queue != DEFAULT_QUEUE or not is_known:
        return None
    if head.worker is None and head.posted == head.consumed:
        is_new = header.status == "pending" and header.wake_at is not None
        if header.wake_at != 0 and not (is_new and (header.wake_at or 0) <= now):
            return None
    standing = await store.standing(head.worker)
    return (
        None if standing == "alive" else Offer(head=head, header=header, certain=standing == "dead")
    )


async def read_chapters(store: Store, run_ids: Iterable[str]) -> dict[str, Chapter]:
    """Those of many runs, for one call of a lane."""
    chapters = {}
    for run_id in run_ids:
        chapter = await read_chapter(store, run_id)
        if chapter is not None:
            chapters[run_id] = chapter
    return chapters


async def claim_and_read(
    store: Store, worker: str, wanted: Wanted, limit: int
) -> tuple[Claims, dict[str, Chapter]]:
    """What may be claimed, and the first portion of those whose holder is gone; for one call."""
    claims = await store.claim(worker, wanted, limit)
    orphans = [offer for offer in claims.offers if offer.head.worker is not None]
    first = next(portions(orphans), [])
    return claims, await read_chapters(store, [offer.head.run_id for offer in first])


def portions(offers: Sequence[Offer]) -> Iterator[list[Offer]]:
    """Offers in portions that may be in memory at once."""
    portion: list[Offer] = []
    events = 0
    for offer in offers:
        events += length_of(offer)
        if portion and events > EVENTS_AT_ONCE:
            yield portion
            portion, events = [], length_of(offer)
        portion.append(offer)
    if portion:
        yield portion


def length_of(offer: Offer) -> int:
    """How many events are to be read of a run."""
    return offer.head.seq - max(0, offer.header.chapter - 1)
