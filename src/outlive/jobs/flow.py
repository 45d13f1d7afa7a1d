"""A job as a durable run: payment, work, delivery, each step of it recorded.

The four checkpoints are outcomes of steps: the payment that was asked for, the funds that are
held, the result that was saved, the delivery that is final. What a process that dies leaves behind
is continued from the last of them by any worker.

Nothing is decided by a message: a signal only says that the escrow should be looked at.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import outlive
from outlive.engine.definitions import Flow
from outlive.errors import NotInRun, RunError, TimedOut
from outlive.jobs.escrow import (
    Escrow,
    EscrowPayment,
    EscrowRefused,
    EscrowUnavailable,
    EscrowView,
    JobOrder,
)
from outlive.model.defaults import (
    JOB_GRACE,
    JOB_LOOK_EVERY,
    JOB_MARGIN,
    JOB_SERVICE_MARGIN_SECONDS,
    JOB_SETTLED_AFTER,
)
from outlive.model.retry import Duration, Retry, parse_duration

#: ``async def handler(identifier_from_purchaser, input_data)``: plain async flow code, or a step.
Handler: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[Any]]
#: The signal that says: look at the escrow again.
NEWS = "escrow"
#: Names of steps, as they stand in journals.
REQUESTED, FUNDED, STAGED, SUBMITTED, DELIVERED = (
    "job.request_payment", "job.begin_work", "job.save_result", "job.submit_result",
    "job.note_delivery",
)  # fmt: skip
PRESENTED = "job.present_form"

_PATIENT = Retry(attempts=1_000_000, delay="1s", delay_max="1m", only=(EscrowUnavailable,))

#: A buyer waits for the answer.
_QUICK = Retry(attempts=6, delay="200ms", delay_max="5s", only=(EscrowUnavailable,))


class JobFailed(RunError):
    """A job ended without a result that counts; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """What a job does where it has a choice."""

    #: Left between the last moment for a result and the escrow's deadline, in addition to the
    #: five minutes in which the service sends nothing to the chain any more.
    margin: Duration = JOB_MARGIN
    #: How long after its deadline a payment is still looked for.
    grace: Duration = JOB_GRACE
    #: A buyer wants the money back: "deliver" the result all the same, or "stop" and give it back.
    on_refund: Literal["deliver", "stop"] = "deliver"
    #: How long a delivery is watched: a chain may take it back.
    settled_after: Duration = JOB_SETTLED_AFTER
    #: A payment is looked at so often even if nobody said that it changed.
    look_every: Duration = JOB_LOOK_EVERY


@dataclass(frozen=True, slots=True)
class _Job:
    """The job whose handler runs here."""

    deadline_ms: int


_job: ContextVar[_Job | None] = ContextVar("outlive_job", default=None)


async def request_input(
    input_schema: dict[str, Any], message: str | None = None, within: Duration | None = None
) -> dict[str, Any]:
    """Ask the buyer's side for more input; the answer comes by ``/provide_input``.

    It waits as long as the job has time, or ``within``; it costs no memory and survives restarts.

    Raises:
        TimedOut: nobody answered in time.
    """
    job = _job.get()
    if job is None:
        raise NotInRun("request_input", "in the handler of a job")
    left = max(0.0, (job.deadline_ms - _now_ms()) / 1000)
    limit = left if within is None else min(left, parse_duration(within))
    form = await present_form(plain(input_schema), message)
    return await outlive.ask(form["message"], type=dict[str, Any], within=limit)


@outlive.step(name=PRESENTED)
async def present_form(schema: dict[str, Any], message: str | None) -> dict[str, Any]:
    """Record what is asked for, so that it can be shown until it is answered."""
    return {"schema": schema, "message": message or "The agent needs more input."}


@outlive.step(name=FUNDED)
async def begin_work(input_data: dict[str, Any]) -> dict[str, Any]:
    """Checkpoint 2: the funds are held; the work begins with this input."""
    return input_data


@outlive.step(name=STAGED)
async def save_result(text: str) -> str:
    """Checkpoint 3: the result is durable before it is handed in."""
    return text


@outlive.step(name=DELIVERED)
async def note_delivery(digest: str, state: str) -> str:
    """Checkpoint 4: the result is final."""
    return digest


def plain(value: Any) -> Any:
    """A schema as plain data: models of pydantic become dicts."""
    if hasattr(value, "model_dump"):
        return plain(value.model_dump())
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def text_of(result: object) -> str:
    """A result as the text that is hashed and delivered."""
    return result if isinstance(result, str) else json.dumps(plain(result), ensure_ascii=False)


def _now_ms() -> int:
    return round(outlive.now().timestamp() * 1000)


def make_flow(
    handler: Handler, escrow: Escrow, policy: JobPolicy, name: str
) -> Flow[[JobOrder], Any]:
    """The flow of the jobs of one agent."""
    course = _Course(handler, escrow, policy)

    @outlive.flow(name=name)
    async def job(order: JobOrder) -> str:
        return await course.run(order)

    return job


class _Course:
    """The course of a job, from the order to the end. It has no state: the journal has it."""

    def __init__(self, handler: Handler, escrow: Escrow, policy: JobPolicy) -> None:
        self._handler, self._policy, self._escrow = handler, policy, escrow
        self._margin_ms = round(1000 * (JOB_SERVICE_MARGIN_SECONDS + parse_duration(policy.margin)))
        self._grace_ms = round(1000 * parse_duration(policy.grace))

        async def find(order: JobOrder) -> Any:
            return await escrow.find(order) or outlive.NOT_HAPPENED

        @outlive.effect(name=REQUESTED, check=find, not_happened=(EscrowRefused,), retry=_QUICK,
                        raises=(EscrowRefused, EscrowUnavailable))  # fmt: skip
        async def request_payment(order: JobOrder, now_ms: int) -> EscrowPayment:
            return await escrow.request(order, now_ms)

        @outlive.step(name="job.look", retry=_PATIENT, timeout="60s",
                      raises=(EscrowRefused,))  # fmt: skip
        async def look(payment_id: str) -> EscrowView:
            return await escrow.look(payment_id)

        # The body looks before it acts, and the service takes one result: repeating it is safe.
        @outlive.effect(name=SUBMITTED, doubt="retry", retry=_PATIENT, timeout="60s",
                        raises=(EscrowRefused,))  # fmt: skip
        async def submit(payment_id: str, digest: str) -> EscrowView:
            return await escrow.submit(payment_id, digest)

        @outlive.effect(name="job.release", doubt="retry", retry=_PATIENT, timeout="60s",
                        raises=(EscrowRefused,))  # fmt: skip
        async def release(payment_id: str) -> None:
            await escrow.release(payment_id)

        self._request, self._look = request_payment, look
        self._submit, self._release = submit, release

    async def run(self, order: JobOrder) -> str:
        payment = await self._request(order, _now_ms())
        if payment.is_free:
            return await self._run_free(order, payment)
        view = await self._paid(payment)
        if view.standing in ("delivered", "paid_out", "queued"):
            # Somebody else delivered for this payment: never run, never hand in again.
            raise JobFailed(f"a result was handed in that this job has not made ({view.state})")
        deadline = payment.submit_by - self._margin_ms
        if _now_ms() >= deadline:
            raise JobFailed("Submit deadline expired before the work began.")
        text = await self._work(order, deadline)
        digest = self._escrow.digest(text, order.identifier)
        while True:
            view = await self._deliver(payment, digest, deadline)
            await note_delivery(digest, view.state)
            if view.standing != "delivered" or await self._is_settled(payment):
                return text

    async def _run_free(self, order: JobOrder, payment: EscrowPayment) -> str:
        text = await self._work(order, payment.submit_by)
        await note_delivery(self._escrow.digest(text, order.identifier), "free")
        return text

    async def _paid(self, payment: EscrowPayment) -> EscrowView:
        """Wait until the escrow holds the funds; the escrow is asked before a deadline counts."""
        until, is_told = payment.pay_by + self._grace_ms, False
        every = parse_duration(self._policy.look_every)
        while True:
            view = await self._look(payment.id)
            match view.standing:
                case "unpaid":
                    left = (until - _now_ms()) / 1000
                    if left <= 0 and not is_told:
                        raise JobFailed("Payment deadline expired.")
                    if left <= -every:  # it was told otherwise, and asked again since
                        raise JobFailed("Payment deadline expired.")
                    # News are only told of payments that were paid: then this answer was wrong.
                    is_told = await self._news(every if is_told else left) or is_told
                case "unknown":
                    if _now_ms() >= payment.submit_by:
                        raise JobFailed(f"the escrow's state is not understood ({view.state})")
                    await self._news(every)
                case "invalid":
                    raise JobFailed("The payment is invalid (funds or datum); nothing was done.")
                case "refunded" | "resolved" | "releasing":
                    raise JobFailed(f"The payment is over; nothing was done ({view.state}).")
                case "refund_requested" | "disputed" if self._policy.on_refund == "stop":
                    await self._release(payment.id)
                    raise JobFailed("The buyer requested a refund, which was granted.")
                case _:
                    return view

    async def _work(self, order: JobOrder, deadline: int) -> str:
        input_data = await begin_work(order.input_data)
        token = _job.set(_Job(deadline))
        try:
            async with outlive.timeout(max(0.0, (deadline - _now_ms()) / 1000)):
                result = await self._handler(order.identifier, input_data)
        except TimedOut as late:
            if _now_ms() < deadline:
                raise
            raise JobFailed("Submit deadline expired while the job was under way.") from late
        finally:
            _job.reset(token)
        return await save_result(text_of(result))

    async def _deliver(self, payment: EscrowPayment, digest: str, deadline: int) -> EscrowView:
        """Hand the saved result in until it is final; the escrow is looked at before each act."""
        while True:
            view = await self._look(payment.id)
            match view.standing:
                case "funded" | "stuck" | "disputed":
                    view = await self._hand_in(payment, digest, deadline)
                case "refund_requested":
                    if self._policy.on_refund == "stop":
                        await self._release(payment.id)
                        raise JobFailed("The buyer requested a refund, which was granted.")
                    view = await self._hand_in(payment, digest, deadline)
                case "invalid" | "refunded":
                    raise JobFailed(f"The buyer has the money back ({view.state}).")
                case "resolved" if view.digest != digest:
                    raise JobFailed(f"The dispute ended against this result ({view.state}).")
            if view.standing in ("queued", "delivered") and view.digest != digest:
                raise JobFailed(
                    f"another result stands in the escrow than the one saved here ({view.state}); "
                    "a human must look"
                )
            is_final = view.standing == "disputed" and view.digest == digest
            if is_final or view.standing in ("delivered", "paid_out", "resolved"):
                return view
            await self._news(parse_duration(self._policy.look_every))

    async def _hand_in(self, payment: EscrowPayment, digest: str, deadline: int) -> EscrowView:
        if _now_ms() >= deadline:
            raise JobFailed("Submit deadline expired before the result was handed in.")
        return await self._submit(payment.id, digest)

    async def _is_settled(self, payment: EscrowPayment) -> bool:
        """Watch a delivery for a while; False: it vanished from the chain."""
        until = _now_ms() + round(1000 * parse_duration(self._policy.settled_after))
        while _now_ms() < until:
            await self._news((until - _now_ms()) / 1000)
            view = await self._look(payment.id)
            if view.standing in ("funded", "stuck"):
                return False
        return True

    async def _news(self, seconds: float) -> bool:
        """Wait until somebody says that the payment changed, or so long; whether somebody did."""
        with suppress(TimedOut):
            await outlive.wait_signal(NEWS, within=max(0.0, seconds))
            return True
        return False
