"""Storage of checkpoints: any store, by its URL, opened when it is first used.

The two classes named after a database only choose the store by their argument: all of them keep
checkpoints in the same way. With ``OUTLIVE_KEY`` they are sealed.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar

import msgspec

from outlive.app.seal import open_sealed
from outlive.checkpoints.schema import decode
from outlive.checkpoints.snapshot import created_at, id_of, text_of
from outlive.engine.place import refuse_in_flow
from outlive.errors import AppClosed, UsageError, ValueRefused
from outlive.journal.codec.restore import is_stored
from outlive.journal.lane import ThreadLane, run_immediate
from outlive.journal.shared import SharedJournal
from outlive.model.checkpoints import (
    Checkpoints,
    CheckpointsBegan,
    CheckpointsCleared,
    RolledBack,
    Saved,
    SnapshotSaved,
)
from outlive.model.defaults import LANE_THREADS, STORE_FILE
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.seam import Store, timed_by
from outlive.stores.transactions import cannot_write_rows
from outlive.stores.types import Statement

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS {tables}snapshots (
    snapshot_id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    step_id TEXT NOT NULL,
    created_at TEXT NOT NULL,
    state TEXT NOT NULL,
    metadata TEXT,
    UNIQUE(run_id, step_id)
)""",
    "CREATE INDEX IF NOT EXISTS idx_snapshots_run ON {tables}snapshots(run_id)",
    "CREATE INDEX IF NOT EXISTS idx_snapshots_created ON {tables}snapshots(created_at)",
)
_PUT = (
    "INSERT INTO {tables}snapshots (snapshot_id, run_id, step_id, created_at, state, metadata)"
    " SELECT ?, ?, ?, ?, ?, ? WHERE {committed}"
)
_DROP = "DELETE FROM {tables}snapshots WHERE run_id = ? AND step_id = ? AND {committed}"
_CLEAR = "DELETE FROM {tables}snapshots WHERE run_id = ? AND {committed}"


async def make(store: Store) -> None:
    """Create the table in a store.

    Raises:
        UsageError: the store is sealed, or can't have a table.
    """
    if store.transactions is None:
        raise cannot_write_rows()
    await store.transactions.commit_with(None, [(sql, ()) for sql in SCHEMA])


async def rows(
    journal: SharedJournal[Checkpoints], fold: Checkpoints, events: Sequence[Any]
) -> list[Statement]:
    """The statements that bring the table up to date with these events."""
    began, found = fold.began, list[Statement]()
    for seq, event in enumerate(events, fold.seq + 1):
        match event:
            case CheckpointsBegan():
                began = event
            case SnapshotSaved():
                assert began is not None, "a journal begins with that"
                found += await _put(journal, began, Saved(seq, event))
            case RolledBack():
                assert began is not None, "a journal begins with that"
                found += await _cut(journal, began, fold, event.seq)
            case CheckpointsCleared():
                assert began is not None, "a journal begins with that"
                found.append((_CLEAR, (began.run_id,)))
            case _:
                pass
    return found


async def _cut(
    journal: SharedJournal[Checkpoints], began: CheckpointsBegan, fold: Checkpoints, seq: int
) -> list[Statement]:
    """The statements of a rollback: each step gets its row as of that seq, or none."""
    kept = {saved.event.step: saved for saved in fold.line if saved.seq <= seq}
    gone = [saved for saved in fold.current if saved.seq > seq]
    found: list[Statement] = [(_DROP, (began.run_id, saved.event.step)) for saved in gone]
    for step in [saved.event.step for saved in gone if saved.event.step in kept]:
        found += await _put(journal, began, kept[step])
    return found


async def _put(
    journal: SharedJournal[Checkpoints], began: CheckpointsBegan, saved: Saved
) -> list[Statement]:
    state, metadata = [
        _json(began, saved, await _whole(journal, saved.seq, raw))
        for raw in (saved.event.state, saved.event.metadata)
    ]
    when = text_of(created_at(began, saved))
    run_id, step = began.run_id, saved.event.step
    row = (id_of(began, saved), run_id, step, when, state, metadata)
    return [(_DROP, (run_id, step)), (_PUT, row)]


async def _whole(journal: SharedJournal[Checkpoints], seq: int, raw: bytes) -> bytes:
    return (await journal.values([(seq, raw)]))[0] if is_stored(raw) else raw


def _json(began: CheckpointsBegan, saved: Saved, raw: bytes) -> str:
    value: Any = decode(raw, began.run_id, saved.seq)
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueRefused(
            f"the table `snapshots` has states as JSON, and this one can't be: {error}"
        ) from error


T = TypeVar("T")


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
        #: Whether current snapshots are also in a table, for your own SQL.
        self.has_table = False

    @classmethod
    def of(cls, store: Store, ports: Ports | None = None) -> StorageBackend:
        """A storage over a store that somebody else opened, and will close."""
        place = StorageBackend(ports=ports)
        place._store, place._is_ours = store, False
        place.ports = timed_by(store, place.ports)
        return place

    async def initialize(self) -> None:
        """Open the store, and create it if it does not exist; also after ``close``."""
        self._is_closed = False
        await self.opened()

    async def call(self, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Run calls of the store in its threads."""
        store, lane = await self.opened()
        return await lane(work(store))

    async def opened(self) -> tuple[Store, ThreadLane]:
        """The open store, and its threads."""
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
                self._lane = ThreadLane(self._store.threads or LANE_THREADS)

    def _make_table(self, store: Store) -> None:
        try:
            run_immediate(make(store))
        except BaseException:
            self._store = None
            run_immediate(store.close())
            raise

    async def close(self) -> None:
        """Close the store. Closing twice is fine."""
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

    With ``table`` current snapshots are also in a table ``snapshots``, in the same transaction,
    for your own SQL. Every process that saves there must use it, or its snapshots are missing.
    """

    def __init__(
        self,
        db_path: str | os.PathLike[str] = STORE_FILE,
        *,
        table: bool = False,
        key: str | None = None,
        ports: Ports | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(_url_of(db_path), key=key, ports=ports, settings=settings)
        self.has_table = table


class PostgresStorageBackend(StorageBackend):
    """Checkpoints in a PostgreSQL database, for any number of machines; ``table`` as above."""

    def __init__(
        self,
        dsn: str,
        *,
        table: bool = False,
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
        self.has_table = table


def _url_of(db_path: object) -> str:
    path: object = os.fspath(db_path) if isinstance(db_path, os.PathLike) else db_path
    if not isinstance(path, str):
        raise UsageError(f"db_path is a file's path, not {db_path!r}")
    if "://" in path:
        scheme = path.partition("://")[0]
        raise UsageError(f"db_path is a file's path, not a {scheme}:// URL: StorageBackend(url)")
    return "memory://" if path == ":memory:" else f"sqlite:///{path}"
