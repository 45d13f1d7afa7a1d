"""A run whose code crashes the interpreter is put aside; two hundred neighbours end."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from outlive.model.decide import CLAIMS_MAX
from tests.conftest import Figure
from tests.harness.processes import until
from tests.workers import deploy
from tests.workers.yard import Command, Yard

pytestmark = pytest.mark.alone("processes")

HEALTHY = 200
WORKERS = 2


class Nurse:
    """Starts a worker again whenever it died, as an init system does."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self.deaths: list[int | None] = []
        self._workers = [self._hire() for _ in range(WORKERS)]

    def _hire(self) -> Command:
        return self._yard.hire("--concurrency", "20")

    def watch(self, condition: Callable[[], bool], what: str) -> None:
        """Keep them working until it is so."""
        until(lambda: self._look_after() or condition(), what, seconds=100)

    def _look_after(self) -> bool:
        for place, worker in enumerate(self._workers):
            if not worker.is_alive:
                self.deaths.append(worker.wait())
                self._workers[place] = self._hire()
        return False


def test_a_run_that_crashes_python_is_quarantined_alone(yard: Yard, figure: Figure) -> None:
    """Five claims, five dead workers, and it is put aside; every healthy run ends."""
    half = HEALTHY // 2
    runs = [(f"h{n}", deploy.healthy, (n,)) for n in range(HEALTHY)]
    yard.submit(*runs[:half])
    yard.submit(("poison", deploy.poison, ()))
    yard.submit(*runs[half:])
    nurse = Nurse(yard)

    nurse.watch(lambda: yard.status("poison") == "quarantined", "the quarantine")
    nurse.watch(lambda: yard.statuses("healthy")["completed"] == HEALTHY, "the healthy runs")

    assert [-signal.SIGSEGV] * CLAIMS_MAX == nurse.deaths
    assert CLAIMS_MAX + 1 == len(yard.claimers("poison"))
    assert HEALTHY == len(yard.receipts())
    assert [] == yard.audit()
    figure("poison by SIGSEGV: workers killed", len(nurse.deaths))
    figure("poison by SIGSEGV: healthy runs that ended", HEALTHY)
