"""The one PostgreSQL server that everybody runs on, and a database of it for each turn.

It is started as the tests start theirs, with the settings of a careful team: every commit is
flushed, and memory and log are sized so that no checkpoint falls into a turn. A turn begins with a
checkpoint and an empty database, or with a copy of one in which somebody died.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from bench.contest import POSTGRES, POSTGRES_PID
from tests.harness.postgres_server import HOST, ROLE, PostgresServer

#: Kept over restarts, so on a disk, and open to the user that the server runs as.
PLACE = Path("/var/tmp")
SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB", "checkpoint_timeout": "30min"}
#: How long connections of those who are gone may take to be noticed.
PATIENCE_SECONDS = 10.0
#: From here on the log's flushes are told in another view.
NEWER_STATISTICS = 180_000


@dataclass(frozen=True, kw_only=True)
class Database:
    """One turn's."""

    name: str
    url: str
    #: The server's first process.
    pid: int
    #: What it weighed before anybody came.
    empty_bytes: int

    def environment(self) -> dict[str, str]:
        """How a contestant learns of it."""
        return {POSTGRES: self.url, POSTGRES_PID: str(self.pid)}


class Databases:
    """A server of our own, as long as the context lasts."""

    def __init__(self, within: Path = PLACE) -> None:
        self._server = PostgresServer(settings=SETTINGS, within=within)
        self._made = 0

    def __enter__(self) -> Databases:
        self._server.__enter__()
        self._database = psycopg.connect(self._server.url(), autocommit=True)
        return self

    def __exit__(self, *stopped: Any) -> None:
        self._database.close()
        self._server.remove()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.port

    def version(self) -> str:
        """Of the server."""
        return str(self._ask("SHOW server_version")).split()[0]

    @contextmanager
    def fresh(self, *, template: str = "", port: int = 0) -> Iterator[Database]:
        """A database for one turn, reached by itself or through whatever listens on a port."""
        self._made += 1
        database = self.make(f"turn_{self._made}", template=template, port=port)
        try:
            yield database
        finally:
            self._do("DROP DATABASE {} WITH (FORCE)", database.name)

    def make(self, name: str, *, template: str = "", port: int = 0) -> Database:
        """An empty one, or a copy, with everything that was written before on disk."""
        source = template or "template1"
        self.wait_until_alone(source)
        self._do("CREATE DATABASE {} TEMPLATE {}", name, source)
        self._database.execute("CHECKPOINT")
        place = f"{HOST}:{port or self._server.port}/{name}"
        return Database(
            name=name,
            url=f"postgresql://{ROLE}:{self._server.password}@{place}",
            pid=self._server.pid or 0,
            empty_bytes=self._weigh(name),
        )

    def wait_until_alone(self, name: str) -> None:
        """Whoever was connected is noticed to be gone; what they did is in the statistics then."""
        asked: LiteralString = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        end = time.monotonic() + PATIENCE_SECONDS
        while self._ask(asked, name) and time.monotonic() < end:
            time.sleep(0.02)

    def grown_bytes(self, database: Database) -> int:
        """What lies in it since."""
        return self._weigh(database.name) - database.empty_bytes

    def statistics(self, database: Database) -> dict[str, int]:
        """What the server has counted so far."""
        flushes: LiteralString = "SELECT wal_sync FROM pg_stat_wal"
        if self._database.info.server_version >= NEWER_STATISTICS:
            flushes = "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'"
        asked: LiteralString = "SELECT xact_commit FROM pg_stat_database WHERE datname = %s"
        return {
            "transactions": int(self._ask(asked, database.name) or 0),
            "flushes": int(self._ask(flushes) or 0),
            "log_bytes": int(self._ask("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")),
        }

    def _weigh(self, name: str) -> int:
        return int(self._ask("SELECT pg_database_size(%s)", name))

    def _ask(self, asked: LiteralString, *values: str) -> Any:
        found = self._database.execute(asked, values).fetchone()
        return found[0] if found else None

    def _do(self, asked: LiteralString, *names: str) -> None:
        self._database.execute(sql.SQL(asked).format(*map(sql.Identifier, names)))
