"""Jobs with escrow: agents that are paid for results, and survive.

``JobService`` is an ASGI application that speaks MIP-003; each job is a durable run. The escrow is
a small protocol; ``outlive.jobs.masumi`` has the one for Masumi's payment service.
"""

from outlive.jobs.escrow import (
    Escrow,
    EscrowChange,
    EscrowIdentity,
    EscrowPayment,
    EscrowRefused,
    EscrowUnavailable,
    EscrowView,
    JobOrder,
)
from outlive.jobs.flow import JobFailed, JobPolicy, request_input
from outlive.jobs.service import JobService

__all__ = [
    "Escrow",
    "EscrowChange",
    "EscrowIdentity",
    "EscrowPayment",
    "EscrowRefused",
    "EscrowUnavailable",
    "EscrowView",
    "JobFailed",
    "JobOrder",
    "JobPolicy",
    "JobService",
    "request_input",
]
