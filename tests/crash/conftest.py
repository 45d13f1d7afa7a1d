"""Where crash tests keep their trials, and where their samples come from."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Figure

#: A kill loses nothing that the kernel has, so a file system in memory serves as well as a disk.
MEMORY = Path("/dev/shm")
TRIALS_KEPT = 5


@pytest.fixture
def trials(tmp_path: Path) -> Iterator[Path]:
    """A folder for trials, in memory where there is such a place."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="outlive-crash-", dir=MEMORY))
    yield folder
    # Trials without a violation leave nothing behind; of the others a few are worth a look.
    for trial in sorted(folder.iterdir())[:TRIALS_KEPT]:
        shutil.copytree(trial, tmp_path / trial.name)
    shutil.rmtree(folder)


@pytest.fixture
def chance(figure: Figure, request: pytest.FixtureRequest) -> random.Random:
    """Where samples come from: a new seed each time, printed; ``OUTLIVE_TEST_SEED`` repeats one."""
    seed = int(os.environ.get("OUTLIVE_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    figure(f"crash points, seed of {request.node.name}", seed)
    return random.Random(seed)
