"""Beats: a worker says that it lives, on a thread that neither user code nor commits can block.

The lease is judged from this process by a monotonic time taken *before* the beat was sent, so it
ends here no later than any other worker may think it over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from outlive.errors import OutliveError
from outlive.journal.immediate import run_immediate
from outlive.ports import Clock
from outlive.store import Store

#: Renew at a third of the lease: two lost beats must not lose the runs.
BEATS_PER_LEASE = 3


class LeaseTime:
    """Until when this worker's leases hold, as far as it knows."""

    def __init__(self, clock: Clock, lease_seconds: float) -> None:
        self._clock = clock
        self.seconds = lease_seconds
        self._until = float("-inf")
        #: How often the lease was over before it was renewed: what was ours then may not be now.
        self.lapses = 0

    def renewed(self, sent_at: float) -> None:
        """A beat that was sent then has been answered."""
        # By when the answer is here, not by when the beat was sent: it may have been under way for
        # so long that others took our silence for an end before it arrived.
        if self._clock.monotonic() >= self._until:
            self.lapses += 1
        self._until = sent_at + self.seconds

    def revoke(self) -> None:
        """Nothing may begin here any more."""
        self._until = float("-inf")
        self.seconds = float("-inf")

    def holds(self, since: int) -> bool:
        """Nobody was offered our runs: the lease never lapsed since then, and it is not over."""
        return self.lapses == since and self._clock.monotonic() < self._until


class Pulse(Protocol):
    """What beats for a worker."""

    def stop(self) -> None:
        """No further beat. Stopping twice is fine."""
        ...


async def stopped(pulse: Pulse) -> None:
    """For a lane: stopping waits for a beat that is under way, perhaps to a store that is gone."""
    pulse.stop()


def thread_pulses(
    store: Store, lease: LeaseTime, clock: Clock
) -> Callable[[str, Callable[[OutliveError], None]], Pulse]:
    """What starts beating for a worker, given its id and whom to tell if that fails."""
    return lambda worker, failed: ThreadPulse(store, worker, lease, clock, failed)


class ThreadPulse:
    """Beats from a thread of its own, for stores whose verbs never suspend."""

    def __init__(
        self,
        store: Store,
        worker: str,
        lease: LeaseTime,
        clock: Clock,
        failed: Callable[[OutliveError], None],
    ) -> None:
        self._store, self._worker, self._lease, self._clock = store, worker, lease, clock
        self._failed = failed
        self._stopping = threading.Event()
        self._period = lease.seconds / BEATS_PER_LEASE
        self.beat()
        self._thread = threading.Thread(target=self._main, name="outlive-pulse", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """One beat, now."""
        sent_at = self._clock.monotonic()
        run_immediate(self._store.beat(self._worker))
        self._lease.renewed(sent_at)

    def _main(self) -> None:
        while not self._stopping.wait(self._period):
            try:
                self.beat()
            except OutliveError as error:
                self._lease.revoke()
                self._failed(error)
                return

    def stop(self) -> None:
        """No further beat."""
        self._stopping.set()
        self._thread.join()
