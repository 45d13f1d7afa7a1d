"""Stores by kind, opened again as other processes would, shared by processes, or under witness."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from outlive.ports import Ports
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Answers, Entry
from outlive.testing.suite.entries import LEASE_SECONDS, HandClock

if TYPE_CHECKING:  # child processes import this, too, and need no pytest
    import pytest

S = TypeVar("S", bound=Store)
Shared: TypeAlias = SQLiteStore | PostgresStore


#: Kinds of stores that a test may be run on.
KINDS = ("memory", "sqlite", "postgresql")


def url_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """Where a fresh store of this kind is; a server is begun only for who needs it."""
    if kind == "memory":
        return "memory://"
    if kind == "sqlite":
        return f"sqlite:///{folder}/o.db"
    found: str = request.getfixturevalue("url")
    return found


@contextmanager
def opened_again(
    make: Callable[[], S], dressed: Callable[[S], Store] = lambda store: store
) -> Iterator[Callable[[], Store]]:
    """Opens the same place at every call, as another process would; closes all in the end."""
    opened: list[S] = []

    def begin() -> Store:
        opened.append(make())
        return dressed(opened[-1])

    yield begin
    for store in opened:
        asyncio.run(store.close())


def on_server(url: str, ports: Ports, clock: HandClock) -> PostgresStore:
    """A store for the suite on a real server, of which only the clock is ours."""
    return PostgresStore(url, ports=ports, lease_seconds=LEASE_SECONDS, server_time=clock.now_ms)


def store_url(folder: Path) -> str:
    """Where the processes that share this folder keep their journals."""
    named = folder / "store.url"
    return named.read_text() if named.exists() else f"sqlite:///{folder / 'journal.db'}"


def open_shared(url: str, lease_seconds: float = 15.0) -> Shared:
    """The store, as a reader sees it."""
    return _open(url, SQLiteStore, PostgresStore, lease_seconds=lease_seconds)


def open_witnessed(folder: Path, url: str = "", **options: Any) -> Shared:
    """The store, which writes down into the folder how each of its commits was answered."""
    store = _open(url or store_url(folder), WitnessedSQLite, WitnessedPostgres, **options)
    path = folder / f"appends-{os.getpid()}.jsonl"
    assert isinstance(store, Witness)
    store.witness_file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return store


def _open(
    url: str,
    in_file: Callable[..., SQLiteStore],
    in_postgres: Callable[..., PostgresStore],
    **options: Any,
) -> Shared:
    if url.startswith("sqlite:///"):
        return in_file(url.removeprefix("sqlite:///"), **options)
    return in_postgres(url, **options)


class Witness:
    """Writes down each answer as soon as it was had."""

    witness_file: int

    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
        answers: Answers | None = await super().commit(batch, wait=wait)  # type: ignore[misc]
        if answers is not None:
            self.note(batch, answers)
        return answers

    def note(self, batch: Sequence[Entry], answers: Answers) -> None:
        """A line per answer."""
        told = [
            [e.run_id, e.last, e.epoch, e.lease, answer is None, time.time()]
            for e, answer in zip(batch, answers, strict=True)
        ]
        os.write(self.witness_file, "".join(f"{json.dumps(each)}\n" for each in told).encode())


class WitnessedSQLite(Witness, SQLiteStore):
    """A file under witness."""


class WitnessedPostgres(Witness, PostgresStore):
    """A server under witness."""
