"""A connection that fails where it is told to, with SQLite's own error codes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from outlive.stores.sqlite.connections import Connection, Cursor, Value, connect_sqlite3


class FaultyConnection:
    """Hands every statement on, unless ``fault`` raises or answers in its place."""

    def __init__(self, real: Connection, fault: Callable[[str], Cursor | None]) -> None:
        self._real = real
        self._fault = fault

    @property
    def in_transaction(self) -> bool:
        return self._real.in_transaction

    @property
    def total_changes(self) -> int:
        return self._real.total_changes

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> Cursor:
        instead = self._fault(" ".join(sql.split()))
        return self._real.execute(sql, parameters) if instead is None else instead

    def close(self) -> None:
        self._real.close()


class Answer:
    """A cursor with one row."""

    def __init__(self, *row: Value) -> None:
        self._row = row

    def fetchone(self) -> Any:
        return self._row

    def fetchall(self) -> list[Any]:
        return [self._row]


class Faults:
    """Raises an error at the next statement that begins with a given text, or answers it."""

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}
        self.answers: dict[str, Value] = {}
        self.statements: list[str] = []

    def connect(self, path: str) -> Connection:
        real = connect_sqlite3(path)
        real.execute("PRAGMA busy_timeout = 0")
        return FaultyConnection(real, self._meet)

    def _meet(self, sql: str) -> Cursor | None:
        self.statements.append(sql)
        for start, code in self.errors.items():
            if sql.startswith(start):
                error = sqlite3.OperationalError(f"injected error {code}")
                error.sqlite_errorcode = code
                raise error
        return Answer(self.answers[sql]) if sql in self.answers else None
