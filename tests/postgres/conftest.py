"""Processes that share a schema of the server, where others share a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.stage import Stage
from tests.workers.yard import Yard


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
