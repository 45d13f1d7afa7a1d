"""Other journals, as a run may ask about them: who holds a key, how another effect ended."""

from __future__ import annotations

from collections.abc import Sequence

from outlive.journal.lane import Lane
from outlive.journal.outbox import mail_of_each
from outlive.journal.reader import read_events
from outlive.journal.restored import read_whole
from outlive.model.events import EffectDone, EffectIntended, EffectRaised, Fault
from outlive.model.run import fold
from outlive.store import Mail, Store
from outlive.worker.shelf import StoreShelf


class StorePeer:
    """Answers from the store."""

    def __init__(self, store: Store, lane: Lane) -> None:
        self._store, self._lane = store, lane

    def shelf(self, family: str) -> StoreShelf:
        """Where a family's blobs are kept."""
        return StoreShelf(self._store, self._lane, family)

    async def holder_of(self, journal: str) -> tuple[str, str, bytes] | None:
        """Who holds a key: run, step, digest of its arguments."""
        reading = await self._lane(self._store.read(journal))
        if reading is None:
            return None
        holder = fold(read_events(reading)).holder
        return None if holder is None else (holder.run_id, holder.step, holder.digest)

    async def kept_end(self, journal: str, step: str) -> EffectDone | EffectRaised | None:
        """How the effect ended that a key's journal speaks of, if its run is gone."""
        reading = await self._lane(self._store.read(journal))
        kept = None if reading is None else fold(read_events(reading)).kept
        if kept is None:
            return None
        if kept.error is None and kept.happened:
            return EffectDone(0, step, 1, kept.value)
        told = Fault("NotHappened", "the run that held this key ended without using it")
        return EffectRaised(0, step, 1, kept.error or told, kept.happened)

    async def mail_of(self, run_id: str) -> Sequence[Mail]:
        """What was posted to a run and not consumed."""
        found = await self._lane(mail_of_each(self._store, [run_id]))
        return found[run_id]

    async def is_over(self, run_id: str) -> bool:
        """Whether a run has ended, or is gone."""
        reading = await self._lane(self._store.read(run_id, 1 << 62))
        return reading is None or reading.header.ended_at is not None

    async def is_held(self, run_id: str, worker: str) -> bool:
        """Whether this worker still has the right to drive a run."""
        reading = await self._lane(self._store.read(run_id, 1 << 62))
        return reading is not None and reading.head.worker == worker

    async def end_of(self, run_id: str, step: str) -> EffectDone | EffectRaised | None:
        """How another run's effect ended, if it did."""
        reading = await self._lane(read_whole(self._store, run_id))
        events = [] if reading is None else read_events(reading)
        for event in reversed(events):
            # The last one: a run may have been tried again, and be about to try.
            if isinstance(event, EffectIntended) and event.step == step:
                return None
            if isinstance(event, (EffectDone, EffectRaised)) and event.step == step:
                return event
        is_whole = reading is not None and bool(reading.records) and reading.records[0].seq == 1
        if is_whole and fold(events).ended_at is not None:
            # Intents come first and are settled before a run ends: it was never attempted.
            told = Fault("NotHappened", f"run {run_id} held this key and ended without using it")
            return EffectRaised(0, step, 1, told, False)
        return None
