"""Many jobs, agents that are killed all the time, and a service on which nothing is reliable."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outlive.testing import FakePaymentService
from tests.harness.stores import url_of
from tests.jobs.agents import AgentProcess


@contextmanager
def killed(agents: list[AgentProcess], chance: random.Random, most: int) -> Iterator[list[int]]:
    """Kill one of these agents every 0.5 to 2 seconds, so often at most."""
    done, kills = threading.Event(), list[int]()

    def work() -> None:
        while len(kills) < most and not done.wait(chance.uniform(0.5, 2)):
            agent = chance.choice(agents)
            if agent.is_alive:
                agent.kill()
                kills.append(agent.port)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield kills
    finally:
        done.set()
        thread.join()


@pytest.mark.alone("processes")
@pytest.mark.timeout(3000)
@pytest.mark.item(44, 45, 46, 52, 65, 74, 75, 79)
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
def test_every_job_ends_once(  # noqa: PLR0913 - what the trial needs
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    service: FakePaymentService,
    chance: random.Random,
    full: bool,
) -> None:
    """Each job is completed, with one payment, and one result that was accepted."""
    store = url_of(kind, tmp_path, request)
    count = 200 if full else 6
    service.confirm_after("50ms")
    service.fault_at_random(0.15)
    agents = [AgentProcess(store, service, tmp_path) for _ in range(1 if kind == "sqlite" else 2)]
    for agent in agents:
        request.addfinalizer(agent.close)
    jobs = []
    with killed(agents, chance, most=200 if full else 4) as kills:
        for number in range(count):
            job = chance.choice(agents).order(number, text=f"job {number}")
            service.pay(job["blockchainIdentifier"])
            jobs.append(job)
        ended = [chance.choice(agents).wait(job["id"], "completed") for job in jobs]

    assert [f"JOB {number}!" for number in range(count)] == [each["result"] for each in ended]
    assert count == len(service.payments())
    sent = [entry["bid"] for entry in service.submissions()]
    assert sorted(job["blockchainIdentifier"] for job in jobs) == sorted(sent)
    assert kills
