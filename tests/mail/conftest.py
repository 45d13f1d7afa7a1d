"""Stores whose mail somebody forges or damages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from outlive.journal.seal.keys import new_key
from tests.harness.postgres_server import PostgresServer
from tests.mail.forger import Forger, PostgresForger, SQLiteForger

_numbers = count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of this process."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def forger(request: pytest.FixtureRequest, tmp_path: Path) -> Forger:
    """Of each kind of store."""
    if request.param == "sqlite":
        return SQLiteForger(f"sqlite:///{tmp_path}/o.db")
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return PostgresForger(postgres.url(schema=f"forged_{next(_numbers)}"))


@pytest.fixture
def key() -> str:
    """A master key."""
    return new_key(os.urandom)
