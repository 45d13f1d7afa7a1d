"""The fake payment service, used by the real masumi client over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import masumi
import pytest

from outlive.testing import FakePaymentService

IDENTIFIER = "0123456789abcdef"
INPUT = {"text": "hi"}
WEB = httpx.Client()


def a_payment(service: FakePaymentService, config: masumi.Config) -> masumi.Payment:
    return masumi.Payment(
        agent_identifier=service.agent_identifier,
        config=config,
        identifier_from_purchaser=IDENTIFIER,
        input_data=INPUT,
    )


def call(service: FakePaymentService, path: str, **body: Any) -> httpx.Response:
    token = {"token": service.api_key}
    body = {"network": "Preprod", **body}
    return WEB.post(f"{service.url}{path}", json=body, headers=token)


async def created(service: FakePaymentService, config: masumi.Config) -> tuple[Any, str]:
    payment = a_payment(service, config)
    answer = await payment.create_payment_request()
    return payment, answer["data"]["blockchainIdentifier"]


async def state_of(payment: Any, bid: str) -> tuple[str | None, str]:
    data = (await payment.check_payment_status_by_identifier(bid))["data"]
    return data["onChainState"], data["NextAction"]["requestedAction"]


async def test_a_payment_from_request_to_withdrawal(
    service: FakePaymentService, config: masumi.Config
) -> None:
    """The real client sees every state of a payment that goes well."""
    payment, bid = await created(service, config)
    seen = [await state_of(payment, bid)]
    service.pay(bid)
    seen.append(await state_of(payment, bid))
    await payment.complete_payment(bid, "done")
    for _ in range(3):
        seen.append(await state_of(payment, bid))
        service.step()
    service.advance("31h")
    seen.append(await state_of(payment, bid))

    assert seen == [
        (None, "WaitingForExternalAction"),
        ("FundsLocked", "WaitingForExternalAction"),
        ("FundsLocked", "SubmitResultRequested"),
        ("FundsLocked", "SubmitResultInitiated"),
        ("ResultSubmitted", "WaitingForExternalAction"),
        ("Withdrawn", "None"),
    ]
    expected = masumi.create_masumi_output_hash("done", IDENTIFIER)
    assert [expected] == [entry["hash"] for entry in service.submissions(bid)]
    assert expected == service.payment(bid)["resultHash"]


async def test_a_buyer_pays_with_the_real_purchase(
    service: FakePaymentService, config: masumi.Config
) -> None:
    """The buyer's side of the real client locks the funds, and asks for them back."""
    payment, bid = await created(service, config)
    data = service.payment(bid)
    purchase = masumi.Purchase(
        config=config,
        blockchain_identifier=bid,
        seller_vkey=service.seller_vkey,
        agent_identifier=service.agent_identifier,
        pay_by_time=int(data["payByTime"]),
        submit_result_time=int(data["submitResultTime"]),
        unlock_time=int(data["unlockTime"]),
        external_dispute_unlock_time=int(data["externalDisputeUnlockTime"]),
        identifier_from_purchaser=IDENTIFIER,
        input_data=INPUT,
    )
    await purchase.create_purchase_request()
    service.step()
    locked = await state_of(payment, bid)
    await purchase.request_refund()
    asked = await state_of(payment, bid)
    await payment.authorize_refund(bid)
    for _ in range(3):
        service.step()

    assert ("FundsLocked", "WaitingForExternalAction") == locked
    assert "RefundRequested" == asked[0]
    assert ("RefundWithdrawn", "None") == await state_of(payment, bid)


async def test_a_second_submission_is_refused(
    service: FakePaymentService, config: masumi.Config
) -> None:
    """What was accepted once is refused afterwards, with 404 and with no trace."""
    payment, bid = await created(service, config)
    service.pay(bid)
    await payment.complete_payment(bid, "one")

    with pytest.raises(Exception, match="status 404"):
        await payment.complete_payment(bid, "one")
    assert 1 == len(service.submissions(bid))


async def test_nothing_is_accepted_before_the_funds_are_locked(
    service: FakePaymentService, config: masumi.Config
) -> None:
    """A result for a payment that nobody paid is refused."""
    payment, bid = await created(service, config)

    with pytest.raises(Exception, match="status 404"):
        await payment.complete_payment(bid, "early")


async def test_a_late_submission_is_accepted_and_never_reaches_the_chain(
    service: FakePaymentService, config: masumi.Config
) -> None:
    """In the last five minutes the queue takes a result that its worker leaves there."""
    payment, bid = await created(service, config)
    service.pay(bid)
    service.advance("23h")
    service.advance("56m")
    await payment.complete_payment(bid, "late")
    for _ in range(3):
        service.step()
    assert ("FundsLocked", "SubmitResultRequested") == await state_of(payment, bid)


async def test_the_buyer_gets_the_money_back_after_the_deadline(
    service: FakePaymentService, config: masumi.Config
) -> None:
    """Without a result the buyer's wallet withdraws ten minutes after the deadline."""
    payment, bid = await created(service, config)
    service.pay(bid)
    service.advance("25h")

    assert ("RefundWithdrawn", "None") == await state_of(payment, bid)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"identifierFromPurchaser": "not hex at all"}, "identifierFromPurchaser"),
        ({"identifierFromPurchaser": "abcdef"}, "identifierFromPurchaser"),
        ({"inputHash": None}, "inputHash"),
        ({"agentIdentifier": "short"}, "agentIdentifier"),
        ({"network": "Testnet"}, "network"),
        ({"payByTime": "soon"}, "payByTime"),
        ({"submitResultTime": "2020-01-01T00:00:00.000Z"}, "before submit result time"),
        ({"unlockTime": "2020-01-01T00:00:00.000Z"}, "before unlock time"),
        ({"externalDisputeUnlockTime": "2020-01-01T00:00:00.000Z"}, "External dispute"),
    ],
)
def test_a_bad_request_is_refused_by_name(
    service: FakePaymentService, wrong: dict[str, Any], message: str
) -> None:
    """Each rule of a payment request is checked, and named."""
    good = {"agentIdentifier": service.agent_identifier, "inputHash": "ab" * 32}
    good["identifierFromPurchaser"] = IDENTIFIER

    assert 200 == call(service, "/payment/", **good).status_code
    answer = call(service, "/payment/", **{**good, **wrong})
    assert 400 == answer.status_code
    assert message in answer.json()["error"]["message"]


def test_unknown_agents_keys_and_payments_are_refused(service: FakePaymentService) -> None:
    """Who may not, and what is not there, is told apart."""
    good = {"inputHash": "ab" * 32, "identifierFromPurchaser": IDENTIFIER}
    other = call(service, "/payment/", agentIdentifier="f" * 60, **good)
    missing = call(service, "/payment/resolve-blockchain-identifier", blockchainIdentifier="bid0")
    strange = httpx.post(f"{service.url}/payment/", json={}, headers={"token": "x"})

    assert [404, 404, 401] == [other.status_code, missing.status_code, strange.status_code]


async def test_an_answer_that_is_lost_happened(
    service: FakePaymentService, config: masumi.Config
) -> None:
    """After a lost answer, or a wrong one, the submission stands."""
    for kind in ("lost", "lost_404", "lost_409", "lost_500"):
        payment, bid = await created(service, config)
        service.pay(bid)
        service.fault("submit", kind)  # type: ignore[arg-type]
        with pytest.raises((aiohttp.ClientError, Exception)):
            await payment.complete_payment(bid, "done")
        assert 1 == len(service.submissions(bid)), kind


async def test_a_refusal_before_anything_happened(
    service: FakePaymentService, config: masumi.Config
) -> None:
    """A request that is refused or dropped leaves nothing behind."""
    payment, bid = await created(service, config)
    service.pay(bid)
    for kind in ("error", "conflict", "drop"):
        service.fault("submit", kind)  # type: ignore[arg-type]
        with pytest.raises((aiohttp.ClientError, Exception)):
            await payment.complete_payment(bid, "done")

    assert [] == service.submissions(bid)
    await payment.complete_payment(bid, "done")


async def test_a_submission_vanishes_from_the_chain(
    service: FakePaymentService, config: masumi.Config
) -> None:
    """A rollback leaves the funds locked, and a transaction that says so."""
    payment, bid = await created(service, config)
    service.pay(bid)
    await payment.complete_payment(bid, "done")
    service.step()
    service.step()
    service.roll_back(bid)

    assert ("FundsLocked", "WaitingForExternalAction") == await state_of(payment, bid)
    assert "RolledBack" == service.payment(bid)["CurrentTransaction"]["status"]


def test_an_error_is_recovered_with_the_time_of_its_last_change(
    service: FakePaymentService,
) -> None:
    """Recovery needs the very state that was looked at, and queues the saved hash again."""
    good = {"inputHash": "ab" * 32, "identifierFromPurchaser": IDENTIFIER}
    answer = call(service, "/payment/", agentIdentifier=service.agent_identifier, **good)
    bid = answer.json()["data"]["blockchainIdentifier"]
    service.pay(bid)
    old = service.payment(bid)["updatedAt"]
    service.force(bid, action="WaitingForManualAction", error="NetworkError", queued="ab")
    new = service.payment(bid)["updatedAt"]
    path, body = "/payment/error-state-recovery", {"blockchainIdentifier": bid}
    answers = [
        call(service, path, updatedAt=at, retryPreviousAction=True, **body).status_code
        for at in (old, new, new)
    ]

    assert [404, 200, 404] == answers
    assert "SubmitResultRequested" == service.payment(bid)["NextAction"]["requestedAction"]


def test_changed_payments_page_by_page(service: FakePaymentService) -> None:
    """A reader that goes on from the last change sees every payment, also those of one instant."""
    good = {"agentIdentifier": service.agent_identifier, "inputHash": "ab" * 32}
    for n in range(25):
        call(service, "/payment/", identifierFromPurchaser=f"{n:016x}", **good)
    seen, query = set[str](), {"network": "Preprod", "limit": "10"}
    while True:
        answer = WEB.get(
            f"{service.url}/payment/diff", params=query, headers={"token": service.api_key}
        )
        page = answer.json()["data"]["Payments"]
        fresh = {each["id"] for each in page} - seen
        if not fresh:
            break
        seen |= fresh
        query["lastUpdate"] = page[-1]["nextActionOrOnChainStateOrResultLastChangedAt"]
        query["cursorId"] = page[-1]["id"]

    assert 25 == len(seen)


async def test_the_ledger_survives_a_kill(tmp_path: Path) -> None:
    """Killed and started again at the same address, the service knows what it accepted."""
    service = FakePaymentService(tmp_path / "ledger.db", process=True)
    with service:
        config = masumi.Config(service.url, service.api_key)
        payment, bid = await created(service, config)
        service.pay(bid)
        await payment.complete_payment(bid, "done")
        service.advance("1h")
        before = service.ledger.now_ms()
        service.kill()
        with pytest.raises(aiohttp.ClientError):
            await payment.check_payment_status_by_identifier(bid)
        service.restart()

        assert "ResultSubmitted" == (await state_of(payment, bid))[0]
        assert service.ledger.now_ms() >= before
        assert 1 == len(service.submissions(bid))


async def test_it_lives_by_itself(service: FakePaymentService, config: masumi.Config) -> None:
    """With a time of confirmation nobody needs to step."""
    service.confirm_after("10ms")
    payment, bid = await created(service, config)
    service.pay(bid)
    await payment.complete_payment(bid, "done")
    async with asyncio.timeout(60):
        while "ResultSubmitted" != (await state_of(payment, bid))[0]:
            await asyncio.sleep(0.02)

    assert 1 == len(service.ledger.entries("confirmed", bid))
