"""A driver that was stopped in the body, while another did it, is refused at its commit."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from tests.conftest import Figure
from tests.transactions.booking import booked, expected, recover, spawn
from tests.transactions.places import PostgresPlace

pytestmark = [pytest.mark.alone("postgres"), pytest.mark.timeout(600)]


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("part", ["flight", "table"])
def test_stopped_in_the_body(postgres_place: PostgresPlace, part: str, figure: Figure) -> None:
    """Its writes are gone, the run is the other's, and everything happened once."""
    place, names = postgres_place, ["z1"]
    zombie = spawn(place, "z1", "", 0, stop_in=part)
    assert zombie.pid is not None
    until = time.monotonic() + 30
    while not is_stopped(zombie.pid):
        assert time.monotonic() < until, "it did not stop"
        time.sleep(0.02)

    outcomes = asyncio.run(asyncio.wait_for(recover(place, names), 60))
    os.kill(zombie.pid, signal.SIGCONT)
    zombie.join(60)

    assert expected(names) == booked(place)
    assert 0 == zombie.exitcode  # it has read the other's outcome
    assert outcomes == asyncio.run(recover(place, names))
    figure(f"transactional steps: zombie stopped in {part}", "refused")
    zombie.close()
