"""The states of a Masumi payment, and what each means: the decision table, as data.

A row for each on-chain state and each next action of the payment service. The page
docs/reference/escrow.md is written from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from outlive.jobs.escrow import EscrowView, Standing

#: None: nothing is on the chain yet.
STATES: Final[tuple[str | None, ...]] = (
    None, "FundsLocked", "FundsOrDatumInvalid", "ResultSubmitted", "RefundRequested", "Disputed",
    "Withdrawn", "RefundWithdrawn", "DisputedWithdrawn", "WithdrawAuthorized", "RefundAuthorized",
)  # fmt: skip
ACTIONS: Final = (
    "None", "Ignore", "WaitingForManualAction", "WaitingForExternalAction", "SubmitResultRequested",
    "SubmitResultInitiated", "WithdrawRequested", "WithdrawInitiated", "AuthorizeRefundRequested",
    "AuthorizeRefundInitiated",
)  # fmt: skip
_QUEUED: dict[str, Standing] = {
    "SubmitResultRequested": "queued",
    "SubmitResultInitiated": "queued",
}
_RELEASING: dict[str, Standing] = {
    "WithdrawRequested": "releasing",
    "WithdrawInitiated": "releasing",
    "AuthorizeRefundRequested": "releasing",
    "AuthorizeRefundInitiated": "releasing",
}
#: state -> (standing whatever the next action is, standings of particular next actions)
_TABLE: Final[Mapping[str | None, tuple[Standing, Mapping[str, Standing]]]] = {
    None: ("unpaid", {}),
    "FundsLocked": (
        "unknown",
        {
            "WaitingForExternalAction": "funded",
            "WaitingForManualAction": "stuck",
            **_QUEUED,
            **_RELEASING,
        },
    ),
    "FundsOrDatumInvalid": ("invalid", {}),
    "ResultSubmitted": ("delivered", {}),
    "RefundRequested": (
        "refund_requested",
        {"WaitingForManualAction": "stuck", **_QUEUED, **_RELEASING},
    ),
    "Disputed": ("disputed", {"WaitingForManualAction": "stuck", **_QUEUED, **_RELEASING}),
    "Withdrawn": ("paid_out", {}),
    "RefundWithdrawn": ("refunded", {}),
    "DisputedWithdrawn": ("resolved", {}),
    "WithdrawAuthorized": ("delivered", {}),
    "RefundAuthorized": ("releasing", {}),
}


def standing_of(state: str | None, action: str) -> Standing:
    """What this state with this next action means for a job."""
    if state not in _TABLE:
        return "free" if state == "FREE_AGENT" else "unknown"
    whatever, particular = _TABLE[state]
    return particular.get(action, whatever)


def view_of(data: Mapping[str, Any]) -> EscrowView:
    """What the service says of a payment."""
    state, action = data.get("onChainState"), data.get("NextAction") or {}
    name = str(action.get("requestedAction") or "None")
    standing = standing_of(state, name)
    if standing == "stuck" and not action.get("errorType"):
        standing = "unknown"  # the service can't be told to try again
    if standing == "invalid" and is_nothing(data):
        standing = "funded"
    digest = action.get("resultHash") if standing == "queued" else data.get("resultHash")
    return EscrowView(standing=standing, digest=digest or "", state=f"{state} / {name}")


def is_nothing(data: Mapping[str, Any]) -> bool:
    """Whether the price is zero: then there is nothing to pay."""
    funds = data.get("RequestedFunds") or data.get("amounts") or []
    amounts = [each.get("amount") for each in funds] or [data.get("amount", data.get("price"))]
    return all(str(amount) == "0" for amount in amounts)
