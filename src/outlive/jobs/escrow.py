"""The escrow of a job: what another service must do to hold the buyer's money.

A job knows an escrow by four verbs: who am I there (``identity``), ask for a payment
(``request``), what has become of it (``look``), hand the result in (``submit``). Another
marketplace is one class with these verbs; ``outlive.jobs.masumi.MasumiEscrow`` is the first.

Every state of the other side is one of a few standings, and what a job does depends on nothing
else.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from outlive.errors import OutliveError

#: What a payment means for its job:
#:
#: - "unpaid": the buyer has not paid yet
#: - "funded": the money is held, no result was handed in
#: - "queued": a result was accepted and is not final yet
#: - "delivered": the result is final
#: - "stuck": the service needs to be told to try again
#: - "invalid": what was paid does not fit
#: - "refund_requested", "disputed": the buyer wants the money back, before or after the result
#: - "releasing": the money is on its way; nothing can be changed
#: - "paid_out", "refunded", "resolved": it is over
#: - "free": nothing to pay
#: - "unknown": none of these; a human must look
Standing: TypeAlias = Literal[
    "unpaid", "funded", "queued", "delivered", "stuck", "invalid", "refund_requested", "disputed",
    "releasing", "paid_out", "refunded", "resolved", "free", "unknown",
]  # fmt: skip


class EscrowUnavailable(OutliveError):
    """The escrow gave no usable answer; what was asked for may have happened."""


class EscrowRefused(OutliveError):
    """The escrow refused, for good; nothing happened."""


class JobOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a buyer ordered."""

    #: A UUID; the same order has the same.
    job_id: str
    #: The agent's name at the escrow.
    agent: str
    #: What the buyer calls the order; the salt of its hashes.
    identifier: str
    #: The input, as the buyer gave it.
    input_data: dict[str, Any]
    #: Its hash.
    input_hash: str


class EscrowPayment(msgspec.Struct, frozen=True, kw_only=True):
    """A payment that was asked for. Times are milliseconds since 1970."""

    #: Its name at the escrow.
    id: str
    #: The buyer must have paid by then.
    pay_by: int
    #: The result must be there by then.
    submit_by: int
    #: The seller gets the money from then on.
    unlock_at: int
    #: Until then the buyer may dispute.
    dispute_until: int
    #: The seller's key.
    seller: str = ""
    #: Nothing is to be paid.
    is_free: bool = False


class EscrowView(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of a payment."""

    #: What it means for the job.
    standing: Standing
    #: Of the result that was accepted or is final; empty: none.
    digest: str = ""
    #: What the other side calls it, for people.
    state: str = ""


class EscrowIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The agent as the escrow knows it."""

    #: Its name there.
    agent: str
    #: Its jobs cost nothing.
    is_free: bool = False


class EscrowChange(msgspec.Struct, frozen=True, kw_only=True):
    """A payment that has changed."""

    #: Whose payment it is.
    agent: str
    #: Of the order's input.
    input_hash: str
    #: What it means for the job now.
    standing: Standing
    #: Differs for every change.
    mark: str


class Escrow(Protocol):
    """A service that holds the buyer's money until the result is there.

    Every verb may be called again at any time, by several processes. It raises
    ``EscrowUnavailable`` when nobody knows what happened, ``EscrowRefused`` when nothing did.
    """

    @property
    def agent(self) -> str:
        """This agent's name there."""
        ...

    async def identity(self) -> EscrowIdentity:
        """The agent's own registration."""
        ...

    async def request(self, order: JobOrder, now_ms: int) -> EscrowPayment:
        """Ask for a payment."""
        ...

    async def find(self, order: JobOrder) -> EscrowPayment | None:
        """The payment that was asked for before, if there is one."""
        ...

    async def look(self, payment_id: str) -> EscrowView:
        """What has become of a payment."""
        ...

    async def submit(self, payment_id: str, digest: str) -> EscrowView:
        """Hand the result in, unless that has happened; look first."""
        ...

    async def release(self, payment_id: str) -> None:
        """Give the money back to the buyer, who has asked for it."""
        ...

    async def changes(self, after: str) -> tuple[list[EscrowChange], str]:
        """A page of payments that changed, and where the next page begins.

        ``after`` is "" or ``@MS`` for everything since that instant, or what the last call
        returned.
        """
        ...

    def input_hash(self, input_data: dict[str, Any], identifier: str) -> str:
        """The hash of an order's input."""
        ...

    def digest(self, result: str, identifier: str) -> str:
        """The hash of a result, as it is handed in."""
        ...


#: What a job does at each standing, before it has a result and after.
RULES: Final[dict[Standing, tuple[str, str]]] = {
    "unpaid": ("wait; failed when the time to pay is over", "wait; nothing can be handed in"),
    "funded": ("run, if the deadline leaves time; else failed", "hand the saved result in"),
    "queued": ("do not run; wait until it is final", "wait; never hand in again"),
    "delivered": ("completed without running again", "completed, if the hash is ours"),
    "stuck": ("run; the service is told to try again", "tell the service to try again"),
    "invalid": ("failed, do not run", "failed"),
    "refund_requested": ("by policy: stop, or run", "by policy: give back, or hand in"),
    "disputed": ("by policy: stop, or run", "hand in, and a human decides"),
    "releasing": ("failed, do not run", "wait until it is over"),
    "paid_out": ("completed without running again", "completed"),
    "refunded": ("failed, do not run", "failed: the buyer has the money"),
    "resolved": ("failed, do not run", "completed, if the hash is ours; else failed"),
    "free": ("run", "completed"),
    "unknown": ("wait; a human must look", "wait; a human must look"),
}
