"""Races, storms of kills and forks, as on a file, with the journals in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.stage import Stage
from tests.processes.test_fork import test_the_app_of_a_forked_child_is_closed
from tests.processes.test_races import test_of_all_who_race_for_a_run_one_drives_it
from tests.processes.test_storm import test_a_storm_of_kills_loses_and_repeats_nothing

__all__ = [
    "test_a_storm_of_kills_loses_and_repeats_nothing",
    "test_of_all_who_race_for_a_run_one_drives_it",
    "test_the_app_of_a_forked_child_is_closed",
]

pytestmark = pytest.mark.alone


@pytest.fixture
def stage(tmp_path: Path, url: str) -> Iterator[Stage]:
    """Processes that share a schema of the server, where others share a file."""
    stage = Stage(tmp_path)
    stage.move_to(url)
    yield stage
    stage.close()
