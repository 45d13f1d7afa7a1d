"""Probation: a run that may be killing its drivers is driven with no other suspect beside it.

A worker that dies takes all its runs with it, and nobody saw which of them did it. A run whose
drivers died several times in a row, with nothing to show for it, is a suspect; a worker drives one
suspect at a time. The guilty one goes on killing until it is quarantined; the innocent get their
turn, bring something about, and are suspects no more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from outlive.model.decide import PROBATION_FROM
from outlive.store import Offer
from outlive.worker.chapters import Chapter, portions

#: How often a worker looks whether the next suspect may have its turn.
LOOK_SECONDS = 0.05


class Probation:
    """Which of the offered runs may be claimed now."""

    def __init__(self, read: Callable[[Sequence[str]], Awaitable[dict[str, Chapter]]]) -> None:
        self._read = read
        #: By run: the seq at which it was read, and its claims in a row without an outcome.
        self._seen: dict[str, tuple[int, int]] = {}
        #: What was read of those that were admitted last.
        self.chapters: dict[str, Chapter] = {}
        #: Suspects that were offered and wait for their turn.
        self.waiting = 0
        #: There were more than may be read at once.
        self.has_more = False

    async def admit(self, offers: Sequence[Offer], *, has_suspect: bool) -> list[Offer]:
        """All that are above suspicion, and one suspect unless there is one here already."""
        # Only a death counts: a run that nobody holds was handed over, or never held.
        orphans = [offer for offer in offers if offer.head.worker is not None]
        known = {offer.head.run_id for offer in orphans if self._knows(offer)}
        await self._look([offer for offer in orphans if offer.head.run_id not in known])
        admitted = []
        seen, self.waiting = {}, 0
        for offer in offers:
            run_id = offer.head.run_id
            if offer.head.worker is None:
                admitted.append(offer)
                continue
            if run_id not in known and run_id not in self.chapters:
                continue
            seen[run_id] = self._seen[run_id]
            is_suspect = seen[run_id][1] + 1 >= PROBATION_FROM
            if is_suspect and has_suspect:
                self.waiting += 1
                self.chapters.pop(run_id, None)
                continue
            has_suspect |= is_suspect
            admitted.append(offer)
        self._seen = seen
        return admitted

    def _knows(self, offer: Offer) -> bool:
        known = self._seen.get(offer.head.run_id)
        return known is not None and known[0] == offer.head.seq

    async def _look(self, offers: Sequence[Offer]) -> None:
        """Read some of these; a run that moved on since it was offered is somebody else's."""
        portion = next(portions(offers), [])
        self.has_more = len(portion) < len(offers)
        found = await self._read([offer.head.run_id for offer in portion]) if portion else {}
        self.chapters = {}
        for offer in portion:
            chapter = found.get(offer.head.run_id)
            if chapter is not None and chapter.ends_at(offer):
                self.chapters[offer.head.run_id] = chapter
                self._seen[offer.head.run_id] = (offer.head.seq, chapter.run.barren)
