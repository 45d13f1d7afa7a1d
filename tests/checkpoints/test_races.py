"""Many processes on one run: the journal has all of them, in one order."""

from __future__ import annotations

from pathlib import Path
from subprocess import PIPE

import pytest

from outlive.checkpoints import SnapshotStore
from tests.conftest import Figure
from tests.harness.programs import start_python

pytestmark = pytest.mark.alone("processes")

RACERS, SAVES = 4, 15


async def check(url: str) -> int:
    racers = [
        start_python("-m", "tests.checkpoints.racer", url, f"p{number}", SAVES, stderr=PIPE)
        for number in range(RACERS)
    ]
    for racer in racers:
        assert ("", 0) == (racer.communicate(timeout=200)[1], racer.returncode)
    async with SnapshotStore(url) as store:
        found = await store.list_snapshots("r")
    for each in found:
        name, _, number = each.step_id.partition("-")
        texts = [f"{name} {n} " * 80 for n in range(int(number) + 1)]
        assert {"texts": texts} == each.state
        assert {"n": int(number)} == each.metadata
    for place in range(RACERS):
        own = [each.metadata["n"] for each in found if each.step_id.startswith(f"p{place}-")]
        assert list(range(SAVES)) == own
    return len(found)


async def test_processes_share_a_file(tmp_path: Path, figure: Figure) -> None:
    """Nothing is lost, nothing is mixed up, each one's own steps are in their order."""
    figure("checkpoints: saved by racing processes", await check(f"sqlite:///{tmp_path}/o.db"))


async def test_processes_share_a_server(url: str) -> None:
    """The same on PostgreSQL."""
    assert RACERS * SAVES == await check(url)
