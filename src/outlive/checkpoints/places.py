"""Where checkpoints are kept: any store of ours, by its URL, opened when it is first used.

The two classes that are named after a database say by their argument which store is meant, and
nothing else: all of them keep checkpoints in the same way. With ``OUTLIVE_KEY`` they are sealed.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, Self, TypeVar

from outlive.checkpoints import table
from outlive.engine.place import refuse_in_flow
from outlive.errors import AppClosed, UsageError
from outlive.journal.immediate import run_immediate
from outlive.journal.lane import LANE_THREADS, ThreadLane
from outlive.ports import Ports
from outlive.sealing import open_sealed
from outlive.settings import Settings
from outlive.store import Store, timed_by

T = TypeVar("T")


class HasStore(Protocol):
    """An app, whose store is used and left open."""

    store: Store


class StorageBackend:
    """A store by its URL (default: ``OUTLIVE_STORE``), with a thread or two for its verbs."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        ports: Ports | None = None,
        settings: Settings | None = None,
    ) -> None:
        if not isinstance(url, str | None):
            raise UsageError(f"url is a store's URL, as sqlite:///outlive.db, not {url!r}")
        self.ports = ports or Ports()
        self._url, self._key, self._settings = url, key, settings
        self._store: Store | None = None
        self._lane: ThreadLane | None = None
        self._opening = threading.Lock()
        self._is_ours, self._is_closed = True, False
        #: Whether what counts is also in a table, for SQL of one's own.
        self.has_table = False

    @classmethod
    def of(cls, store: Store, ports: Ports | None = None) -> StorageBackend:
        """A store that somebody else opened, and will close."""
        place = StorageBackend(ports=ports)
        place._store, place._is_ours = store, False
        place.ports = timed_by(store, place.ports)
        return place

    async def initialize(self) -> None:
        """Open the store, and make it if it is not there; also after ``close``."""
        self._is_closed = False
        await self.opened()

    async def call(self, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Carry verbs of the store out, beside the caller's loop."""
        store, lane = await self.opened()
        return await lane(work(store))

    async def opened(self) -> tuple[Store, ThreadLane]:
        """The store, and who carries its verbs out."""
        refuse_in_flow()
        if self._is_closed:
            raise AppClosed("the storage was closed; `await storage.initialize()` opens it again")
        if self._store is None or self._lane is None:
            await asyncio.to_thread(self._open)
        assert self._store is not None, "it is open"
        assert self._lane is not None, "it is open"
        return self._store, self._lane

    def _open(self) -> None:
        with self._opening:
            if self._store is None:
                settings = self._settings or Settings.from_environment()
                self._store = open_sealed(
                    self._url or settings.store,
                    settings.key if self._key is None else self._key,
                    ports=self.ports,
                    lease_seconds=settings.lease_seconds,
                )
                self.ports = timed_by(self._store, self.ports)
                if self.has_table:
                    self._make_table(self._store)
            if self._lane is None:
                threads = getattr(self._store, "threads", None)
                self._lane = ThreadLane(threads if isinstance(threads, int) else LANE_THREADS)

    def _make_table(self, store: Store) -> None:
        try:
            run_immediate(table.make(store))
        except BaseException:
            self._store = None
            run_immediate(store.close())
            raise

    async def close(self) -> None:
        """Let go of the store. Closing twice is fine."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._opening:
            self._is_closed = True
            lane, self._lane = self._lane, None
            if lane is not None:
                lane.close()
            if self._is_ours and self._store is not None:
                run_immediate(self._store.close())
                self._store = None

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()


class SQLiteStorageBackend(StorageBackend):
    """Checkpoints in a SQLite file; ``":memory:"`` keeps them as long as it is open.

    With ``table`` what counts is also in a table ``snapshots``, in the same transaction, for SQL
    of your own. All who save there say so, or it lacks what they save.
    """

    def __init__(
        self,
        db_path: str | os.PathLike[str] = "outlive.db",
        *,
        table: bool = False,
        key: str | None = None,
        ports: Ports | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(_url_of(db_path), key=key, ports=ports, settings=settings)
        self.has_table = table


class PostgresStorageBackend(StorageBackend):
    """Checkpoints in a PostgreSQL database, for any number of machines."""

    def __init__(
        self,
        dsn: str,
        *,
        key: str | None = None,
        ports: Ports | None = None,
        settings: Settings | None = None,
    ) -> None:
        if not str(dsn).startswith(("postgresql://", "postgres://")):
            raise UsageError(
                "dsn is a URL, postgresql://user@host/database; for another store write "
                "StorageBackend(url)"
            )
        super().__init__(dsn, key=key, ports=ports, settings=settings)


def _url_of(db_path: object) -> str:
    path: object = os.fspath(db_path) if isinstance(db_path, os.PathLike) else db_path
    if not isinstance(path, str):
        raise UsageError(f"db_path is a file's path, not {db_path!r}")
    if "://" in path:
        scheme = path.partition("://")[0]
        raise UsageError(f"db_path is a file's path, not a {scheme}:// URL: StorageBackend(url)")
    return "memory://" if path == ":memory:" else f"sqlite:///{path}"
