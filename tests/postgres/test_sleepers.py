"""Runs that sleep cost their worker nothing, and those that wake do so in time."""

from __future__ import annotations

import pytest

from bench.sleepers_postgres import measure
from tests.conftest import Figure, Stretch
from tests.harness.postgres_server import PostgresServer

RESIDENT_MB_MAX = 250.0
LATE_MS_MAX = 1_000.0
#: How much longer the quickest look may take among the most than among the fewest, of which there
#: are ten or a hundred times as many.
SLOWER_MAX = 3.0


@pytest.mark.alone("time")
async def test_ten_thousand_sleepers(
    own_postgres: PostgresServer, figure: Figure, full: bool, stretch: Stretch
) -> None:
    """A worker's memory is small, a due timer fires within a second, a look takes as long as ever.

    In full there are a hundred thousand; ``python -m bench.sleepers_postgres`` has a million.
    """
    fewest, *_, most = await measure(own_postgres, 100_000 if full else 10_000)

    name = f"postgresql: {most['sleeping']} sleepers"
    figure(f"{name}: worker's MB", most["worker"]["resident_mb"])
    figure(f"{name}: timers late, worst ms", most["worker"]["late_ms_worst"])
    figure(f"{name}: look with 100 due, p50 and p99 ms", list(most["look"]["hundred_due"].values()))
    assert most["worker"]["resident_mb"] < RESIDENT_MB_MAX
    factor = stretch()
    assert most["worker"]["late_ms_worst"] < LATE_MS_MAX * factor
    for kind in ("none_due", "hundred_due"):
        quickest = [each["look"][kind]["least_ms"] for each in (fewest, most)]
        assert quickest[1] < SLOWER_MAX * factor * quickest[0], kind
