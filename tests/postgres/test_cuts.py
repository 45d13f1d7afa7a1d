"""Cuts on PostgreSQL: the rules, from a server into a file and back, and killed everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from outlive.journal.lane import run_immediate
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
from tests.conftest import Figure
from tests.cuts.rules import CutRules
from tests.cuts.test_kills import REACHED_MIN, SAMPLE_REACHED_MIN, SCENES, Killing
from tests.harness.postgres_server import PostgresServer


class TestFromServerToFile(CutRules):
    """Agents talk on a server; a cut of them is restored into a file."""

    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        store = PostgresStore(url)
        yield store
        run_immediate(store.close())

    @pytest.fixture
    def other_store(self, tmp_path: Path) -> Iterator[Store]:
        store = SQLiteStore(tmp_path / "other.db")
        yield store
        run_immediate(store.close())


class TestFromFileToServer(TestFromServerToFile):
    """And the other way round."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = SQLiteStore(tmp_path / "one.db")
        yield store
        run_immediate(store.close())

    @pytest.fixture
    def other_store(self, url: str) -> Iterator[Store]:
        store = PostgresStore(url)
        yield store
        run_immediate(store.close())


@pytest.mark.alone("postgres")
@pytest.mark.parametrize("scene", SCENES)
def test_killed_at_every_store_call(
    scene: str, killing: Callable[[float], Killing], full: bool, figure: Figure
) -> None:
    """A cut that was taken in a file is restored into a server, whatever is killed."""
    points, tried, hits = killing(1.0 if full else 0.25).kill(scene)

    figure(f"cuts, PostgreSQL: store calls at which '{scene}' was killed", f"{hits} of {points}")
    assert hits >= (REACHED_MIN if full else SAMPLE_REACHED_MIN) * tried
    assert tried > 4


@pytest.fixture
def killing(trials: Path, chance: Random, postgres: PostgresServer) -> Callable[[float], Killing]:
    """Kills at such a share of the points."""
    return lambda share: Killing(trials, chance, share, postgres.url())
