"""Workers of two versions, restarted under load: everything ends, by whoever may drive it."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from outlive.model.events import Claimed, Event, Parked
from tests.conftest import Figure
from tests.harness.processes import until
from tests.workers import deploy
from tests.workers.yard import Command, Yard

pytestmark = pytest.mark.alone("processes")

RUNS = 120
RUNS_FULL = 1000
RESTART_SECONDS = 1.0
WORKERS = 4
#: Nobody is killed here: only a worker that gets no processor for so long loses what it drives.
LEASE_SECONDS = "15"


class Deployment:
    """Workers of both versions; every second one of them is told to stop, and replaced."""

    def __init__(self, yard: Yard, runs: int, accepts: str) -> None:
        self._yard, self._runs, self._accepts = yard, runs, accepts
        self.workers = [self._hire(str(1 + n % 2)) for n in range(WORKERS)]
        self.all = list(self.workers)
        self.restarts = 0

    def _hire(self, version: str) -> Command:
        accepts = self._accepts if version == "2" else ""
        return self._yard.hire(
            "--concurrency",
            "15",
            DEPLOY_VERSION=version,
            DEPLOY_ACCEPTS=accepts,
            OUTLIVE_LEASE_SECONDS=LEASE_SECONDS,
        )

    def restart_one(self) -> None:
        """The oldest goes, and one of its version comes."""
        oldest = self.workers.pop(0)
        oldest.tell()
        self.workers.append(self._hire(oldest.version))
        self.all.append(self.workers[-1])
        self.restarts += 1

    def roll(self, seconds: float) -> None:
        """Restart every second until all runs are over."""
        began = time.monotonic()
        while self._yard.statuses("order")["completed"] < self._runs:
            assert time.monotonic() < began + seconds, self._yard.statuses("order")
            time.sleep(RESTART_SECONDS)
            if self.workers[0].worker_id is not None:
                self.restart_one()

    def stop(self) -> None:
        """Everybody goes, and says that it went in good order."""
        for worker in self.workers:
            until(lambda worker=worker: worker.worker_id is not None, "it to be up")
            worker.tell()
        for worker in self.all:
            assert 0 == worker.wait(), worker.said("err")
            assert "cut off" not in worker.said("err")


def taken_over(events: list[Event]) -> bool:
    """Whether somebody claimed the run though its driver had not handed it over."""
    held = False
    for event in events:
        if isinstance(event, Claimed):
            if held:
                return True
            held = True
        elif isinstance(event, Parked):
            held = False
    return False


@pytest.mark.parametrize("accepts", ["1", ""], ids=["v2 accepts v1", "v2 does not"])
def test_a_rolling_deploy_loses_and_repeats_nothing(
    yard: Yard, figure: Figure, full: bool, accepts: str
) -> None:
    """All runs end, each driven by versions that accept it; no effect twice, no step repeated."""
    runs = RUNS_FULL if full else RUNS
    flows = {"1": deploy.order_of("1"), "2": deploy.order_of("2")}
    versions = {f"r{n}": str(1 + n % 2) for n in range(runs)}
    yard.submit(*((run, flows[v], (int(run[1:]),)) for run, v in versions.items()))

    deployment = Deployment(yard, runs, accepts)
    deployment.roll(seconds=600)
    deployment.stop()

    hired = {worker.worker_id: worker for worker in deployment.all}
    takeovers = strangers = 0
    for run_id, version in versions.items():
        drivers = [hired[claimer] for claimer in yard.claimers(run_id)]
        assert all(version in driver.accepts for driver in drivers), run_id
        takeovers += len({driver.pid for driver in drivers}) - 1
        strangers += any(driver.version != version for driver in drivers)
    assert bool(strangers) == bool(accepts)
    paid = Counter(receipt.key for receipt in yard.receipts())
    assert {1} == set(paid.values())
    assert runs * deploy.TURNS == len(paid)
    # A lease that lapsed for want of a processor would excuse repeats: there was none.
    lapsed = {run_id for run_id in versions if taken_over(yard.events(run_id))}
    repeated = {body.split()[0] for body, count in yard.bodies().items() if count > 1}
    assert {} == {run_id: yard.events(run_id, Claimed, Parked) for run_id in lapsed | repeated}
    assert [] == yard.audit()
    name = "v2 accepts v1" if accepts else "v2 does not accept v1"
    figure(f"rolling deploy, {name}: runs", runs)
    figure(f"rolling deploy, {name}: workers restarted", deployment.restarts)
    figure(f"rolling deploy, {name}: runs that changed their process", takeovers)
    figure(f"rolling deploy, {name}: effects twice, steps repeated", 0)
