"""A job as its buyer sees it, read from the journal of its run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from uuid import UUID

from outlive.app.feed import decoded
from outlive.engine.definitions import registry
from outlive.jobs.escrow import EscrowPayment, EscrowView, JobOrder
from outlive.jobs.flow import DELIVERED, FUNDED, PRESENTED, REQUESTED, STAGED, SUBMITTED
from outlive.journal.codec.codec import codec_for
from outlive.model.events import Event
from outlive.model.run import fold

JobStatus: TypeAlias = Literal[
    "requesting", "awaiting_payment", "running", "awaiting_input", "delivering", "completed",
    "failed",
]  # fmt: skip
_CODEC = codec_for([EscrowPayment, EscrowView, JobOrder, dict[str, Any]], registry)
_DONE = ("StepDone", "EffectDone")


def job_id_of(agent: str, input_hash: str) -> str:
    """The id of a job: the same order is the same job. The hash of the input has the identifier."""
    raw = hashlib.sha256(f"{agent};{input_hash}".encode()).digest()[:16]
    return str(UUID(bytes=raw, version=4))


def status_id_of(job_id: str, moment: str) -> str:
    """The id of one status of a job, stable as long as it lasts."""
    return str(UUID(bytes=hashlib.sha256(f"{job_id};{moment}".encode()).digest()[:16], version=4))


@dataclass(slots=True)
class JobRecord:
    """What the journal says about a job."""

    job_id: str
    status: JobStatus = "requesting"
    order: JobOrder | None = None
    payment: EscrowPayment | None = None
    #: The text that was saved; the buyer gets it when it is delivered.
    staged: str | None = None
    result: str | None = None
    error: str = ""
    #: What the buyer is asked for, and the question's id.
    schema: dict[str, Any] | None = None
    message: str = ""
    question: str = ""
    #: The seq of the event that made the status.
    since: int = 0
    _forms: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_requested(self) -> bool:
        """Whether the payment was requested."""
        return self.payment is not None

    @property
    def status_id(self) -> str:
        """Names this status, and the question that is open."""
        return status_id_of(self.job_id, f"{self.status};{self.question or self.since}")

    def _enter(self, status: JobStatus, seq: int) -> None:
        self.status, self.since = status, seq

    def take(self, seq: int, event: Event) -> None:
        """Take in one event."""
        name = type(event).__name__
        if name == "RunStarted":
            order = decoded(seq, 0, event, _CODEC).args
            self.order = order.get("order") if isinstance(order, dict) else None
            return
        if name not in _DONE:
            return
        step, value = _step_of(event), decoded(seq, 0, event, _CODEC).value
        if step == REQUESTED and isinstance(value, EscrowPayment):
            self.payment = value
            self._enter("awaiting_payment", seq)
        elif step == FUNDED:
            self._enter("running", seq)
        elif step == PRESENTED:
            self._forms.append(value)
        elif step == STAGED:
            self.staged = value
            self._enter("delivering", seq)
        elif step == DELIVERED:
            self.result = self.staged
            self._enter("completed", seq)
        elif step == SUBMITTED and self.status == "completed":
            self.result = None  # it had vanished from the chain, and is handed in again
            self._enter("delivering", seq)

    def end(self, events: Sequence[Event]) -> None:
        """Take in how the run stands."""
        run = fold(events)
        if run.status in ("failed", "cancelled", "quarantined") and self.status != "completed":
            self.error = run.reason if run.error is None else run.error.message
            self.error = self.error or f"the job was {run.status}"
            self._enter("failed", run.seq)
        elif run.questions and self._forms and self.status == "running":
            (self.question, *_) = run.questions
            form = self._forms[-1]
            self.schema, self.message = form["schema"], form["message"]
            self.status = "awaiting_input"


def record_of(job_id: str, events: Sequence[Event]) -> JobRecord:
    """What the journal of a job says."""
    record = JobRecord(job_id)
    for seq, event in enumerate(events, 1):
        record.take(seq, event)
    record.end(events)
    return record


def _step_of(event: Event) -> str:
    """The name of the step, without its place: ``0/job.save_result#1``."""
    return str(getattr(event, "step", "")).rpartition("/")[2].partition("#")[0]
