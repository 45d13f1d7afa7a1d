"""A golden store, restored as it was written: a folder with a file, or a database of a server."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from outlive.stores.postgres import schema as postgres_schema
from outlive.stores.sqlite import schema as sqlite_schema
from tests.golden.flows import KEY, settings_environment
from tests.harness.postgres_server import PostgresServer

STORES = Path(__file__).parent / "stores"
NAMES = tuple(sorted(path.name.removesuffix(".tar.xz") for path in STORES.glob("*.tar.xz")))
ROOT = Path(__file__).parents[2]
COMMAND_SECONDS = 120
_SCHEMA = "SELECT value FROM {}meta WHERE name = 'outlive.schema'"
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One store, and the ledger of what happened while it was written."""

    folder: Path
    url: str
    #: A key opens it; not all of it need be sealed.
    is_sealed: bool
    is_mixed: bool

    @property
    def environment(self) -> dict[str, str]:
        """How processes are set that go on with it."""
        key = {"OUTLIVE_KEY": KEY} if self.is_sealed else {}
        return {"OUTLIVE_STORE": self.url, **settings_environment(), **key}

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The real command line on this store."""
        return subprocess.run(
            [sys.executable, "-m", "outlive", *words],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )

    def is_old(self) -> bool:
        """Whether this release has another schema than the one that wrote the store."""
        if self.url.startswith("sqlite"):
            found, current = self.rows(_SCHEMA.format("")), sqlite_schema.SCHEMA_VERSION
        else:
            found, current = self.rows(_SCHEMA.format("outlive.")), postgres_schema.SCHEMA_VERSION
        assert int(found[0]) <= current, "the store is newer than the code"
        return int(found[0]) < current

    def rows(self, query: str) -> list[str]:
        """The first column of what a query finds, past the store."""
        if self.url.startswith("sqlite"):
            database = sqlite3.connect(self.folder / "store.db")
            try:
                return [row[0] for row in database.execute(query)]
            finally:
                database.close()
        with psycopg.connect(self.url) as connection:
            return [row[0] for row in connection.execute(query.encode())]


def restore(name: str, folder: Path, server: PostgresServer | None) -> Golden:
    """This store in a folder of its own, and in a database of its own, if it is for a server."""
    with tarfile.open(STORES / f"{name}.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    url = f"sqlite:///{folder}/store.db" if server is None else _load(folder / "dump.sql", server)
    kind = name.partition("-")[2]
    return Golden(folder=folder, url=url, is_sealed=kind != "plain", is_mixed=kind == "mixed")


def _load(dump: Path, server: PostgresServer) -> str:
    database = f"golden_{next(_numbers)}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}".encode())
    url = urlunsplit(urlsplit(server.url())._replace(path=f"/{database}"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(dump.read_bytes())
    return url
