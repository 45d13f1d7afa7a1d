"""A server that has less than it acknowledged is found out, and nothing is built upon it.

After a failover to a standby that was not waited for, or a restore from a backup, journals end
earlier than this process was told. To go on from there would do again what was done. So the heads
of the runs that are driven here are remembered, also when they wait or have ended, and a head that
went back is an error, not a conflict. What counts is what was known before the server was asked:
other threads commit meanwhile.

A run that is held is remembered as long as that lasts. The others are kept in two generations: when
the younger is full, or old, it becomes the elder, and the elder is forgotten. What was lost is the
newest, so there is no need to remember for long; and an id may be used again some time after its
run was deleted, perhaps by another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from outlive.errors import StoreFailed
from outlive.ports import Clock
from outlive.store import Conflict, Entry
from outlive.stores.postgres_wire import Row, texts

#: Runs in a generation. At some 160 bytes each, two of them are about 32 MB.
RUNS_MAX = 100_000
#: How long a generation is the younger one.
AGE_SECONDS_MAX = 3600.0


class Seen:
    """Up to which seq each run that was driven here is known to be durable."""

    def __init__(self, place: str, clock: Clock) -> None:
        self._place, self._clock = place, clock
        self._held: dict[str, int] = {}
        self._young: dict[str, int] = {}
        self._old: dict[str, int] = {}
        self._young_since = clock.monotonic()

    def known(self, run_ids: Iterable[str]) -> list[int]:
        """Where these runs end at least; 0: nothing is known."""
        now = self._clock.monotonic()
        if len(self._young) >= RUNS_MAX or now - self._young_since > AGE_SECONDS_MAX:
            self._old, self._young, self._young_since = self._young, {}, now
        held, young, old = self._held.get, self._young.get, self._old.get
        return [held(run_id) or young(run_id) or old(run_id, 0) for run_id in run_ids]

    def note(self, entry: Entry, known: int, answer: Conflict | None) -> bool:
        """How an entry was answered; whether it is worth a second look.

        It is if the entry was taken though more was known: either it is a repeat of one that was
        done, or the server knows nothing of what was done.

        Raises:
            StoreFailed: its run's head is behind the one that was known.
        """
        held, run_id = self._held, entry.run_id
        if answer is not None:
            if answer.gone:
                self.forget(run_id)
                return False
            if answer.seq or run_id in held:  # what is not there may have been deleted long ago
                self.check(run_id, known, answer.seq)
            if held.pop(run_id, None):  # the lease is lost
                self._young[run_id] = known
            return False
        last = max(entry.last, known, held.get(run_id, 0))
        if entry.lease == "free" or (run_id in held and _is_end(entry)):
            self._young[run_id] = last
            held.pop(run_id, None)
        elif entry.lease == "take" or run_id in held:
            held[run_id] = last
        return entry.after < known

    def behind(self, heads: Sequence[tuple[str, int]]) -> list[str]:
        """Which of these runs end earlier than is known by now; they may have moved meanwhile."""
        known = self.known(run_id for run_id, _ in heads)
        return [run_id for (run_id, seq), least in zip(heads, known, strict=True) if seq < least]

    def look_again(self, ask: Callable[..., list[Row]], run_ids: Sequence[str]) -> None:
        """Ask where these runs end, if there are any; the same error."""
        if not run_ids:
            return
        known = self.known(run_ids)
        rows = ask("SELECT run_id, seq FROM {s}.runs WHERE run_id = ANY ($1)", texts(run_ids))
        heads: dict[str, int] = dict(rows)
        for run_id, least in zip(run_ids, known, strict=True):
            self.check(run_id, least, heads.get(run_id, least))

    def forget(self, run_id: str) -> None:
        """It was deleted."""
        for heads in (self._held, self._young, self._old):
            heads.pop(run_id, None)

    def check(self, run_id: str, known: int, seq: int) -> None:
        """A head was read; the same error."""
        if seq < known:
            raise StoreFailed(
                f"{self._place} went back: run {run_id} was stored up to {known} and now ends at "
                f"{seq}; a standby that was behind took over, or a backup was restored. Nothing "
                "is driven from there: bring the newer data back, or start again to accept the loss"
            )


def _is_end(entry: Entry) -> bool:
    return entry.header is not None and entry.header.ended_at is not None
