"""The decision table of the Masumi escrow, its hashes, and its answers over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import masumi
import pytest
from masumi.models import PaymentNextAction, PaymentOnChainState

from outlive.errors import UsageError
from outlive.jobs import EscrowRefused, EscrowUnavailable, JobOrder
from outlive.jobs.escrow import RULES
from outlive.jobs.masumi import ACTIONS, STATES, MasumiEscrow, standing_of
from outlive.jobs.masumi.escrow import in_ms, input_hash, output_hash
from outlive.jobs.masumi.states import view_of
from outlive.jobs.record import job_id_of
from outlive.testing import FakePaymentService

IDENTIFIER = "0123456789abcdef"
TEXTS = ["", "plain", 'say "hi"', "two\nlines\ttab", "back\\slash", "Ünï ☃ 𝄞", "\x00\x1f\u2028"]
INPUTS: list[dict[str, Any]] = [
    {"text": "hi"}, {"b": 1, "a": [1.5, None, True]}, {"ü": "☃"}, {"n": {"z": 1, "a": "\n"}},
    {"big": 2**53, "small": 1e-7, "e": 1e22},
]  # fmt: skip


@pytest.fixture
async def escrow(service: FakePaymentService) -> AsyncIterator[MasumiEscrow]:
    escrow = MasumiEscrow(service.url, service.api_key, service.agent_identifier)
    yield escrow
    await escrow.aclose()


def an_order(service: FakePaymentService, text: str = "hi") -> JobOrder:
    digest = input_hash({"text": text}, IDENTIFIER)
    return JobOrder(
        job_id=job_id_of(service.agent_identifier, digest),
        agent=service.agent_identifier,
        identifier=IDENTIFIER,
        input_data={"text": text},
        input_hash=digest,
    )


def test_every_state_and_action_of_the_package_is_known() -> None:
    """The table has every on-chain state and next action that the masumi package knows."""
    assert {each.value for each in PaymentOnChainState} <= set(STATES)
    assert {each.value for each in PaymentNextAction} == set(ACTIONS)
    assert all(standing_of(*pair) in RULES for pair in product(STATES, ACTIONS))
    assert "unknown" == standing_of("SomethingNew", "None")


@pytest.mark.item(63, 70, 71, 72, 76, 77, 78)
@pytest.mark.parametrize(
    ("state", "action", "standing"),
    [
        *[(None, action, "unpaid") for action in ACTIONS],
        ("FundsLocked", "WaitingForExternalAction", "funded"),
        ("FundsLocked", "SubmitResultRequested", "queued"),
        ("FundsLocked", "SubmitResultInitiated", "queued"),
        *[("ResultSubmitted", action, "delivered") for action in ACTIONS],
        ("FundsOrDatumInvalid", "WaitingForManualAction", "invalid"),
        ("RefundRequested", "WaitingForExternalAction", "refund_requested"),
        ("Disputed", "WaitingForExternalAction", "disputed"),
        ("Withdrawn", "None", "paid_out"),
        ("RefundWithdrawn", "None", "refunded"),
        ("DisputedWithdrawn", "None", "resolved"),
        ("RefundAuthorized", "None", "releasing"),
    ],
)
def test_the_decision_table(state: str | None, action: str, standing: str) -> None:
    """The rows that an outage must consult, written down a second time."""
    assert standing == standing_of(state, action)


@pytest.mark.item(63)
async def test_every_state_and_action_over_http(
    service: FakePaymentService, escrow: MasumiEscrow
) -> None:
    """What the service shows is what the table says, for each state and next action."""
    payment = await escrow.request(an_order(service), service.ledger.now_ms())
    for state, action in product(STATES[1:], ACTIONS):
        error = "NetworkError" if action == "WaitingForManualAction" else None
        service.force(payment.id, state=state, action=action, error=error)
        view = await escrow.look(payment.id)
        assert standing_of(state, action) == view.standing, (state, action)


def test_a_manual_action_without_an_error_is_for_humans() -> None:
    """The service can only be told to try again where it says what went wrong."""
    action = {"requestedAction": "WaitingForManualAction", "errorType": None}

    assert "unknown" == view_of({"onChainState": "FundsLocked", "NextAction": action}).standing


@pytest.mark.item(96)
@pytest.mark.parametrize(
    ("more", "standing"),
    [
        ({"RequestedFunds": [{"amount": "0", "unit": ""}]}, "funded"),
        ({"RequestedFunds": [{"amount": "1000000", "unit": ""}]}, "invalid"),
        ({"amount": 0}, "funded"),
        ({"price": "0"}, "funded"),
        ({}, "invalid"),
    ],
)
def test_an_invalid_payment_of_nothing_is_paid(more: dict[str, Any], standing: str) -> None:
    """Where the price is zero there is nothing that could be wrong with the funds."""
    action = {"requestedAction": "WaitingForManualAction"}
    data = {"onChainState": "FundsOrDatumInvalid", "NextAction": action, **more}

    assert standing == view_of(data).standing


@pytest.mark.item(14, 80)
def test_hashes_are_those_of_the_package() -> None:
    """Input and output hashes equal those of masumi, for every text that is hard to write."""
    for text in TEXTS:
        assert masumi.create_masumi_output_hash(text, IDENTIFIER) == output_hash(text, IDENTIFIER)
    for data in INPUTS:
        assert masumi.create_masumi_input_hash(data, IDENTIFIER) == input_hash(data, IDENTIFIER)


@pytest.mark.item(8, 9, 10, 11)
def test_times_are_milliseconds() -> None:
    """Seconds, as those of free agents, become milliseconds."""
    assert 1_794_808_121_903 == in_ms("1794808121903")
    assert 1_794_808_121_000 == in_ms(1_794_808_121)


@pytest.mark.item(69)
async def test_asking_the_registry_changes_nothing(
    service: FakePaymentService, escrow: MasumiEscrow
) -> None:
    """The identity is confirmed as often as wanted; a stranger's is refused."""
    found = [await escrow.identity() for _ in range(3)]
    other = MasumiEscrow(service.url, service.api_key, "f" * 60)
    with pytest.raises(EscrowRefused):
        await other.identity()
    await other.aclose()

    assert {False} == {each.is_free for each in found}
    assert [] == service.payments()


@pytest.mark.item(72, 79)
async def test_handing_in_twice_is_once(service: FakePaymentService, escrow: MasumiEscrow) -> None:
    """The second submission sees the first and sends nothing."""
    payment = await escrow.request(an_order(service), service.ledger.now_ms())
    early = await escrow.submit(payment.id, "ab" * 32)
    service.pay(payment.id)
    views = [await escrow.submit(payment.id, "ab" * 32) for _ in range(3)]

    assert "unpaid" == early.standing
    assert [("queued", "ab" * 32)] * 3 == [(view.standing, view.digest) for view in views]
    assert 1 == service.calls("submit")


@pytest.mark.item(77)
async def test_a_refund_is_granted(service: FakePaymentService, escrow: MasumiEscrow) -> None:
    """Released funds go back to the buyer."""
    payment = await escrow.request(an_order(service), service.ledger.now_ms())
    service.pay(payment.id)
    service.request_refund(payment.id)
    await escrow.release(payment.id)
    for _ in range(3):
        service.step()

    assert "refunded" == (await escrow.look(payment.id)).standing


async def test_a_payment_is_found_behind_many(
    service: FakePaymentService, escrow: MasumiEscrow
) -> None:
    """A payment whose answer was lost is found on a later page."""
    wanted = an_order(service, "wanted")
    now = service.ledger.now_ms()
    payment = await escrow.request(wanted, now)
    for number in range(120):
        await escrow.request(an_order(service, f"other {number}"), now)

    assert payment == await escrow.find(wanted)
    assert await escrow.find(an_order(service, "nobody's")) is None


async def test_what_went_wrong_is_told_apart(service: FakePaymentService) -> None:
    """A wrong key is a refusal; a service that is away, or broken, leaves it open."""
    wrong = MasumiEscrow(service.url, "other", service.agent_identifier)
    with pytest.raises(EscrowRefused, match="401"):
        await wrong.look("bid1")
    good = MasumiEscrow(service.url, service.api_key, service.agent_identifier)
    for kind in ("error", "drop"):
        service.fault("resolve", kind)  # type: ignore[arg-type]
        with pytest.raises(EscrowUnavailable):
            await good.look("bid1")
    service.stop()
    with pytest.raises(EscrowUnavailable):
        await good.look("bid1")
    with pytest.raises(UsageError, match="Preprod or Mainnet"):
        MasumiEscrow(service.url, "k", "a", network="preprod")
    for each in (wrong, good):
        await each.aclose()
