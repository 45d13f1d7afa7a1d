"""Agents that are killed -9: at each checkpoint, and while a human is asked."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import masumi
import pytest

from outlive.testing import FakePaymentService
from tests.jobs.agents import AgentProcess

POINTS = ("request:before", "request:after", "work", "submit:before", "submit:after")


@pytest.fixture
def agent(tmp_path: Path, service: FakePaymentService) -> Iterator[AgentProcess]:
    service.confirm_after("50ms")
    agent = AgentProcess(f"sqlite:///{tmp_path}/jobs.db", service, tmp_path)
    yield agent
    agent.close()


@pytest.mark.alone("processes")
@pytest.mark.item(43, 44, 45, 46, 60, 79)
def test_a_job_survives_a_kill_at_each_checkpoint(
    agent: AgentProcess, service: FakePaymentService, tmp_path: Path
) -> None:
    """Each job ends once, with one payment and one accepted result, wherever it was killed."""
    for number, where in enumerate(POINTS):
        job = agent.order(number, text=f"job {number}", kill=where)
        service.pay(job["blockchainIdentifier"])
        found = agent.wait(job["id"], "completed")
        expected = f"JOB {number}!"
        assert expected == found["result"]
        (sent,) = service.submissions(job["blockchainIdentifier"])
        assert sent["hash"] == masumi.create_masumi_output_hash(expected, f"{number:016x}")

    assert len(POINTS) == len(service.payments())
    assert len(POINTS) == len(list(tmp_path.glob("killed-*")))
    thought = Counter((tmp_path / "thought").read_text().splitlines())
    assert {1} == set(thought.values())


@pytest.mark.alone("processes")
@pytest.mark.item(47, 62, 66, 84)
def test_an_answer_after_a_kill_wakes_the_job(
    agent: AgentProcess, service: FakePaymentService
) -> None:
    """The question survives with its schema and its id; the answer continues the job."""
    job = agent.order(1, text="hello", ask=True)
    service.pay(job["blockchainIdentifier"])
    asked = agent.wait(job["id"], "awaiting_input")
    agent.kill()
    again = agent.wait(job["id"], "awaiting_input")
    body = {"job_id": job["id"], "status_id": again["id"], "input_data": {"note": "yes"}}
    answer = agent.call("POST", "/provide_input", json=body)
    agent.signal(signal.SIGTERM)  # handed over, then continued by the next process

    assert asked == again
    assert [{"id": "note", "type": "text", "name": "Note"}] == asked["input_schema"]["input_data"]
    assert 200 == answer.status_code
    assert "HELLO yes!" == agent.wait(job["id"], "completed")["result"]
