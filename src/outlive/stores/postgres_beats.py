"""Who is alive, by the server's clock, as long as that can be believed (R23).

A beat is a counter and the server's time. A holder whose last beat is older than a lease is silent;
so is one whose counter has stood still for a whole lease of one's own monotonic time, should the
server's clock have been set back. A clock that jumps ahead would make everybody silent at once.
So its pace is compared with one's own: after a jump it is not believed for the time of a lease.
A death is never certain over a network, except of one that was never there.

Whoever seems silent by the server's clock is looked at each time. The others are counted now and
then, for the sake of a clock that was set back and of holders that never beat; the more there are,
the rarer.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from outlive.ports import Clock
from outlive.stores.silence import Silence, Standing

#: How much further than one's own clock the server's may go between two looks.
_JUMP_SECONDS = 1.0
#: How often all holders are looked at, as long as they are not many.
_WHOLE_LOOKS_PER_LEASE = 4
_MANY = 50

#: Frees what a worker holds: in the order of the ids, in which everybody locks heads.
FREE = """
UPDATE {s}.runs r SET worker = NULL FROM (
    SELECT h.run_id FROM {s}.runs h WHERE h.worker = $1 ORDER BY h.run_id FOR NO KEY UPDATE
) AS h WHERE r.run_id = h.run_id
"""


class Beats:
    """What one store object thinks of the workers it sees."""

    def __init__(self, clock: Clock, lease_seconds: float) -> None:
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._silence = Silence(clock, lease_seconds)
        self._lock = threading.Lock()
        #: The server's time and our own before it was asked for, at the last look.
        self._last: tuple[int, float] | None = None
        self._believed_from = float("-inf")
        self._whole_look_at = float("-inf")
        #: Holders that were not found alive at the last look at all of them.
        self.suspects: Sequence[str] = ()

    def is_whole_look_due(self) -> bool:
        """Whether to look at every holder this time."""
        with self._lock:
            return self._clock.monotonic() >= self._whole_look_at

    def looked_at(self, workers: int, holders: Mapping[str, Standing]) -> None:
        """That was done; there are so many workers, and that is what to think of the holders."""
        self.suspects = [holder for holder, each in holders.items() if each != "alive"]
        pause = self._lease_seconds / _WHOLE_LOOKS_PER_LEASE
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._believed_from:
                pause *= max(1.0, workers / _MANY)
            self._whole_look_at = now + pause

    def notice_time(self, server_ms: int, sent_at: float) -> None:
        """The server said what time it is; it was asked at ``sent_at``."""
        with self._lock:
            if self._last is not None:
                theirs = (server_ms - self._last[0]) / 1000
                ours = self._clock.monotonic() - self._last[1]
                if theirs > ours + _JUMP_SECONDS:
                    self._believed_from = self._clock.monotonic() + self._lease_seconds
            self._last = (server_ms, sent_at)

    def judge(self, holder: str, beats: int | None, beat_at: int, now_ms: int) -> Standing:
        """What to think of a holder with this counter, last heard of then; None: no such worker."""
        if beats is None:
            return "dead"
        with self._lock:
            standing = self._silence.judge(holder, beats)
            is_believed = self._clock.monotonic() >= self._believed_from
        if is_believed and now_ms - beat_at >= self._lease_seconds * 1000:
            return "silent"
        return standing

    def forget(self, worker: str) -> None:
        """The worker is gone."""
        with self._lock:
            self._silence.forget(worker)
