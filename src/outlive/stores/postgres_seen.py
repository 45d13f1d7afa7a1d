"""A server that has less than it acknowledged is found out, and nothing is built upon it.

After a failover to a standby that was not waited for, or a restore from a backup, journals end
earlier than this process was told. To go on from there would do again what was done. So the heads
of the runs that are driven here are remembered, also when they wait or have ended, and a head that
went back is an error, not a conflict. What counts is what was known before the server was asked:
other threads commit meanwhile.

A run that is held is remembered as long as that lasts. The others are kept in two generations: when
the younger is full, or old, it becomes the elder, and the elder is forgotten. What was lost is the
newest, so there is no need to remember for long.

An id may be used again after its run was deleted, perhaps by another process, and soon. A tombstone
tells that from a loss: it stays for as long as anybody may remember its run, and has ended no
earlier than that run was seen. One that ended before is of a run that had the id before.
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
#: How long a run may be remembered: so long its tombstone stays, whenever its id is free again.
KEPT_MS_MAX = round(2 * AGE_SECONDS_MAX * 1000)

_HEADS = """
SELECT g.run_id, coalesce(r.seq, 0), coalesce(t.ended_at, -1) FROM unnest($1::text[]) AS g (run_id)
LEFT JOIN {s}.runs r ON r.run_id = g.run_id LEFT JOIN {s}.tombstones t ON t.run_id = g.run_id
"""


class Seen:
    """Up to which seq each run that was driven here is known to be durable."""

    def __init__(self, place: str, clock: Clock) -> None:
        self._place, self._clock = place, clock
        self._held: dict[str, int] = {}
        #: Of runs that are not held: up to where, and when that was (ms since 1970).
        self._young: dict[str, tuple[int, int]] = {}
        self._old: dict[str, tuple[int, int]] = {}
        self._young_since = clock.monotonic()

    def known(self, run_ids: Iterable[str]) -> list[int]:
        """Where these runs end at least; 0: nothing is known."""
        now = self._clock.monotonic()
        age = now - self._young_since
        if len(self._young) >= RUNS_MAX or age > AGE_SECONDS_MAX:
            self._old = {} if age > 2 * AGE_SECONDS_MAX else self._young
            self._young, self._young_since = {}, now
        held = self._held.get
        return [held(run_id) or self._left(run_id)[0] for run_id in run_ids]

    def _left(self, run_id: str) -> tuple[int, int]:
        return self._young.get(run_id) or self._old.get(run_id, (0, self._clock.now_ms()))

    def note(self, entry: Entry, known: int, answer: Conflict | None) -> bool:
        """How an entry was answered; whether it is worth a second look.

        It is if its run's head is behind the one that was known, or if the entry was taken though
        more was known: either it is a repeat of one that was done, or the server knows nothing of
        what was done.
        """
        held, run_id = self._held, entry.run_id
        if answer is not None:
            if answer.gone:
                self.forget(run_id)
                return False
            # What is not there may have been deleted long ago.
            is_behind = answer.seq < known and (answer.seq > 0 or run_id in held)
            if held.pop(run_id, None):  # the lease is lost
                self._young[run_id] = known, self._clock.now_ms()
            return is_behind
        last = max(entry.last, known, held.get(run_id, 0))
        if entry.lease == "free" or (run_id in held and _end_of(entry)):
            self._young[run_id] = last, _end_of(entry) or self._clock.now_ms()
            held.pop(run_id, None)
        elif entry.lease == "take" or run_id in held:
            held[run_id] = last
        return entry.after < known

    def behind(self, heads: Sequence[tuple[str, int]]) -> list[str]:
        """Which of these runs end earlier than is known by now; they may have moved meanwhile."""
        known = self.known(run_id for run_id, _ in heads)
        return [run_id for (run_id, seq), least in zip(heads, known, strict=True) if seq < least]

    def look_again(self, ask: Callable[..., list[Row]], run_ids: Sequence[str]) -> None:
        """Ask where these runs end, if there are any.

        Raises:
            StoreFailed: one ends earlier than is known, and not because it is another run by now.
        """
        if not run_ids:
            return
        known = dict(zip(run_ids, self.known(run_ids), strict=True))
        for run_id, seq, buried_at in ask(_HEADS, texts(list(known))):
            if seq >= known[run_id]:
                continue
            if buried_at < self._left(run_id)[1]:
                raise self._went_back(run_id, known[run_id], seq)
            self._begin_again(run_id, seq)

    def forget(self, run_id: str) -> None:
        """It was deleted."""
        for heads in (self._held, self._young, self._old):
            heads.pop(run_id, None)

    def _begin_again(self, run_id: str, seq: int) -> None:
        is_held = run_id in self._held
        self.forget(run_id)
        if is_held:
            self._held[run_id] = seq

    def _went_back(self, run_id: str, known: int, seq: int) -> StoreFailed:
        return StoreFailed(
            f"{self._place} went back: run {run_id} was stored up to {known} and now ends at "
            f"{seq}; a standby that was behind took over, or a backup was restored. Nothing "
            "is driven from there: bring the newer data back, or start again to accept the loss"
        )


def _end_of(entry: Entry) -> int | None:
    return None if entry.header is None else entry.header.ended_at
