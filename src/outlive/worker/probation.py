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

#: How often a worker looks whether the next suspect may have its turn.
LOOK_SECONDS = 0.05


class Probation:
    """Which of the offered runs may be claimed now."""

    def __init__(self, barren_of: Callable[[str], Awaitable[int]]) -> None:
        self._barren_of = barren_of
        #: By run: the seq at which it was read, and its claims in a row without an outcome.
        self._seen: dict[str, tuple[int, int]] = {}
        #: Suspects that were offered and wait for their turn.
        self.waiting = 0

    async def admit(self, offers: Sequence[Offer], *, has_suspect: bool) -> list[Offer]:
        """All that are above suspicion, and one suspect unless there is one here already."""
        admitted = []
        seen, self.waiting = {}, 0
        for offer in offers:
            # Only a death counts: a run that nobody holds was handed over, or never held.
            if offer.head.worker is None:
                admitted.append(offer)
                continue
            seen[offer.head.run_id] = await self._look(offer)
            is_suspect = seen[offer.head.run_id][1] + 1 >= PROBATION_FROM
            if is_suspect and has_suspect:
                self.waiting += 1
                continue
            has_suspect |= is_suspect
            admitted.append(offer)
        self._seen = seen
        return admitted

    async def _look(self, offer: Offer) -> tuple[int, int]:
        run_id, seq = offer.head.run_id, offer.head.seq
        known = self._seen.get(run_id)
        if known is not None and known[0] == seq:
            return known
        return seq, await self._barren_of(run_id)
