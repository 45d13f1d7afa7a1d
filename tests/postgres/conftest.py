"""A PostgreSQL server per process of tests, and a schema per test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.crash.conftest import chance, trials
from tests.harness.postgres_server import PostgresServer
from tests.processes.stage import Stage
from tests.workers.yard import Yard

__all__ = ["chance", "trials"]

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


@pytest.fixture
def yard(tmp_path: Path, url: str) -> Iterator[Yard]:
    """Workers of the command line that share a schema of the server."""
    yard = Yard(tmp_path, url)
    yield yard
    yard.close()


@pytest.fixture
def stage(tmp_path: Path, url: str) -> Iterator[Stage]:
    """Processes that share a schema of the server, where others share a file."""
    stage = Stage(tmp_path)
    stage.move_to(url)
    yield stage
    stage.close()
