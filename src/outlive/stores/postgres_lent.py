"""Connections that bodies of transactional steps get in PostgreSQL: lent, and kept for the next.

They are psycopg's own. What would end the engine's transaction, or the connection, raises.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import Any, Generic, NoReturn, TypeVar

from psycopg import AsyncConnection, Connection, adapters, pq
from psycopg.adapt import AdaptersMap
from psycopg.rows import tuple_row

from outlive.errors import UsageError
from outlive.ports import Ports

_IDLE_SECONDS_MAX = 60.0

OURS = (
    "this transaction belongs to the step: it is committed when the body returns and rolled back "
    "when it raises; connection.transaction() makes savepoints"
)

C = TypeVar("C", "StepConnection", "AsyncStepConnection")


class Lent:
    """What the body of one step has registered with its connection is not the next one's."""

    _registered: AdaptersMap | None = None

    @property
    def adapters(self) -> AdaptersMap:
        """How values are written and read; psycopg's own until a body changes it."""
        if self._registered is None:
            self._registered = AdaptersMap(adapters)
        return self._registered

    def forget_adapters(self) -> None:
        """Begin again with psycopg's own."""
        self._registered = None


class StepConnection(Lent, Connection[Any]):
    """A connection whose transaction the engine begins and ends; the body only writes."""

    def commit(self) -> NoReturn:
        raise UsageError(OURS)

    def rollback(self) -> NoReturn:
        raise UsageError(OURS)

    def close(self) -> NoReturn:
        raise UsageError(OURS)

    def __enter__(self) -> NoReturn:
        raise UsageError(f"`with connection` would commit: {OURS}")


class AsyncStepConnection(Lent, AsyncConnection[Any]):
    """The same for a body that awaits."""

    async def commit(self) -> NoReturn:
        raise UsageError(OURS)

    async def rollback(self) -> NoReturn:
        raise UsageError(OURS)

    async def close(self) -> NoReturn:
        raise UsageError(OURS)

    async def __aenter__(self) -> NoReturn:
        raise UsageError(f"`async with connection` would commit: {OURS}")


class Kept(Generic[C]):
    """Connections that nobody uses; the one used last is the next. Safe from any thread."""

    def __init__(self, ports: Ports) -> None:
        self._clock = ports.clock
        self._lock = threading.Lock()
        self._idle: deque[tuple[float, C]] = deque()

    def take(self) -> C | None:
        with self._lock:
            return self._idle.pop()[1] if self._idle else None

    def give_back(self, db: C) -> None:
        """For the next who needs one, if it is as good as new."""
        db.row_factory = tuple_row  # what a body has set is its own
        db.forget_adapters()
        if db.pgconn.transaction_status == pq.TransactionStatus.IDLE:
            with self._lock:
                self._idle.append((self._clock.monotonic(), db))
        else:
            finish(db)
        self.close_idle()

    def close_idle(self) -> None:
        """Those that were not used for long."""
        self.close(before=self._clock.monotonic() - _IDLE_SECONDS_MAX)

    def close(self, before: float = float("inf")) -> None:
        """Those that were not used since then."""
        with self._lock:
            while self._idle and self._idle[0][0] < before:
                finish(self._idle.popleft()[1])


def finish(db: StepConnection | AsyncStepConnection) -> None:
    """Close it, from any thread: a connection that awaits elsewhere has nothing to await here."""
    if isinstance(db, StepConnection):
        Connection.close(db)
        return
    with suppress(StopIteration):
        AsyncConnection.close(db).send(None)
