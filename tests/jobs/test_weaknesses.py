"""Weaknesses of the stock package: each is shown on it, and then on ours, in one test.

The others of the list have their tests elsewhere in this folder.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import masumi
import pytest
from masumi.job_manager import InMemoryJobStorage, JobManager
from masumi.server import MasumiAgentServer

import outlive
from outlive.jobs import JobPolicy, JobService
from outlive.jobs.masumi import MasumiEscrow, MasumiJobStorage, recover_jobs_on_startup
from outlive.jobs.masumi.recovery import payment_of
from outlive.testing import FakePaymentService

IDENTIFIER = "0123456789abcdef"
ORDER = {"identifier_from_purchaser": IDENTIFIER, "input_data": {"text": "hi"}}


@outlive.step
async def shout(text: str) -> str:
    return text.upper()


async def handler(identifier: str, input_data: dict[str, Any]) -> str:
    return await shout(input_data["text"])


class Stock:
    """The package's own server, with its own storage."""

    def __init__(self, service: FakePaymentService, config: Any) -> None:
        async def stock_handler(identifier: str, input_data: dict[str, Any]) -> str:
            self.executed += 1
            return str(input_data["text"]).upper()

        self.executed = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.server = MasumiAgentServer(
                config,
                agent_identifier=service.agent_identifier,
                start_job_handler=stock_handler,
                seller_vkey=service.seller_vkey,
            )
        transport = httpx.ASGITransport(self.server.app)
        self.web = httpx.AsyncClient(transport=transport, base_url="http://stock.test")

    async def order(self) -> dict[str, Any]:
        job: dict[str, Any] = (await self.web.post("/start_job", json=ORDER)).json()
        # Its monitor polls every ten seconds; the tests tell it themselves.
        self.server.job_manager.get_payment_instance(job["id"]).stop_status_monitoring()
        return job

    async def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """What the monitor does when the funds are locked."""
        await self.server.job_manager.set_job_running(job["id"])
        await self.server._execute_agent_job(job["id"])
        found: dict[str, Any] = await self.server.job_manager.get_job(job["id"])
        return found


@pytest.fixture
async def stock(service: FakePaymentService, config: Any) -> AsyncIterator[Stock]:
    stock = Stock(service, config)
    async with stock.web:
        yield stock


@asynccontextmanager
async def ours(
    service: FakePaymentService, folder: Path, **times: Any
) -> AsyncIterator[httpx.AsyncClient]:
    escrow = MasumiEscrow(service.url, service.api_key, service.agent_identifier, **times)
    policy = JobPolicy(look_every="1s", settled_after="0s", margin="11m" if times else "1m")
    jobs = JobService(
        handler, escrow=escrow, store=f"sqlite:///{folder}/o.db", policy=policy, poll_every="50ms"
    )
    web = httpx.AsyncClient(transport=httpx.ASGITransport(jobs), base_url="http://agent.test")
    async with jobs, web:
        async with asyncio.timeout(60):
            while "available" != (await web.get("/availability")).json()["status"]:
                await asyncio.sleep(0.02)
        yield web


async def end_of(web: httpx.AsyncClient, job: dict[str, Any]) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            found: dict[str, Any] = (await web.get("/status", params={"job_id": job["id"]})).json()
            if found["status"] in ("completed", "failed"):
                return found
            await asyncio.sleep(0.02)


async def test_4_completed_though_nothing_was_submitted(
    service: FakePaymentService, config: Any, tmp_path: Path
) -> None:
    """After a restart the stock manager says completed and submits nothing; recovery submits."""
    storage = MasumiJobStorage(f"sqlite:///{tmp_path}/jobs.db")
    salt = {"identifier_from_purchaser": IDENTIFIER, "input_data": {"text": "hi"}}
    payment = masumi.Payment(service.agent_identifier, config=config, **salt)
    data = (await payment.create_payment_request())["data"]
    bid = data["blockchainIdentifier"]
    service.pay(bid)
    job = {
        "job_id": "j1", "status": "running", "payment_id": bid, "input_data": {"text": "hi"},
        "identifier_from_purchaser": IDENTIFIER, "agent_identifier": service.agent_identifier,
        "submit_result_time": int(data["submitResultTime"]), "result": None,
    }  # fmt: skip
    memory = InMemoryJobStorage()
    await memory.create_job("j1", job)
    await JobManager(memory).set_job_completed("j1", "HI")  # a manager after a restart
    stock_job, stock_sent = await memory.get_job("j1"), service.submissions(bid)

    await storage.create_job("j1", job)
    service.confirm_after("20ms")

    async def plain(identifier: str, input_data: dict[str, Any]) -> str:
        return str(input_data["text"]).upper()

    recovery = await recover_jobs_on_startup(storage, config, handler=plain, poll_seconds=0.05)
    await asyncio.wait_for(recovery.wait(), 60)
    await recovery.stop()
    our_job = await storage.get_job("j1")
    await storage.close()

    assert stock_job is not None
    assert ("completed", []) == (stock_job["status"], stock_sent)
    assert our_job is not None
    assert ("completed", 1) == (our_job["status"], len(service.submissions(bid)))


@pytest.mark.parametrize("kind", ["error", "lost", "lost_404"])
async def test_5_and_6_any_error_of_the_submission_is_a_failure(
    service: FakePaymentService, stock: Stock, tmp_path: Path, kind: Any
) -> None:
    """The stock job fails and its result is gone, even where it was accepted; ours is delivered."""
    job = await stock.order()
    service.pay(job["blockchainIdentifier"])
    service.fault("submit", kind)
    stock_job = await stock.run(job)
    service.confirm_after("20ms")
    async with ours(service, tmp_path) as web:
        our_order = (await web.post("/start_job", json=ORDER)).json()
        service.fault("submit", kind)
        service.pay(our_order["blockchainIdentifier"])
        our_job = await end_of(web, our_order)

    assert ("failed", None) == (stock_job["status"], stock_job["result"])
    assert (kind != "error") == bool(service.submissions(job["blockchainIdentifier"]))
    assert ("completed", "HI") == (our_job["status"], our_job["result"])


async def test_10_illegal_transitions(tmp_path: Path) -> None:
    """A completed job of the stock storage runs again; strict mode refuses that."""
    stock, ours = InMemoryJobStorage(), MasumiJobStorage(f"sqlite:///{tmp_path}/j.db", strict=True)
    for storage in (stock, ours):
        await storage.create_job("j1", {"job_id": "j1", "status": "completed"})
    await stock.update_job("j1", {"status": "running"})
    with pytest.raises(ValueError, match="from completed to running"):
        await ours.update_job("j1", {"status": "running"})
    await ours.close()


async def test_15_deadlines_are_not_checked(
    service: FakePaymentService, stock: Stock, tmp_path: Path
) -> None:
    """The stock server executes when no result can be delivered any more; ours does not."""
    job = await stock.order()
    service.pay(job["blockchainIdentifier"])
    late = {"submit_result_time": 1}
    await stock.server.job_manager.storage.update_job(job["id"], late)
    await stock.run(job)
    async with ours(service, tmp_path, pay_within="1m", submit_within="15m 30s") as web:
        our_order = (await web.post("/start_job", json=ORDER)).json()
        service.pay(our_order["blockchainIdentifier"])
        our_job = await end_of(web, our_order)

    assert 1 == stock.executed
    assert "Submit deadline expired" in our_job["error"]


async def test_17_the_same_order_twice_is_two_payments(
    service: FakePaymentService, stock: Stock, tmp_path: Path
) -> None:
    """The stock server requests a second payment; ours answers with the first."""
    await stock.order()
    await stock.order()
    stock_count = len(service.payments())
    async with ours(service, tmp_path) as web:
        jobs = [(await web.post("/start_job", json=ORDER)).json() for _ in range(2)]

    assert 2 == stock_count
    assert jobs[0] == jobs[1]
    assert 3 == len(service.payments())


async def test_18_completed_before_the_chain_has_it(
    service: FakePaymentService, stock: Stock, tmp_path: Path
) -> None:
    """The stock job is completed when the service queued it; ours when the chain has it."""
    job = await stock.order()
    service.pay(job["blockchainIdentifier"])
    stock_job = await stock.run(job)
    async with ours(service, tmp_path) as web:
        our_order = (await web.post("/start_job", json=ORDER)).json()
        bid = our_order["blockchainIdentifier"]
        service.pay(bid)
        async with asyncio.timeout(60):
            while not service.submissions(bid):
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)  # whoever takes it for final would say so by now
        queued = (await web.get("/status", params={"job_id": our_order["id"]})).json()

    assert "completed" == stock_job["status"]
    assert service.payment(job["blockchainIdentifier"])["onChainState"] == "FundsLocked"
    assert ("running", None) == (queued["status"], queued["result"])


async def test_23_codes_and_errors(
    service: FakePaymentService, stock: Stock, tmp_path: Path
) -> None:
    """The stock server answers 500 for a job that is not there; ours 404, and shows errors."""
    body = {"job_id": "nobody", "input_data": {}}
    stock_answer = await stock.web.post("/provide_input", json=body)
    async with ours(service, tmp_path) as web:
        our_answer = await web.post("/provide_input", json=body)

    assert (500, 404) == (stock_answer.status_code, our_answer.status_code)


def test_25_a_payment_without_its_identifier_has_another_hash(config: Any) -> None:
    """A rebuilt Payment hashes with the default identifier; ours with the job's own."""
    job = {"agent_identifier": "a" * 60, "identifier_from_purchaser": IDENTIFIER, "input_data": {}}
    rebuilt = masumi.Payment("a" * 60, config=config)
    own = payment_of(job, config)
    expected = masumi.create_masumi_output_hash("HI", IDENTIFIER)

    assert expected != masumi.create_masumi_output_hash("HI", rebuilt.identifier_from_purchaser)
    assert expected == masumi.create_masumi_output_hash("HI", own.identifier_from_purchaser)
