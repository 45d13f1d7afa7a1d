"""Wake-ups by LISTEN and NOTIFY: a worker need not poll to hear of mail and of due runs.

News are hints. They are sent after the commit they tell of, by a thread of their own and without a
flush: inside the commit, PostgreSQL would make all commits of the database queue for it. What gets
lost is found by the next poll. A connection that listens needs a session, which a pooler that hands
out servers per transaction does not give; then there are no news, only polls.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Iterable, Sequence

from outlive.errors import OutliveError
from outlive.ports import Clock
from outlive.stores.postgres.connection import PostgresConnection, Statement
from outlive.stores.postgres.errors import ServerRefused, Unreachable
from outlive.stores.postgres.pool import Pool
from outlive.stores.postgres.wire import text, texts
from outlive.stores.types import DEFAULT_QUEUE, Entry, Header

logger = logging.getLogger("outlive")

#: News for whoever has room, as against those for one worker.
ANYBODY = ""
#: Others are woken for a run that gets due within this time: a poll is not much longer.
_SOON_MS = 1_000
_TOLD_EVERY_SECONDS = 0.01
_LOOK_SECONDS = 30.0
_PAUSE_SECONDS = 1.0

#: Seconds between two wake-ups for what anybody may have, for each worker that there is: all of
#: them together look for work some thousand times per second at most, however many they are.
_PAUSE_PER_WORKER = 0.001

Callback = Callable[[], object]


class WakeRate:
    """How often news that are for everybody lead to a look: the more workers, the rarer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_at = float("-inf")
        self._workers = 1

    def count(self, workers: int) -> None:
        """There are so many workers."""
        self._workers = max(1, workers)

    def left(self) -> float:
        """Seconds until news for everybody are taken again."""
        return max(0.0, self._next_at - self._clock.monotonic())

    def take(self, told: set[str]) -> set[str]:
        """What to act upon now; news for everybody that come too soon are left where they are."""
        taken = set(told) if self.left() == 0 else told - {ANYBODY}
        told -= taken
        if ANYBODY in taken:
            self._next_at = self._clock.monotonic() + self._workers * _PAUSE_PER_WORKER
        return taken


def channel_of(schema: str) -> str:
    """Where the news of a store are told."""
    return f"outlive.{schema}"


class News:
    """What one store object tells others, and hears from them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.pace = WakeRate(pool.clock)
        self._channel = channel_of(pool.place.schema)
        self._lock = threading.Lock()
        self._outgoing: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        #: By name, whoever watches under it.
        self._watchers: dict[str, list[Callback]] = {}
        #: A pipe into which a byte is written when it is over.
        self._bell = os.pipe()
        self._teller: threading.Thread | None = None
        self._hearer: threading.Thread | None = None
        self._is_closed = False

    # telling

    def tell(self, workers: Iterable[str]) -> None:
        """Let these workers know that there is something for them; does not wait."""
        for worker in workers:
            self._outgoing.put(worker)
            with self._lock:
                if self._teller is None and not self._is_closed:
                    self._teller = self._begin(self._tell_all, "outlive-tell")

    def _tell_all(self) -> None:
        while (first := self._outgoing.get()) is not None:
            told = {first}
            while not self._outgoing.empty():
                more = self._outgoing.get()
                if more is None:
                    return
                told.add(more)
            statement = Statement(
                "SELECT pg_notify($1, n) FROM unnest($2::text[]) AS n",
                [text(self._channel), texts(sorted(told))],
            )
            try:
                self._pool.run("news", statement)
            except OutliveError as error:
                logger.debug("news were not told: %s", error)
            # News that come thick and fast are told together.
            self._pool.wait_closed(_TOLD_EVERY_SECONDS)

    # hearing

    def watch(self, worker: str, callback: Callback) -> Callback:
        """Call back, on some thread, whenever there may be something for a worker."""
        with self._lock:
            self._watchers.setdefault(worker, []).append(callback)
            if self._hearer is None:
                self._hearer = self._begin(self._hear, "outlive-listen")

        def stop() -> None:
            with self._lock:
                watchers = self._watchers.get(worker, [])
                if callback in watchers:
                    watchers.remove(callback)
                if not watchers:
                    self._watchers.pop(worker, None)

        return stop

    def _hear(self) -> None:
        while not self._pool.is_closed:
            try:
                db = self._pool.open_to_listen()
                if db is None:
                    logger.info("no news from %s: a pooler is in between", self._pool.place.name)
                    return
                self._hear_from(db)
            except (Unreachable, ServerRefused, OutliveError) as error:
                logger.debug("nothing is heard from the store: %s", error)
            self._pool.wait_closed(_PAUSE_SECONDS)

    def _hear_from(self, db: PostgresConnection) -> None:
        try:
            db.listen(self._channel)
            told = {ANYBODY}  # whatever was told while nobody heard
            while not self._pool.is_closed:
                self._call_back(self.pace.take(told))
                seconds = self.pace.left() if told else _LOOK_SECONDS
                told.update(db.wait_for_news(seconds, self._bell[0]))
        finally:
            db.close()

    def _call_back(self, told: set[str]) -> None:
        with self._lock:
            called = [
                callback
                for worker, callbacks in self._watchers.items()
                if ANYBODY in told or worker in told
                for callback in callbacks
            ]
        for callback in called:
            callback()

    def _begin(self, work: Callback, name: str) -> threading.Thread:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Tell and hear nothing more; the pool is closed."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._outgoing.put(None)
        os.write(self._bell[1], b"x")
        for thread in (self._teller, self._hearer):
            if thread is not None:
                thread.join()
        for end in self._bell:
            os.close(end)


def is_offered(batch: Sequence[Entry], clock: Clock) -> bool:
    """Whether others want to know at once of what was committed."""
    for entry in batch:
        if entry.header is not None and _is_offered(entry, entry.header, clock):
            return True
    return False


def _is_offered(entry: Entry, header: Header, clock: Clock) -> bool:
    """Whether others want to know now: nobody holds the run after this, and it is due, or nearly.

    Of what sleeps longer they hear when they next look; of mail they are told by who posts it.
    """
    if entry.lease == "take" or (entry.lease == "keep" and entry.after > 0):
        return False
    if header.queue != DEFAULT_QUEUE:
        return bool(header.flow)  # it makes way for another, whatever becomes of it
    wake_at = None if header.ended_at is not None else header.wake_at
    return wake_at is not None and wake_at <= clock.now_ms() + _SOON_MS
