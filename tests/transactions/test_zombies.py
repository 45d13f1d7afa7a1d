"""A driver that was stopped in the body, while another did it, is refused at its commit."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.conftest import Figure
from tests.harness.places import PostgresPlace
from tests.harness.processes import state_of, until
from tests.transactions.booking import booked, expected, recover, spawn

pytestmark = [pytest.mark.alone("postgres"), pytest.mark.timeout(600)]


@pytest.mark.parametrize("part", ["flight", "table"])
def test_stopped_in_the_body(postgres_place: PostgresPlace, part: str, figure: Figure) -> None:
    """Its writes are gone, the run is the other's, and everything happened once."""
    place, names = postgres_place, ["z1"]
    zombie = spawn(place, "z1", "", 0, stop_in=part)
    assert zombie.pid is not None
    until(lambda: state_of(zombie) == "T", "it to stop")

    outcomes = asyncio.run(asyncio.wait_for(recover(place, names), 60))
    os.kill(zombie.pid, signal.SIGCONT)
    zombie.join(60)

    assert expected(names) == booked(place)
    assert 0 == zombie.exitcode  # it has read the other's outcome
    assert outcomes == asyncio.run(recover(place, names))
    figure(f"transactional steps: zombie stopped in {part}", "refused")
    zombie.close()
