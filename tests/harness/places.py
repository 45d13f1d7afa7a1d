"""A store that can share a transaction, and what a user has in the same database: one table."""

from __future__ import annotations

import sqlite3
from itertools import count
from typing import Any, Protocol

import psycopg

from outlive.app.open import open_app
from outlive.stores.postgres.url import parse_place

_numbers = count(1)


class Place(Protocol):
    """Where a store and a user's table are."""

    url: str
    #: Told from others in the same database.
    number: int

    def connect(self) -> Any:
        """A connection of the user's own, in the driver's default mode."""
        ...

    def rows(self) -> list[str]:
        """What the user's table holds, in order."""
        ...

    def count(self, table: str) -> int:
        """How many rows a table of the store has."""
        ...

    def dump(self, table: str) -> bytes:
        """What a table of the store holds, as it is stored."""
        ...

    def insert(self) -> str:
        """The statement with which a user writes one value."""
        ...


class SQLitePlace:
    """A file."""

    def __init__(self, url: str, *, make: bool = True) -> None:
        self.number = next(_numbers)
        self.url = url
        self.path = url.removeprefix("sqlite:///")
        if make:
            self._make()

    def _make(self) -> None:
        open_app(self.url).close()
        with sqlite3.connect(self.path) as db:
            db.execute("CREATE TABLE IF NOT EXISTS bookings (what TEXT NOT NULL)")
        db.close()

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30)

    def insert(self) -> str:
        return "INSERT INTO bookings VALUES (?)"

    def rows(self) -> list[str]:
        return [what for (what,) in self._ask("SELECT what FROM bookings ORDER BY what")]

    def count(self, table: str) -> int:
        return int(self._ask(f"SELECT count(*) FROM {table}")[0][0])

    def dump(self, table: str) -> bytes:
        return repr(self._ask(f"SELECT * FROM {table}")).encode()

    def _ask(self, sql: str) -> list[Any]:
        db = self.connect()
        try:
            return db.execute(sql).fetchall()
        finally:
            db.close()


class PostgresPlace:
    """A schema of a server."""

    def __init__(self, url: str, *, make: bool = True) -> None:
        self.number = next(_numbers)
        self.url = url
        self._place = parse_place(url)
        if make:
            self._make()

    def _make(self) -> None:
        open_app(self.url).close()
        with self.connect() as db:
            db.execute(f"CREATE TABLE IF NOT EXISTS {self.table} (what text NOT NULL)")

    @property
    def conninfo(self) -> str:
        return self._place.conninfo

    @property
    def table(self) -> str:
        return f"{self._place.schema}_bookings"

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._place.conninfo)

    def insert(self) -> str:
        return f"INSERT INTO {self.table} VALUES (%s)"

    def rows(self) -> list[str]:
        with self.connect() as db:
            found = db.execute(f"SELECT what FROM {self.table} ORDER BY what")
            return [what for (what,) in found]

    def count(self, table: str) -> int:
        with self.connect() as db:
            found = db.execute(f"SELECT count(*) FROM {self._place.schema}.{table}")
            (number,) = found.fetchone() or (0,)
            return int(number)

    def dump(self, table: str) -> bytes:
        with self.connect() as db:
            found = db.execute(f"SELECT * FROM {self._place.schema}.{table}")
            return repr(found.fetchall()).encode()


def place_of(url: str, *, make: bool = True) -> Place:
    """The place of a URL, in any process."""
    kind = SQLitePlace if url.startswith("sqlite") else PostgresPlace
    return kind(url, make=make)
