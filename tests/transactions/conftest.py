"""Both stores that share a transaction with their users, each with a table of the user's in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.harness.postgres_server import PostgresServer
from tests.transactions.places import Place, PostgresPlace, SQLitePlace

_numbers = count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of this process."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def sqlite_place(tmp_path: Path) -> SQLitePlace:
    """A new file."""
    return SQLitePlace(f"sqlite:///{tmp_path}/o.db")


@pytest.fixture
def postgres_place(postgres: PostgresServer) -> PostgresPlace:
    """A new schema."""
    return PostgresPlace(postgres.url(schema=f"shared_{next(_numbers)}"))


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each of the two."""
    name = "sqlite_place" if request.param == "sqlite" else "postgres_place"
    found: Place = request.getfixturevalue(name)
    return found
