"""Somebody who can write a store's file or tables, and has no key."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import psycopg

from outlive.envelope import enclose
from outlive.model.mail import Letter, encode_letter
from outlive.stores.postgres.url import parse_place


class Forger(ABC):
    """Writes rows past the store."""

    #: How a row of mail names its run, for a parameter that is the run's id.
    of_run = "run_id = %s"

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def sql(self, statement: str, *parameters: Any) -> Sequence[Any]:
        """What a statement answers; %s are parameters, {s} is where the tables are."""

    @abstractmethod
    def insert(self, run_id: str, mail_id: str, body: bytes) -> None:
        """A row of mail."""

    def post(self, run_id: str, mail_id: str, body: bytes) -> None:
        """Mail as the store itself would have written it."""
        self.insert(run_id, mail_id, body)
        self.sql("UPDATE {s}runs SET posted = posted + 1 WHERE run_id = %s", run_id)

    def write(self, run_id: str, mail_id: str, letter: Letter) -> None:
        """A letter in the envelope of a store that is not sealed."""
        self.post(run_id, mail_id, enclose(run_id, mail_id, encode_letter(letter)))

    def body(self, run_id: str, mail_id: str) -> bytes:
        """What a row of mail holds."""
        found = self.sql(
            f"SELECT body FROM {{s}}mail WHERE {self.of_run} AND mail_id = %s", run_id, mail_id
        )
        return bytes(found[0][0])

    def put(self, run_id: str, mail_id: str, body: bytes) -> None:
        """Replace what a row of mail holds."""
        self.sql(
            f"UPDATE {{s}}mail SET body = %s WHERE {self.of_run} AND mail_id = %s",
            body,
            run_id,
            mail_id,
        )


class SQLiteForger(Forger):
    """Of a file."""

    of_run = "run = (SELECT id FROM runs WHERE run_id = %s)"

    def sql(self, statement: str, *parameters: Any) -> Sequence[Any]:
        db = sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None, timeout=20)
        try:
            asked = statement.replace("{s}", "").replace("%s", "?")
            return db.execute(asked, parameters).fetchall()
        finally:
            db.close()

    def insert(self, run_id: str, mail_id: str, body: bytes) -> None:
        self.sql(
            "INSERT INTO mail (run, mail_id, posted_at, body)"
            " SELECT id, %s, 1, %s FROM runs WHERE run_id = %s",
            mail_id,
            body,
            run_id,
        )


class PostgresForger(Forger):
    """Of tables."""

    def sql(self, statement: str, *parameters: Any) -> Sequence[Any]:
        place = parse_place(self.url)
        asked = statement.replace("{s}", f'"{place.schema}".')
        plain = self.url.partition("?")[0]
        with psycopg.connect(plain, autocommit=True) as db, db.cursor() as cursor:
            cursor.execute(asked, parameters)
            return cursor.fetchall() if cursor.description else []

    def insert(self, run_id: str, mail_id: str, body: bytes) -> None:
        self.sql(
            "INSERT INTO {s}mail (run_id, mail_id, posted_at, mark, body)"
            " VALUES (%s, %s, 1, '', %s)",
            run_id,
            mail_id,
            body,
        )
