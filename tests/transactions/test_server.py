"""The server crashes while a transactional step is open: what it wrote is there once, or not at all
until the step is tried again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from outlive.app.open import open_app
from outlive.ports import Ports
from outlive.settings import Settings
from tests.harness.places import PostgresPlace
from tests.harness.postgres_server import PostgresServer
from tests.transactions.booking import PARTS, Here, booked, expected, trip

pytestmark = [pytest.mark.alone("postgres"), pytest.mark.timeout(600)]

SETTINGS = Settings(lease_seconds=30.0, poll_seconds=0.05)


#: At the first commit and at the last, before and behind it: both on ordinary days, crosswise.
CRASHES = (
    ("transaction.before", 1),
    ("transaction.after", len(PARTS)),
    pytest.param("transaction.after", 1, marks=pytest.mark.full),
    pytest.param("transaction.before", len(PARTS), marks=pytest.mark.full),
)


@pytest.mark.parametrize(("moment", "number"), CRASHES)
async def test_a_server_that_crashes_around_the_commit(moment: str, number: int) -> None:
    """Right before the user's commit, when all is undone, or right behind it, when all is there."""
    with ThreadPoolExecutor(1) as keeper, PostgresServer() as server:
        place = Here.place = PostgresPlace(server.url())
        passed: Counter[str] = Counter()

        def failpoint(reached: str) -> None:
            passed[reached] += 1
            if reached == moment and passed[reached] == number:
                server.crash()
                keeper.submit(server.start).result()  # it ends with the thread that started it

        app = open_app(place.url, ports=Ports(failpoint=failpoint), settings=SETTINGS)
        async with app, asyncio.timeout(120):
            outcome = await (await app.start(trip, "t", id="t")).outcome()

        assert passed[moment] >= number
        assert [f"t/{part}" for part in PARTS] == [each.partition(" ")[0] for each in outcome]
        assert expected(["t"]) == booked(place)
