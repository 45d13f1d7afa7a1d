"""Recovery for the stock app: every status and every state of the chain, and kill -9."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import masumi
import pytest
from masumi.job_manager import JobManager

from outlive.errors import UsageError
from outlive.jobs.masumi import (
    MasumiJobStorage,
    reattach_payment_monitoring,
    recover_jobs_on_startup,
)
from outlive.jobs.masumi.recovery import payment_of
from outlive.testing import FakePaymentService
from outlive.web import lifespan
from tests.jobs.agents import PATIENCE_SECONDS, AgentProcess

IDENTIFIER = "0123456789abcdef"
HOUR = 3_600_000


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[MasumiJobStorage]:
    storage = MasumiJobStorage(f"sqlite:///{tmp_path}/jobs.db")
    yield storage
    await storage.close()


class Handler:
    """A handler that counts its calls."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    async def __call__(self, identifier: str, input_data: dict[str, Any]) -> str:
        self.calls.append(input_data)
        return input_data["text"].upper()  # type: ignore[no-any-return]


class Desk:
    """Jobs that a process left behind."""

    def __init__(self, service: FakePaymentService, storage: MasumiJobStorage, config: Any) -> None:
        self.service, self.storage, self.config = service, storage, config

    async def leave(self, status: str, **more: Any) -> str:
        """A job of this status, with a payment of its own; its id is that of the payment."""
        payment = masumi.Payment(
            agent_identifier=self.service.agent_identifier,
            config=self.config,
            identifier_from_purchaser=IDENTIFIER,
            input_data={"text": "hi"},
        )
        data = (await payment.create_payment_request())["data"]
        bid: str = data["blockchainIdentifier"]
        job = {
            "job_id": bid[:20], "status": status, "payment_id": bid, "result": None, "error": None,
            "identifier_from_purchaser": IDENTIFIER, "input_data": {"text": "hi"},
            "pay_by_time": int(data["payByTime"]), "network": "Preprod",
            "submit_result_time": int(data["submitResultTime"]),
            "agent_identifier": self.service.agent_identifier, **more,
        }  # fmt: skip
        await self.storage.create_job(job["job_id"], job)
        return bid

    async def job(self, bid: str) -> dict[str, Any]:
        found = await self.storage.get_job(bid[:20])
        assert found is not None
        return found

    async def recover(self, handler: Handler | None = None, **more: Any) -> Any:
        return await recover_jobs_on_startup(
            self.storage, self.config, handler=handler, poll_seconds=0.05, **more
        )

    async def wait(self, bid: str, *wanted: str) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while (job := await self.job(bid))["status"] not in wanted:
                await asyncio.sleep(0.02)
        return job


@pytest.fixture
def desk(service: FakePaymentService, storage: MasumiJobStorage, config: masumi.Config) -> Desk:
    return Desk(service, storage, config)


@pytest.mark.item(50)
async def test_nothing_to_recover(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Without a job that was left behind it says so."""
    with caplog.at_level(logging.INFO, "outlive.jobs"):
        recovery = await desk.recover()

    assert {} == recovery.tasks
    assert ["No jobs to recover."] == [record.getMessage() for record in caplog.records]


@pytest.mark.item(49, 51, 53, 54, 55, 57, 58, 59, 60, 61, 67)
async def test_every_kind_of_job_that_was_left_behind(
    desk: Desk, service: FakePaymentService, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is looked at on the chain first, then executed, completed, failed or waited for."""
    past = service.ledger.now_ms() - HOUR
    handler = Handler()
    jobs = {
        "unpaid": await desk.leave("awaiting_payment"),
        "expired": await desk.leave("awaiting_payment", pay_by_time=past),
        "paid": await desk.leave("awaiting_payment", pay_by_time=past),
        "running": await desk.leave("running"),
        "late": await desk.leave("running", submit_result_time=past),
        "delivered": await desk.leave("running", submit_result_time=past, staged_result="DONE"),
        "asked": await desk.leave("awaiting_input"),
        "asked late": await desk.leave("awaiting_input", submit_result_time=past),
        "ended": await desk.leave("completed", result="old"),
    }
    for name in ("paid", "running", "late", "asked", "asked late"):
        service.pay(jobs[name])
    service.force(jobs["delivered"], state="ResultSubmitted", action="WaitingForExternalAction")
    service.confirm_after("20ms")
    with caplog.at_level(logging.INFO, "outlive.jobs"):
        recovery = await desk.recover(handler)
        found = {name: (await desk.wait(jobs[name], "completed", "failed"))
                 for name in jobs if name not in ("unpaid", "asked")}  # fmt: skip
        await asyncio.sleep(0.2)
        await recovery.stop()

    assert "Found 8 job(s) to recover." in caplog.text
    assert ("awaiting_payment", "awaiting_input") == (
        (await desk.job(jobs["unpaid"]))["status"], (await desk.job(jobs["asked"]))["status"],
    )  # fmt: skip
    assert {
        "expired": "Payment deadline expired before restart.",
        "late": "Submit deadline expired during outage.",
        "asked late": "Submit deadline expired while awaiting human input.",
    } == {name: job["error"] for name, job in found.items() if job["status"] == "failed"}
    results = {name: job["result"] for name, job in found.items() if job["status"] == "completed"}
    assert {"paid": "HI", "running": "HI", "delivered": "DONE", "ended": "old"} == results
    assert 2 == len(handler.calls)
    assert sorted([jobs["paid"], jobs["running"]]) == sorted(
        entry["bid"] for entry in service.submissions()
    )


@pytest.mark.item(45, 72, 74, 79)
async def test_a_saved_result_is_handed_in_once(desk: Desk, service: FakePaymentService) -> None:
    """With a lost answer to the submission nothing is run or handed in again."""
    handler = Handler()
    bid = await desk.leave("running")
    service.pay(bid)
    service.fault("submit", "lost_404")
    recovery = await desk.recover(handler)
    async with asyncio.timeout(60):
        while not service.submissions(bid):
            await asyncio.sleep(0.02)
    staged = await desk.job(bid)
    service.confirm_after("20ms")
    job = await desk.wait(bid, "completed", "failed")
    await recovery.stop()

    assert (None, "HI") == (staged["result"], staged["staged_result"])
    assert ("completed", "HI") == (job["status"], job["result"])
    assert (1, 1) == (len(handler.calls), len(service.submissions(bid)))


@pytest.mark.item(52)
async def test_a_service_that_is_away_fails_nothing(
    desk: Desk, service: FakePaymentService
) -> None:
    """Nothing is decided while the payment service can't be reached."""
    bids = [await desk.leave("running"), await desk.leave("awaiting_payment", pay_by_time=1)]
    service.pay(bids[0])
    service.stop()
    recovery = await desk.recover(Handler())
    await asyncio.sleep(0.3)
    statuses = [(await desk.job(bid))["status"] for bid in bids]
    service.confirm_after("20ms")
    service.start()
    ended = [(await desk.wait(bid, "completed", "failed"))["status"] for bid in bids]
    await recovery.stop()

    assert ["running", "awaiting_payment"] == statuses
    assert ["completed", "failed"] == ended


async def test_without_a_handler_jobs_stay_and_are_named(
    desk: Desk, service: FakePaymentService, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever can't execute a job logs its id and leaves it as it is."""
    bid = await desk.leave("running")
    service.pay(bid)
    recovery = await desk.recover()
    await asyncio.wait_for(recovery.wait(), 60)
    await recovery.stop()

    assert "running" == (await desk.job(bid))["status"]
    assert f"job {bid[:20]}: no handler to execute it" in caplog.text
    with pytest.raises(UsageError, match="create_masumi_app"):
        await desk.recover(app=object())


@pytest.mark.item(65)
async def test_two_replicas_recover_at_once(
    desk: Desk, service: FakePaymentService, tmp_path: Path
) -> None:
    """Of two that recover, one executes each job."""
    bids = [await desk.leave("running") for _ in range(5)]
    for bid in bids:
        service.pay(bid)
    service.confirm_after("20ms")
    other = MasumiJobStorage(f"sqlite:///{tmp_path}/jobs.db")
    handler, second = Handler(), Desk(service, other, desk.config)
    recoveries = await asyncio.gather(desk.recover(handler), second.recover(handler))
    for bid in bids:
        await desk.wait(bid, "completed")
    for recovery in recoveries:
        await recovery.stop()
    await other.close()

    assert 5 == len(handler.calls)
    assert 5 == len(service.submissions())


@pytest.mark.item(54, 55, 56, 57)
@pytest.mark.parametrize(
    ("state", "status"),
    [("FundsLocked", "running"), ("ResultSubmitted", "completed"), (None, "awaiting_payment")],
)
async def test_monitoring_is_attached_again(
    desk: Desk, service: FakePaymentService, state: str | None, status: str
) -> None:
    """The document's own call, with the real Payment and JobManager."""
    bid = await desk.leave("awaiting_payment")
    if state is not None:
        service.force(bid, state=state, action="WaitingForExternalAction")
    manager, job = JobManager(desk.storage), await desk.job(bid)
    payment = payment_of(job, desk.config)
    await reattach_payment_monitoring(job, payment, manager, poll_seconds=0.2)
    found = (await desk.job(bid))["status"]
    is_monitored = bid in payment.payment_ids
    if state is None:
        service.pay(bid)
        found_later = (await desk.wait(bid, "running"))["status"]
        payment.stop_status_monitoring()
        assert "running" == found_later

    assert (status, state is None) == (found, is_monitored)


@pytest.fixture
def stock(tmp_path: Path, service: FakePaymentService) -> Iterator[AgentProcess]:
    service.confirm_after("50ms")
    store = f"sqlite:///{tmp_path}/jobs.db"
    agent = AgentProcess(store, service, tmp_path, "stock_agent.py")
    yield agent
    agent.close()


def wait_for(path: Path, lines: int) -> list[str]:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if path.exists() and len(found := path.read_text().splitlines()) >= lines:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{path.name} has not {lines} lines")


@pytest.mark.alone("processes")
@pytest.mark.item(18, 20, 37, 44, 47, 48, 49, 55, 60, 62, 64)
def test_the_stock_app_survives_kills(
    stock: AgentProcess, service: FakePaymentService, tmp_path: Path
) -> None:
    """create_masumi_app over HTTP: payment in an outage, human input, kill -9, and recovery."""
    job = stock.order(1, text="hello", ask=True)
    stock.kill()
    service.pay(job["blockchainIdentifier"])  # during the outage
    asked = stock.wait(job["id"], "awaiting_input")
    stock.kill()
    again = stock.wait(job["id"], "awaiting_input")
    body = {"job_id": job["id"], "input_data": {"note": "yes"}}
    assert 200 == stock.call("POST", "/provide_input", json=body).status_code
    wait_for(tmp_path / "executed", 2)
    stock.kill()  # with the answer stored, and the work not done
    (tmp_path / "go").touch()
    done = stock.wait(job["id"], "completed")

    assert asked["input_schema"] == again["input_schema"]
    assert "HELLO yes" == done["result"]
    (sent,) = service.submissions(job["blockchainIdentifier"])
    assert sent["hash"] == masumi.create_masumi_output_hash("HELLO yes", f"{1:016x}")


@pytest.mark.item(64)
async def test_the_lifespan_of_an_app_is_wrapped() -> None:
    """The worker is open before the app's own startup and until after its own shutdown."""
    told: list[str] = []

    @asynccontextmanager
    async def worker() -> AsyncIterator[None]:
        told.append("worker")
        yield
        told.append("worker ends")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for name in ("startup", "shutdown"):
            await receive()
            told.append(name)
            await send({"type": f"lifespan.{name}.complete"})

    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        told.append(message["type"])

    await lifespan(app, worker)({"type": "lifespan"}, receive, send)

    assert told == [
        "worker", "startup", "lifespan.startup.complete",
        "shutdown", "worker ends", "lifespan.shutdown.complete",
    ]  # fmt: skip
