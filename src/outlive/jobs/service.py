"""An ASGI application that speaks MIP-003; a job is a durable run.

    service = JobService(handler, escrow=MasumiEscrow(url, key, agent), store="sqlite:///jobs.db")

Give it to any ASGI server. Its lifespan opens the store, confirms the agent's registration, and
then drives jobs and listens to the escrow: one reader of changes for all jobs, in each process.
Any number of processes may serve one store; a job is run by one of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from outlive.app.app import App
from outlive.app.handle import Handle
from outlive.app.open import open_app
from outlive.engine.definitions import Flow
from outlive.errors import (
    AnswerRefused,
    OutliveError,
    QuestionNotOpen,
    RetryRefused,
    RunEnded,
    RunIdRefused,
    RunIdTaken,
    RunNotFound,
    UsageError,
)
from outlive.jobs.escrow import Escrow, EscrowChange, EscrowRefused, EscrowUnavailable, JobOrder
from outlive.jobs.flow import NEWS, Handler, JobPolicy, make_flow, plain
from outlive.jobs.forms import problems
from outlive.jobs.record import JobRecord, job_id_of, record_of
from outlive.model.retry import Duration, parse_duration
from outlive.ports import Ports

logger = logging.getLogger("outlive.jobs")

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

BODY_BYTES_MAX = 4 * 1024 * 1024
#: Payments may have changed so long before the oldest open job began: clocks differ.
_CLOCKS_DIFFER_MS = 10 * 60 * 1000
_PAUSE_SECONDS_MAX = 60.0


class Problem(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(str(detail))
        self.status, self.detail = status, detail


class JobService:
    """A paid agent: ``handler(identifier_from_purchaser, input_data)`` behind an escrow."""

    def __init__(  # noqa: PLR0913 - what an agent may say, each by name
        self,
        handler: Handler,
        *,
        escrow: Escrow,
        store: str | App | None = None,
        input_schema: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
        demo: Callable[[], Mapping[str, Any]] | None = None,
        availability: Callable[[], Awaitable[Mapping[str, Any]]] | None = None,
        policy: JobPolicy | None = None,
        poll_every: Duration = "10s",
        start_within: Duration = "30s",
        name: str = "job",
    ) -> None:
        self.escrow = escrow
        self.flow: Flow[[JobOrder], Any] = make_flow(handler, escrow, policy or JobPolicy(), name)
        self._policy = policy or JobPolicy()
        self._store, self._schema = store, input_schema
        self._demo, self._availability = demo, availability
        self._poll_seconds = parse_duration(poll_every)
        self._start_seconds = parse_duration(start_within)
        self._app: App | None = store if isinstance(store, App) else None
        self._task: asyncio.Task[None] | None = None
        self._is_confirmed, self._trouble = False, "the agent is starting"
        self._clock = Ports().clock

    # lifespan

    async def __aenter__(self) -> JobService:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Open the store and begin to attend to jobs; requests are answered from then on."""
        if self._app is None:
            assert not isinstance(self._store, App), "that is the app already"
            self._app = await asyncio.to_thread(open_app, self._store)
        self._task = asyncio.create_task(self._attend(self._app))

    async def stop(self) -> None:
        """Bring jobs to a durable point, so that another process may continue them."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._app is not None:
            if isinstance(self._store, App):
                await self._app.drain()
            else:
                await self._app.aclose()
                self._app = None
        closing = getattr(self.escrow, "aclose", None)
        if closing is not None:
            await closing()

    async def _attend(self, app: App) -> None:
        """Confirm who we are, then drive jobs and listen, as long as the service lives."""
        await self._confirm()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(app.worker([self.flow]))
            await self._listen(app)

    async def _confirm(self) -> None:
        pause = 0.5
        while not self._is_confirmed:
            try:
                await self.escrow.identity()
                self._is_confirmed, self._trouble = True, ""
            except (EscrowUnavailable, EscrowRefused) as error:
                self._trouble = str(error)
                logger.warning("the agent's registration is not confirmed: %s", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    async def _listen(self, app: App) -> None:
        """Read what changed at the escrow and tell the jobs; one request a time for all of them."""
        after, pause = await self._oldest(app), self._poll_seconds
        while True:
            try:
                changes, following = await self.escrow.changes(after)
                for change in changes:
                    await self._tell(app, change)
                is_all, after, pause = following == after, following, self._poll_seconds
                if not is_all:
                    continue
            except (EscrowUnavailable, EscrowRefused) as error:
                logger.warning("changes of payments can't be read: %s", error)
                pause = min(max(1.0, 2 * pause), _PAUSE_SECONDS_MAX)
            except OutliveError as error:
                logger.warning("jobs can't be told of payments: %s", error)
            await asyncio.sleep(pause)

    async def _oldest(self, app: App) -> str:
        """Where to begin: when the oldest job that has not ended was started."""
        since = self._clock.now_ms()
        for status in ("pending", "running", "waiting", "in_doubt"):
            page = await app.find(flow=self.flow, status=status, limit=1)
            since = min([since, *(found.header.started_at for found in page.items)])
        return f"@{since - _CLOCKS_DIFFER_MS}"

    async def _tell(self, app: App, change: EscrowChange) -> None:
        if change.agent != self.escrow.agent or change.standing == "unpaid":
            return  # of these there are many, and nobody waits for them
        with suppress(RunNotFound, RunEnded):
            handle = await app.get(job_id_of(change.agent, change.input_hash), self.flow)
            await handle.signal(NEWS, id=change.mark)

    # ASGI

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._lifespan(receive, send)
        if scope["type"] != "http":
            return None
        try:
            answer = await self._route(scope, receive)
            status = 200
        except Problem as problem:
            status, answer = problem.status, {"detail": problem.detail}
        except Exception as error:
            logger.exception("a request failed")
            status, answer = 500, {"detail": f"internal error: {type(error).__name__}"}
        raw = json.dumps(answer, ensure_ascii=False).encode()
        length = (b"content-length", str(len(raw)).encode())
        headers = [(b"content-type", b"application/json"), length]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": raw})
        return None

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except Exception as error:
                    return await send({"type": "lifespan.startup.failed", "message": str(error)})
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.stop()
                return await send({"type": "lifespan.shutdown.complete"})

    async def _route(self, scope: Mapping[str, Any], receive: Receive) -> Any:
        query = dict(parse_qsl(scope.get("query_string", b"").decode()))
        match scope["method"], scope["path"].rstrip("/"):
            case "POST", "/start_job":
                return await self._start_job(await _body(receive))
            case "GET", "/status":
                return await self._status(query)
            case "POST", "/provide_input":
                return await self._provide_input(await _body(receive))
            case "GET", "/availability":
                return await self._available()
            case "GET", "/input_schema":
                return self._input_schema()
            case "GET", "/demo":
                return self._show_demo()
            case _, "/start_job" | "/status" | "/provide_input" | "/availability" | "/demo":
                raise Problem(405, "Method not allowed")
            case _:
                raise Problem(404, "Not found")

    # routes

    async def _start_job(self, body: dict[str, Any]) -> dict[str, Any]:
        order = self._order(body)
        if not self._is_confirmed:
            raise Problem(503, f"The agent takes no jobs now: {self._trouble}")
        try:
            async with asyncio.timeout(self._start_seconds):
                handle = await self._opened.start(self.flow, order, id=order.job_id)
                record = await self._requested(handle)
                if record.status == "failed" and not record.is_requested:
                    # It failed when it was ordered before, and nobody paid: now it may not.
                    with suppress(RetryRefused):  # somebody else does it
                        await self._opened.retry(handle.id)
                    record = await self._requested(handle)
        except TimeoutError:
            raise Problem(503, "The payment service does not answer; ask again") from None
        except RunIdTaken as taken:
            raise Problem(409, "This order is known with other input") from taken
        if record.payment is None:
            raise Problem(503, f"No payment could be requested: {record.error}")
        return _started(record, order)

    async def _requested(self, handle: Handle[Any]) -> JobRecord:
        """The record of a job as soon as its payment was requested, or could not be."""
        record = record_of(handle.id, await handle.read())
        if record.status != "requesting":
            return record
        async for event in handle.events():
            record.take(event.seq, event.raw)
            if record.is_requested:
                return record
        return record_of(handle.id, await handle.read())

    def _order(self, body: dict[str, Any]) -> JobOrder:
        """The order of a request.

        Raises:
            Problem: 400, with what is wrong.
        """
        identifier = _first(body, "identifier_from_purchaser", "identifierFromPurchaser")
        if identifier is None:
            identifier = Ports().entropy(8).hex()
        input_data = _first(body, "input_data", "inputData", "input")
        input_data = {} if input_data is None else input_data
        if not isinstance(identifier, str) or not identifier:
            raise Problem(400, "identifier_from_purchaser is a text")
        if not isinstance(input_data, dict):
            raise Problem(400, "input_data is an object")
        self._check(input_data, self._schema_now())
        agent, digest = self.escrow.agent, self.escrow.input_hash(input_data, identifier)
        return JobOrder(
            job_id=job_id_of(agent, digest),
            agent=agent,
            identifier=identifier,
            input_data=input_data,
            input_hash=digest,
        )

    def _check(self, input_data: dict[str, Any], schema: Mapping[str, Any] | None) -> None:
        wrong = {} if schema is None else problems(input_data, schema)
        if wrong:
            message = f"Validation failed: {', '.join(sorted(wrong))}"
            raise Problem(400, {"message": message, "field_errors": wrong})

    async def _status(self, query: Mapping[str, str]) -> dict[str, Any]:
        job_id = _first(query, "job_id", "jobId")
        if not job_id:
            raise Problem(422, "job_id is missing")
        record = await self._record(job_id)
        if record.status == "requesting":
            raise Problem(404, "Job not found")  # its start was not answered yet
        answer = {
            "id": record.status_id,
            "status": "running" if record.status == "delivering" else record.status,
            "input_schema": record.schema,
            "result": record.result,
        }
        if record.status == "delivering":
            answer["message"] = "delivering: the result waits for the chain"
        if record.status == "awaiting_input":
            answer["message"] = record.message
        if record.error:
            answer["error"] = record.error
        return answer

    async def _record(self, job_id: str) -> JobRecord:
        try:
            handle = await self._opened.get(job_id, self.flow)
            return record_of(job_id, await handle.read())
        except (RunNotFound, RunIdRefused):
            raise Problem(404, "Job not found") from None

    async def _provide_input(self, body: dict[str, Any]) -> dict[str, Any]:
        job_id, input_data = (
            _first(body, "job_id", "jobId"),
            _first(body, "input_data", "inputData"),
        )
        status_id = _first(body, "status_id", "statusId")
        if not isinstance(job_id, str) or not isinstance(input_data, dict):
            raise Problem(400, "job_id is a text and input_data an object")
        record = await self._record(job_id)
        if record.status != "awaiting_input":
            raise Problem(409, f"Job {job_id} is not awaiting input: it is {record.status}")
        if status_id is not None and status_id != record.status_id:
            raise Problem(409, "status_id names another question than the one that is open")
        self._check(input_data, record.schema)
        try:
            handle = await self._opened.get(job_id, self.flow)
            await handle.answer(input_data, record.question)
        except (QuestionNotOpen, RunEnded) as error:
            raise Problem(409, str(error)) from None
        except AnswerRefused as error:
            raise Problem(400, str(error)) from None
        identifier = "" if record.order is None else record.order.identifier
        return {"input_hash": self.escrow.input_hash(input_data, identifier), "signature": ""}

    async def _available(self) -> dict[str, Any]:
        answer = {"status": "available", "type": "masumi-agent", "message": "Server operational"}
        if not self._is_confirmed:
            return {**answer, "status": "unavailable", "message": self._trouble}
        if self._availability is not None:
            try:
                return {**answer, **await self._availability()}
            except Exception as error:
                logger.warning("the availability handler failed: %s", type(error).__name__)
                return {**answer, "status": "unavailable", "message": "The agent is not available"}
        return answer

    def _input_schema(self) -> dict[str, Any]:
        schema = self._schema_now()
        if schema is None:
            return {"input_data": [], "input_groups": None}
        groups = schema.get("input_groups")
        return {"input_data": schema.get("input_data"), "input_groups": groups}

    def _schema_now(self) -> dict[str, Any] | None:
        schema = self._schema() if callable(self._schema) else self._schema
        found: dict[str, Any] | None = None if schema is None else plain(dict(schema))
        return found

    def _show_demo(self) -> Any:
        if self._demo is None:
            raise Problem(501, "Demo endpoint not implemented")
        return plain(dict(self._demo()))

    @property
    def _opened(self) -> App:
        if self._app is None:
            raise UsageError("the service was not started: `async with service:`, or its lifespan")
        return self._app


def _started(record: JobRecord, order: JobOrder) -> dict[str, Any]:
    payment = record.payment
    assert payment is not None, "it was requested"
    return {
        "id": order.job_id,
        "blockchainIdentifier": payment.id,
        "payByTime": payment.pay_by,
        "submitResultTime": payment.submit_by,
        "unlockTime": payment.unlock_at,
        "externalDisputeUnlockTime": payment.dispute_until,
        "agentIdentifier": order.agent,
        "sellerVKey": payment.seller,
        "identifierFromPurchaser": order.identifier,
        "input_hash": order.input_hash,
        "inputHash": order.input_hash,
    }


def _first(values: Mapping[str, Any], *names: str) -> Any:
    """The first of these names that is there."""
    return next((values[name] for name in names if values.get(name) is not None), None)


async def _body(receive: Receive) -> dict[str, Any]:
    raw, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem(400, "the request was cut off")
        raw += message.get("body", b"")
        more = message.get("more_body", False)
        if len(raw) > BODY_BYTES_MAX:
            raise Problem(413, f"a request has at most {BODY_BYTES_MAX} bytes")
    try:
        found = json.loads(bytes(raw))
    except ValueError:
        raise Problem(400, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise Problem(400, "the body is not an object")
    return found
