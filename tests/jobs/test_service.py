"""JobService over ASGI: the routes of MIP-003, and a job from order to delivery."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import masumi
import pytest
from masumi import models

import outlive
from outlive.jobs import JobPolicy, JobService, request_input
from outlive.jobs.masumi import MasumiEscrow
from outlive.testing import FakePaymentService

SCHEMA = {
    "input_data": [
        {"id": "text", "type": "text", "name": "Text", "validations": [
            {"validation": "max", "value": "40"}]},
        {"id": "when", "type": "date", "name": "When", "validations": [
            {"validation": "optional", "value": "true"}]},
    ]
}  # fmt: skip
FORM = {"input_data": [{"id": "ok", "type": "boolean", "name": "OK"}]}
IDENTIFIER = "0123456789abcdef"


@outlive.step
async def think(text: str) -> str:
    return text.upper()


async def handler(identifier: str, input_data: dict[str, Any]) -> Any:
    text = await think(input_data["text"])
    if text == "FAIL":
        raise ValueError("this text can't be done")
    if text.startswith("ASK"):
        answer = await request_input(FORM, "Sure?", within=30 if text == "ASK" else 0.2)
        text += f" {answer['ok']}"
    return {"answer": text} if text == "JSON" else text


class Buyer:
    """A client of an agent, and its payment service."""

    def __init__(self, service: FakePaymentService, jobs: JobService) -> None:
        self.service, self.jobs = service, jobs
        transport = httpx.ASGITransport(jobs)
        self.web = httpx.AsyncClient(transport=transport, base_url="http://agent.test")

    async def ready(self) -> None:
        async with asyncio.timeout(60):
            while "available" != (await self.web.get("/availability")).json()["status"]:
                await asyncio.sleep(0.02)

    async def order(self, text: str, identifier: str = IDENTIFIER, **more: Any) -> dict[str, Any]:
        input_data = {"text": text, **more}
        body = {"identifier_from_purchaser": identifier, "input_data": input_data}
        answer = await self.web.post("/start_job", json=body)
        assert 200 == answer.status_code, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def status(self, job: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = (await self.web.get("/status", params={"job_id": job["id"]})).json()
        return found

    async def wait(self, job: dict[str, Any], *wanted: str) -> dict[str, Any]:
        async with asyncio.timeout(120):
            while (found := await self.status(job))["status"] not in wanted:
                await asyncio.sleep(0.02)
        return found

    async def answer(self, job: dict[str, Any], value: Any, status_id: Any) -> httpx.Response:
        body = {"job_id": job["id"], "status_id": status_id, "input_data": value}
        return await self.web.post("/provide_input", json=body)


Opening = Callable[..., Any]


@pytest.fixture
def opened(service: FakePaymentService, tmp_path: Path) -> Opening:
    """``async with opened() as buyer``: an agent that runs, and who orders from it."""

    @asynccontextmanager
    async def opening(
        agent: str | None = None, policy: JobPolicy | None = None, **options: Any
    ) -> AsyncIterator[Buyer]:
        escrow = MasumiEscrow(
            service.url, service.api_key, agent or service.agent_identifier, **{
                name: options.pop(name) for name in ("pay_within", "submit_within", "free")
                if name in options
            }
        )  # fmt: skip
        jobs = JobService(
            options.pop("handler", handler),
            escrow=escrow,
            store=options.pop("store", f"sqlite:///{tmp_path}/jobs.db"),
            input_schema=SCHEMA,
            poll_every="50ms",
            policy=policy or JobPolicy(look_every="1s", settled_after="0s"),
            **options,
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(jobs)
            buyer = Buyer(service, jobs)
            await stack.enter_async_context(buyer.web)
            await buyer.ready()
            yield buyer

    return opening


@pytest.mark.item(1, 2, 3, 5, 8, 9, 10, 11, 12, 13, 14, 43, 46, 71, 76, 80, 82, 91)
async def test_a_job_from_order_to_delivery(service: FakePaymentService, opened: Opening) -> None:
    """Ordered, paid, done, delivered: every answer is one that masumi's models accept."""
    async with opened() as buyer:
        job = await buyer.order("hi")
        models.StartJobResponse.model_validate(job)
        unpaid = await buyer.status(job)
        bid = job["blockchainIdentifier"]
        service.pay(bid)
        delivering = await buyer.wait(job, "running")
        async with asyncio.timeout(60):
            while not service.submissions(bid):
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)  # whoever takes it for final would say so by now
        queued = await buyer.status(job)
        service.step()
        service.step()
        done = await buyer.wait(job, "completed")
        for each in (unpaid, delivering, done):
            models.StatusResponse.model_validate(each)

    data = service.payment(bid)
    assert "awaiting_payment" == unpaid["status"]
    assert ("running", None) == (queued["status"], queued["result"])
    assert "HI" == done["result"]
    assert IDENTIFIER == job["identifierFromPurchaser"]
    assert [int(data[name]) for name in ("payByTime", "submitResultTime", "unlockTime")] == [
        job[name] for name in ("payByTime", "submitResultTime", "unlockTime")
    ]
    assert service.seller_vkey == job["sellerVKey"]
    assert masumi.create_masumi_input_hash({"text": "hi"}, IDENTIFIER) == job["input_hash"]
    assert job["inputHash"] == job["input_hash"] == data["inputHash"]
    assert masumi.create_masumi_output_hash("HI", IDENTIFIER) == data["resultHash"]


@pytest.mark.item(83)
async def test_the_same_order_again_is_the_same_job(
    service: FakePaymentService, opened: Opening
) -> None:
    """Ordered twice, also at the same time, there is one job and one payment."""
    async with opened() as buyer:
        first, *others = await asyncio.gather(*(buyer.order("hi") for _ in range(4)))
        other = await buyer.order("hi", identifier="f" * 16)

    assert all(each == first for each in others)
    assert other["id"] != first["id"]
    assert 2 == len(service.payments())


@pytest.mark.item(43)
@pytest.mark.parametrize("kind", ["lost", "lost_500"])
async def test_a_lost_answer_leaves_no_second_payment(
    service: FakePaymentService, opened: Opening, kind: Any
) -> None:
    """A payment whose answer was lost is found, not requested again."""
    async with opened() as buyer:
        service.fault("create", kind)
        job = await buyer.order("hi")

    assert [job["blockchainIdentifier"]] == [
        each["blockchainIdentifier"] for each in service.payments()
    ]


@pytest.mark.item(70, 72, 74, 75, 79)
@pytest.mark.parametrize("kind", ["lost", "lost_404", "lost_409", "lost_500", "conflict", "drop"])
async def test_a_submission_that_went_wrong_is_looked_at(
    service: FakePaymentService, opened: Opening, kind: Any
) -> None:
    """Whatever the service answers, the result is accepted once and the job is completed."""
    service.confirm_after("20ms")
    async with opened() as buyer:
        job = await buyer.order("hi")
        service.fault("submit", kind)
        service.pay(job["blockchainIdentifier"])
        done = await buyer.wait(job, "completed", "failed")

    assert ("completed", "HI") == (done["status"], done["result"])
    assert 1 == len(service.submissions(job["blockchainIdentifier"]))


@pytest.mark.item(17, 47, 84, 85)
async def test_a_human_is_asked(service: FakePaymentService, opened: Opening) -> None:
    """The question has a schema and a stable id; a stale or wrong answer is refused by its code."""
    service.confirm_after("20ms")
    async with opened() as buyer:
        job = await buyer.order("ask")
        early = await buyer.answer(job, {"ok": True}, None)
        service.pay(job["blockchainIdentifier"])
        asked = await buyer.wait(job, "awaiting_input")
        again = await buyer.status(job)
        wrong = await buyer.answer(job, {"ok": "maybe"}, asked["id"])
        stale = await buyer.answer(job, {"ok": True}, "00000000-0000-4000-8000-000000000000")
        strange = await buyer.answer({"id": "no-such-job"}, {"ok": True}, asked["id"])
        good = await buyer.answer(job, {"ok": True}, asked["id"])
        done = await buyer.wait(job, "completed")
        late = await buyer.answer(job, {"ok": True}, asked["id"])
        models.ProvideInputResponse.model_validate(good.json())

    assert asked["id"] == again["id"]
    assert FORM == asked["input_schema"]
    codes = [each.status_code for each in (early, wrong, stale, strange, good, late)]
    assert [409, 400, 409, 404, 200, 409] == codes
    assert ["must be true or false"] == wrong.json()["detail"]["field_errors"]["ok"]
    assert masumi.create_masumi_input_hash({"ok": True}, IDENTIFIER) == good.json()["input_hash"]
    assert "ASK True" == done["result"]


@pytest.mark.item(6, 86, 87)
async def test_what_fails_says_why(service: FakePaymentService, opened: Opening) -> None:
    """An error of the handler, and a question that nobody answers, stand in the status."""
    async with opened() as buyer:
        jobs = [await buyer.order(text) for text in ("fail", "ask soon")]
        for job in jobs:
            service.pay(job["blockchainIdentifier"])
        found = [await buyer.wait(job, "failed") for job in jobs]

    assert "this text can't be done" in found[0]["error"]
    assert found[1]["error"]
    assert [] == service.submissions()


@pytest.mark.item(82, 85, 88, 90, 92, 97)
async def test_bad_requests_have_their_codes(opened: Opening) -> None:
    """Each kind of bad request has its status and a text that names it."""
    async with opened() as buyer:
        web = buyer.web
        answers = [
            await web.post("/start_job", content=b"no json"),
            await web.post("/start_job", json=[1]),
            await web.post("/start_job", json={"identifier_from_purchaser": 7}),
            await web.post("/start_job", json={"input_data": "text"}),
            await web.post("/start_job", json={"input_data": {}}),
            await web.post("/start_job", json={"input_data": {"text": "x" * 41}}),
            await web.post("/start_job", json={"input_data": {"text": "x", "when": "soon"}}),
            await web.post("/provide_input", json={"job_id": "x"}),
            await web.get("/status"),
            await web.get("/status", params={"job_id": "nobody"}),
            await web.get("/status", params={"jobId": "../../etc"}),
            await web.get("/demo"),
            await web.get("/start_job"),
            await web.get("/nothing"),
        ]
        alias = {"identifierFromPurchaser": "ab" * 8, "inputData": {"text": "hi"}}
        accepted = await web.post("/start_job", json=alias)
        nameless = await web.post("/start_job", json={"input": {"text": "hi"}})
        schema = models.InputSchemaResponse.model_validate((await web.get("/input_schema")).json())

    expected = [400, 400, 400, 400, 400, 400, 400, 400, 422, 404, 404, 501, 405, 404]
    assert expected == [answer.status_code for answer in answers]
    assert all(answer.json()["detail"] for answer in answers)
    assert [200, 200] == [accepted.status_code, nameless.status_code]
    assert ["text", "when"] == [field.id for field in schema.input_data or ()]


@pytest.mark.item(88)
async def test_availability_tells_the_truth(service: FakePaymentService, opened: Opening) -> None:
    """A handler that raises, and an agent that nobody registered, are not available."""

    async def broken() -> dict[str, Any]:
        raise RuntimeError("no model today")

    async with opened() as buyer:
        models.AvailabilityResponse.model_validate((await buyer.web.get("/availability")).json())
        buyer.jobs._availability = broken
        assert "unavailable" == (await buyer.web.get("/availability")).json()["status"]
    escrow = MasumiEscrow(service.url, service.api_key, "f" * 60)
    async with JobService(handler, escrow=escrow, store="memory://") as jobs:
        stranger = Buyer(service, jobs)
        async with stranger.web:
            body = {"input_data": {"text": "hi"}}
            found = await stranger.web.get("/availability")
            refused = await stranger.web.post("/start_job", json=body)

    assert "unavailable" == found.json()["status"]
    assert 503 == refused.status_code


@pytest.mark.item(95)
@pytest.mark.parametrize("how", ["registry", "zero", "told"])
async def test_a_free_agent_runs_at_once(
    service: FakePaymentService, opened: Opening, how: str
) -> None:
    """Nothing is requested or submitted, and the job is completed."""
    agent = "e" * 60
    if how != "told":
        pricing: Any = "Free" if how == "registry" else "Fixed"
        service.register(agent, pricing=pricing, amount="0")
    async with opened(agent, free=how == "told") as buyer:
        job = await buyer.order("hi")
        done = await buyer.wait(job, "completed")

    assert job["blockchainIdentifier"].startswith("FREE-")
    assert 29 == len(job["blockchainIdentifier"])
    assert "HI" == done["result"]
    assert [] == service.payments()


async def test_a_wrong_answer_after_the_payment_loses_no_job(
    service: FakePaymentService, opened: Opening
) -> None:
    """A 404 where the news said paid is asked again, not believed until the deadline."""
    service.confirm_after("20ms")
    async with opened() as buyer:
        job = await buyer.order("hi")
        service.fault("resolve", "lost_404", times=2)
        service.pay(job["blockchainIdentifier"])
        done = await buyer.wait(job, "completed", "failed")

    assert "HI" == done["result"]


@pytest.mark.item(53, 81)
async def test_nobody_pays(service: FakePaymentService, opened: Opening) -> None:
    """When the time to pay is over the escrow is asked once more, and the job has failed."""
    policy = JobPolicy(grace="0s")
    async with opened(pay_within="1s", policy=policy) as buyer:
        job = await buyer.order("hi")
        found = await buyer.wait(job, "failed", "completed")

    assert "Payment deadline expired." in found["error"]


@pytest.mark.item(67, 68)
async def test_a_deadline_that_passed_is_never_tried(
    service: FakePaymentService, opened: Opening
) -> None:
    """Paid when no time is left for the result, the handler is not even called."""
    policy = JobPolicy(margin="11m")  # with the service's five minutes: more than there is
    async with opened(pay_within="1m", submit_within="15m 30s", policy=policy) as buyer:
        job = await buyer.order("hi")
        service.pay(job["blockchainIdentifier"])
        found = await buyer.wait(job, "failed", "completed")

    assert "Submit deadline expired" in found["error"]
    assert [] == service.submissions()


@pytest.mark.item(77, 96)
@pytest.mark.parametrize(
    ("state", "action", "text"),
    [
        ("FundsOrDatumInvalid", "WaitingForManualAction", "invalid"),
        ("RefundWithdrawn", "None", "is over"),
        ("DisputedWithdrawn", "None", "is over"),
        ("RefundAuthorized", "None", "is over"),
        ("RefundRequested", "WaitingForExternalAction", "refund"),
        ("Withdrawn", "None", "has not made"),
        ("ResultSubmitted", "WaitingForExternalAction", "has not made"),
    ],
)
async def test_a_payment_that_can_not_be_worked_for(
    service: FakePaymentService, opened: Opening, state: str, action: str, text: str
) -> None:
    """Nothing is run and nothing handed in, and the status says why."""
    async with opened(policy=JobPolicy(on_refund="stop")) as buyer:
        job = await buyer.order("hi")
        service.force(job["blockchainIdentifier"], state=state, action=action)
        found = await buyer.wait(job, "failed", "completed")

    assert text in found["error"]
    assert [] == service.submissions()


@pytest.mark.item(73)
async def test_another_result_in_the_escrow_is_escalated(
    service: FakePaymentService, opened: Opening
) -> None:
    """If somebody else handed in another result, the job fails and names it."""
    async with opened() as buyer:
        job = await buyer.order("ask")
        bid = job["blockchainIdentifier"]
        service.pay(bid)
        asked = await buyer.wait(job, "awaiting_input")
        service.force(bid, action="SubmitResultRequested", queued="ab" * 32)
        await buyer.answer(job, {"ok": True}, asked["id"])
        found = await buyer.wait(job, "failed", "completed")

    assert "another result" in found["error"]


@pytest.mark.item(78)
async def test_an_error_of_the_service_is_recovered(
    service: FakePaymentService, opened: Opening
) -> None:
    """A submission that the service could not send is tried again, as the service wants it."""
    async with opened() as buyer:
        job = await buyer.order("hi")
        bid = job["blockchainIdentifier"]
        service.pay(bid)
        async with asyncio.timeout(60):
            while not service.submissions(bid):
                await asyncio.sleep(0.02)
        digest = masumi.create_masumi_output_hash("HI", IDENTIFIER)
        service.force(bid, action="WaitingForManualAction", error="NetworkError", queued=digest)
        service.confirm_after("20ms")
        done = await buyer.wait(job, "completed", "failed")

    assert "HI" == done["result"]
    assert 1 == len(service.submissions(bid))
    assert 1 == len(service.ledger.entries("recovered", bid))


@pytest.mark.item(98)
async def test_a_delivery_that_vanishes_is_handed_in_again(
    service: FakePaymentService, opened: Opening
) -> None:
    """After a rollback of the chain the saved result is handed in once more."""
    service.confirm_after("20ms")
    async with opened(policy=JobPolicy(look_every="1s", settled_after="10m")) as buyer:
        job = await buyer.order("hi")
        bid = job["blockchainIdentifier"]
        service.pay(bid)
        await buyer.wait(job, "completed")
        service.confirm_after(None)
        service.roll_back(bid)
        again = await buyer.wait(job, "running")
        service.confirm_after("20ms")
        done = await buyer.wait(job, "completed")

    assert again["result"] is None
    assert "HI" == done["result"]
    assert 2 == len(service.submissions(bid))


@pytest.mark.item(52, 57)
async def test_a_service_that_is_away_fails_no_job(
    service: FakePaymentService, opened: Opening
) -> None:
    """While the payment service is down nothing is decided; afterwards the job goes on."""
    service.confirm_after("20ms")
    async with opened() as buyer:
        job = await buyer.order("hi")
        service.stop()
        service.pay(job["blockchainIdentifier"])
        await asyncio.sleep(0.5)
        waiting = await buyer.status(job)
        service.start()
        done = await buyer.wait(job, "completed", "failed")

    assert "awaiting_payment" == waiting["status"]
    assert "HI" == done["result"]


async def test_results_that_are_no_text_are_json(
    service: FakePaymentService, opened: Opening
) -> None:
    """What a handler returns is delivered as the masumi package would write it."""
    service.confirm_after("20ms")
    async with opened() as buyer:
        job = await buyer.order("json")
        service.pay(job["blockchainIdentifier"])
        done = await buyer.wait(job, "completed")

    assert '{"answer": "JSON"}' == done["result"]


@pytest.mark.item(89)
async def test_logs_have_no_input_and_no_payment_data(
    service: FakePaymentService, opened: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    """Secrets in the input, the answer, the result and the payment stand in no log line."""
    service.confirm_after("20ms")
    secrets = [f"s3cret{n:02}" for n in range(18)]
    with caplog.at_level(logging.DEBUG, "outlive"):
        async with opened() as buyer:
            more = {f"field{n}": secret for n, secret in enumerate(secrets)}
            job = await buyer.order("ask", **more)
            service.pay(job["blockchainIdentifier"])
            asked = await buyer.wait(job, "awaiting_input")
            await buyer.answer(job, {"ok": True, "why": "s3cret98"}, asked["id"])
            await buyer.wait(job, "completed")
            failed = await buyer.order("fail", why="s3cret99")
            service.pay(failed["blockchainIdentifier"])
            await buyer.wait(failed, "failed")

    lines = [record.getMessage() for record in caplog.records if record.name.startswith("outlive")]
    told = "\n".join(lines)
    assert "s3cret" not in told
    assert job["blockchainIdentifier"] not in told


async def test_an_order_that_failed_before_it_was_paid_may_be_tried_again(
    service: FakePaymentService, opened: Opening
) -> None:
    """While no payment could be requested nobody has lost anything: the same order is tried."""
    async with opened() as buyer:
        service.ledger.set("agents", {})  # nobody is registered: the service refuses
        body = {"identifier_from_purchaser": IDENTIFIER, "input_data": {"text": "hi"}}
        refused = await buyer.web.post("/start_job", json=body)
        service.register(service.agent_identifier)
        job = await buyer.order("hi")

    assert 503 == refused.status_code
    assert [job["blockchainIdentifier"]] == [
        each["blockchainIdentifier"] for each in service.payments()
    ]


@pytest.mark.item(95)
async def test_a_free_job_survives_a_restart(service: FakePaymentService, opened: Opening) -> None:
    """A free job that was interrupted goes on in the next process, with the same payment."""
    async with opened("e" * 60, free=True) as buyer:
        job = await buyer.order("ask")
        asked = await buyer.wait(job, "awaiting_input")
    async with opened("e" * 60, free=True) as buyer:
        again = await buyer.order("ask")
        await buyer.answer(job, {"ok": True}, asked["id"])
        done = await buyer.wait(job, "completed")

    assert again == {**job}
    assert "ASK True" == done["result"]


@pytest.mark.item(93, 94)
async def test_a_free_agent_needs_no_service(tmp_path: Path) -> None:
    """Without URL, key and seller a free agent works."""
    escrow = MasumiEscrow("", "", "e" * 60, free=True)
    async with JobService(handler, escrow=escrow, store=f"sqlite:///{tmp_path}/jobs.db") as jobs:
        web = httpx.AsyncClient(transport=httpx.ASGITransport(jobs), base_url="http://agent.test")
        async with web, asyncio.timeout(60):
            while "available" != (await web.get("/availability")).json()["status"]:
                await asyncio.sleep(0.02)
            job = (await web.post("/start_job", json={"input": {"text": "hi"}})).json()
            while (
                "completed"
                != (found := (await web.get("/status", params={"job_id": job["id"]})).json())[
                    "status"
                ]
            ):
                await asyncio.sleep(0.02)

    assert "HI" == found["result"]
    assert "" == job["sellerVKey"]


async def test_two_services_run_each_job_once(service: FakePaymentService, opened: Opening) -> None:
    """Two replicas on one store: each job is thought once and handed in once."""
    service.confirm_after("20ms")
    thoughts: list[str] = []

    @outlive.step
    async def count(text: str) -> str:
        thoughts.append(text)
        await asyncio.sleep(0.05)
        return text

    async def counting(identifier: str, input_data: dict[str, Any]) -> str:
        return await count(input_data["text"])

    async with opened(handler=counting) as one, opened(handler=counting) as two:
        jobs = [await (one, two)[n % 2].order(f"t{n}") for n in range(6)]
        for job in jobs:
            service.pay(job["blockchainIdentifier"])
        for n, job in enumerate(jobs):
            await (two, one)[n % 2].wait(job, "completed")

    assert sorted(f"t{n}" for n in range(6)) == sorted(thoughts)
    assert 6 == len(service.submissions())
