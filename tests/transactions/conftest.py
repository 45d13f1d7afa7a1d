"""Both stores that share a transaction with their users, each with a table of the user's in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.places import Place, PostgresPlace, SQLitePlace


@pytest.fixture
def sqlite_place(tmp_path: Path) -> SQLitePlace:
    """A new file."""
    return SQLitePlace(f"sqlite:///{tmp_path}/o.db")


@pytest.fixture
def postgres_place(url: str) -> PostgresPlace:
    """A new schema."""
    return PostgresPlace(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each of the two."""
    name = "sqlite_place" if request.param == "sqlite" else "postgres_place"
    found: Place = request.getfixturevalue(name)
    return found
