"""A server that has less than it acknowledged is found out, and nothing is built upon it.

After a failover to a standby that was not waited for, or a restore from a backup, journals end
earlier than this process was told. To go on from there would do again what was done. So the heads
of the runs that are driven here are remembered, and a head that went back is an error, not a
conflict. What counts is what was known before the server was asked: other threads commit meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from outlive.errors import StoreFailed
from outlive.store import Conflict, Entry


class Seen:
    """Up to which seq each run that is held here is known to be durable."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._heads: dict[str, int] = {}

    def known(self, run_ids: Iterable[str]) -> list[int]:
        """Where these runs end at least; 0: nothing is known."""
        get = self._heads.get
        return [get(run_id, 0) for run_id in run_ids]

    def note(self, entry: Entry, known: int, answer: Conflict | None) -> None:
        """How an entry was answered.

        Raises:
            StoreFailed: its run's head is behind the one that was known.
        """
        heads, run_id = self._heads, entry.run_id
        if answer is not None:
            self.check(run_id, known, answer.seq)
            heads.pop(run_id, None)  # the lease is lost
        elif entry.lease == "free" or (entry.header and entry.header.ended_at is not None):
            heads.pop(run_id, None)
        elif entry.lease == "take" or run_id in heads:
            heads[run_id] = max(entry.last, heads.get(run_id, 0))

    def check(self, run_id: str, known: int, seq: int) -> None:
        """A head was read; the same error."""
        if seq < known:
            raise StoreFailed(
                f"{self._place} went back: run {run_id} was stored up to {known} and now ends at "
                f"{seq}; a standby that was behind took over, or a backup was restored. Nothing "
                "is driven from there: bring the newer data back, or start again to accept the loss"
            )
