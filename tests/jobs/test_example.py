"""examples/paid_agent.py under uvicorn, killed in the middle of a job."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlive.testing import FakePaymentService
from tests.jobs.agents import PATIENCE_SECONDS, AgentProcess

EXAMPLES = Path(__file__).parents[2] / "examples"


class Example(AgentProcess):
    """The example, served by uvicorn's own command."""

    def start(self) -> None:
        store, url, key, agent = self._said
        names = {"OUTLIVE_STORE": store, "PAYMENT_SERVICE_URL": url, "PAYMENT_API_KEY": key}
        names |= {"AGENT_IDENTIFIER": agent, "POLL_SECONDS": "0.2"}
        command = [sys.executable, "-m", "uvicorn", "paid_agent:service", "--log-level", "warning"]
        command += ["--app-dir", str(EXAMPLES), "--port", str(self.port)]
        with Path(self._folder, "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **names}
            )


@pytest.fixture
def agent(tmp_path: Path, service: FakePaymentService) -> Iterator[Example]:
    service.confirm_after("50ms")
    agent = Example(f"sqlite:///{tmp_path}/jobs.db", service, tmp_path)
    yield agent
    agent.close()


@pytest.mark.alone("processes")
@pytest.mark.item(44, 60)
def test_the_example_survives_a_kill(agent: Example, service: FakePaymentService) -> None:
    """Killed after some chapters, it writes the others, and at most one of them twice."""
    job = agent.order(1, topic="tides", chapters=6)
    service.pay(job["blockchainIdentifier"])
    end = time.monotonic() + PATIENCE_SECONDS
    while "chapter 3" not in agent.log() and time.monotonic() < end:
        time.sleep(0.02)
    agent.kill()
    done = agent.wait(job["id"], "completed")

    assert [f"{n}. About tides" for n in range(1, 7)] == done["result"].splitlines()
    written = Counter(line for line in agent.log().splitlines() if line.startswith("chapter"))
    assert 6 == len(written)
    assert sum(written.values()) <= 7
    assert 1 == len(service.submissions())
