"""A PostgreSQL server per process of tests, and a schema per test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from outlive.testing.postgres_server import PostgresServer

_numbers = count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of this process that do it no harm."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server that a test may crash."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    """A place of its own for each test: a schema that does not exist yet."""
    return postgres.url(schema=f"test_{next(_numbers)}")
