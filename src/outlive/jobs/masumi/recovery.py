"""Recovery of jobs for those who keep the app of the masumi package.

Each job that a process left behind is looked at on the chain, then waited for, executed, delivered
or failed. Nothing is decided while the payment service can't be reached.

The stock app holds no leases on the jobs that it runs, so recover where no other process still
runs them; of several processes that recover at once, one has each job. ``JobService`` needs none
of this.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from masumi import hitl
from masumi.job_manager import JobManager
from masumi.payment import Payment
from masumi.server import MasumiAgentServer

from outlive.errors import UsageError
from outlive.jobs.escrow import EscrowRefused, EscrowUnavailable, EscrowView
from outlive.jobs.flow import text_of
from outlive.jobs.masumi.escrow import MasumiEscrow, output_hash
from outlive.jobs.masumi.storage import MasumiJobStorage
from outlive.model.defaults import (
    JOB_LEASE_SECONDS,
    JOB_POLL_SECONDS,
    JOB_SERVICE_MARGIN_SECONDS,
)
from outlive.ports import Ports

logger = logging.getLogger("outlive.jobs")

INTERRUPTED: Final = ("running", "awaiting_payment", "awaiting_input")
_MARGIN_MS: Final = round(1000 * JOB_SERVICE_MARGIN_SECONDS)
#: Looked for on the chain so long after the time to pay.
_GRACE_MS: Final = 600_000
_OVER: Final = ("invalid", "refunded", "resolved", "releasing")


class JobRecovery:
    """The jobs that are being recovered. ``await recovery.wait()`` until none is left."""

    def __init__(  # noqa: PLR0913 - what recovery is told, most of it by name
        self,
        storage: MasumiJobStorage,
        config: Any,
        server: Any,
        handler: Callable[..., Awaitable[Any]] | None,
        *,
        poll_seconds: float = JOB_POLL_SECONDS,
        lease_seconds: float = JOB_LEASE_SECONDS,
    ) -> None:
        self._storage, self._config = storage, config
        self.job_manager = JobManager(storage) if server is None else server.job_manager
        self._handler = handler
        if handler is None and server is not None:
            self._handler = server.handler.get_start_job_handler()
        self._poll_seconds, self._lease_seconds = poll_seconds, lease_seconds
        ports = Ports()
        self._clock, self._me = ports.clock, ports.entropy(8).hex()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._escrows: dict[tuple[str, str], MasumiEscrow] = {}

    def begin(self, job_id: str) -> None:
        """Attend to a job until it ended."""
        self.tasks[job_id] = asyncio.create_task(self._attend(job_id))

    async def wait(self) -> None:
        """Wait until every job has ended or can't be executed here."""
        await asyncio.gather(*self.tasks.values())

    async def stop(self) -> None:
        """Leave the jobs to whoever recovers next."""
        for task in self.tasks.values():
            task.cancel()
        for job_id, task in self.tasks.items():
            with suppress(asyncio.CancelledError):
                await task
            with suppress(ValueError):
                await self._storage.change(job_id, self._let_go)
        for escrow in self._escrows.values():
            await escrow.aclose()

    async def _attend(self, job_id: str) -> None:
        while True:
            try:
                if await self._is_over(job_id):
                    return
            except (EscrowUnavailable, EscrowRefused, OSError) as error:
                logger.warning("job %s: %s; it is tried again", job_id, type(error).__name__)
            except Exception:
                logger.exception("job %s can't be recovered now; it is tried again", job_id)
            await asyncio.sleep(self._poll_seconds)

    async def _is_over(self, job_id: str) -> bool:
        """Do what can be done for a job now; whether nothing is left to do here."""
        job = await self._storage.get_job(job_id)
        if job is None or job.get("status") not in INTERRUPTED:
            return True
        view = await self._look(job)
        if job["status"] == "awaiting_payment":
            return await self._unpaid(job, view)
        if job["status"] == "awaiting_input":
            return await self._unanswered(job, view)
        return await self._interrupted(job, view)

    def _hold(self, job: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take or prolong the lease on a job; None: somebody else has it."""
        now, lease = self._clock.now_ms(), job.get("recovery") or {}
        if lease.get("by") not in (None, self._me) and lease.get("until", 0) > now:
            return None
        return {"recovery": {"by": self._me, "until": now + round(1000 * self._lease_seconds)}}

    def _let_go(self, job: Mapping[str, Any]) -> dict[str, Any] | None:
        is_mine = (job.get("recovery") or {}).get("by") == self._me
        return {"recovery": None} if is_mine else None

    def _escrow(self, job: Mapping[str, Any]) -> MasumiEscrow:
        agent, network = str(job.get("agent_identifier")), str(job.get("network") or "Preprod")
        if (agent, network) not in self._escrows:
            self._escrows[agent, network] = MasumiEscrow(
                self._config.payment_service_url,
                self._config.payment_api_key,
                agent,
                network=network,
            )
        return self._escrows[agent, network]

    async def _look(self, job: Mapping[str, Any]) -> EscrowView:
        payment = job.get("payment_id")
        if not payment:
            return EscrowView(standing="unpaid", state="no payment")
        return await self._escrow(job).look(payment)

    # by status

    async def _unpaid(self, job: dict[str, Any], view: EscrowView) -> bool:
        now, job_id = self._clock.now_ms(), job["job_id"]
        if view.standing == "unpaid":
            if now <= int(job.get("pay_by_time") or 0) + _GRACE_MS:
                return False
            return await self._fail(job_id, "Payment deadline expired before restart.")
        if view.standing == "unknown":
            return False
        if view.standing in ("delivered", "paid_out"):
            return await self._complete(job)
        if view.standing in _OVER:
            return await self._fail(job_id, f"The payment is over ({view.state}).")
        await self._update(job_id, "awaiting_payment", {"status": "running"})
        return await self._interrupted({**job, "status": "running"}, view)

    async def _unanswered(self, job: dict[str, Any], view: EscrowView) -> bool:
        if view.standing in ("delivered", "paid_out"):
            return await self._complete(job)
        if view.standing in _OVER:
            return await self._fail(job["job_id"], f"The payment is over ({view.state}).")
        if self._is_late(job):
            text = "Submit deadline expired while awaiting human input."
            return await self._fail(job["job_id"], text)
        return False  # the answer makes it running

    async def _interrupted(self, job: dict[str, Any], view: EscrowView) -> bool:
        if view.standing in ("delivered", "paid_out"):
            return await self._complete(job)
        if view.standing in _OVER:
            return await self._fail(job["job_id"], f"The payment is over ({view.state}).")
        if view.standing in ("queued", "unknown", "unpaid"):
            return False  # wait until it is on the chain
        if self._is_late(job):
            return await self._fail(job["job_id"], "Submit deadline expired during outage.")
        if self._handler is None:
            logger.warning("job %s: no handler to execute it; it stays as it is", job["job_id"])
            return True
        if await self._storage.change(job["job_id"], self._hold):  # else another process has it
            if job.get("staged_result") is None:
                await self._execute(job, self._handler)
            else:
                await self._deliver(job)
        return False  # what came of it the next look shows

    def _is_late(self, job: Mapping[str, Any]) -> bool:
        deadline = int(job.get("submit_result_time") or 0)
        return bool(deadline) and self._clock.now_ms() >= deadline - _MARGIN_MS

    # acts

    async def _execute(self, job: dict[str, Any], handler: Callable[..., Awaitable[Any]]) -> None:
        """Run the handler with the saved input; answers that were given are given again."""
        job_id = job["job_id"]
        logger.info("job %s is executed again", job_id)
        holding = asyncio.create_task(self._keep_holding(job_id))
        try:
            work = asyncio.create_task(self._run_handler(job, handler))
            try:
                await asyncio.wait({work, holding}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not work.done():
                    work.cancel()
            if holding.done() and not work.done():
                return  # another process has taken the job
            text = text_of(work.result())
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await self._fail(job_id, str(error) or type(error).__name__)
            return
        finally:
            holding.cancel()
        await self._storage.update_job(job_id, {"staged_result": text})
        await self._deliver({**job, "staged_result": text})

    async def _run_handler(
        self, job: dict[str, Any], handler: Callable[..., Awaitable[Any]]
    ) -> Any:
        """In a task, and so in a context, of its own."""
        again = _Answers(self.job_manager, job.get("answers") or [])
        hitl.set_job_context(job["job_id"], again)
        identifier = job.get("identifier_from_purchaser", "")
        return await handler(identifier, dict(job.get("input_data") or {}))

    async def _keep_holding(self, job_id: str) -> None:
        """Prolong the lease; ends when it is lost."""
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            with suppress(OSError):
                if not await self._storage.change(job_id, self._hold):
                    return

    async def _deliver(self, job: dict[str, Any]) -> None:
        """Hand the saved result in; it is completed when the chain has it."""
        text = job["staged_result"]
        digest = output_hash(text, job.get("identifier_from_purchaser", ""))
        view = await self._escrow(job).submit(job["payment_id"], digest)
        if view.standing in ("queued", "delivered") and view.digest != digest:
            error = f"another result stands in the escrow than the one saved here ({view.state})"
            await self._fail(job["job_id"], error)

    async def _complete(self, job: dict[str, Any]) -> bool:
        result = job.get("result") or job.get("staged_result")
        ended = {"status": "completed", "result": result}
        await self._update(job["job_id"], job["status"], ended, is_end=True)
        logger.info("job %s is completed", job["job_id"])
        return True

    async def _fail(self, job_id: str, error: str) -> bool:
        def decide(job: Mapping[str, Any]) -> dict[str, Any] | None:
            is_open = job.get("status") in INTERRUPTED
            return {"status": "failed", "error": error} if is_open else None

        await self._storage.change(job_id, decide, is_end=True)
        logger.warning("job %s failed", job_id)
        return True

    async def _update(
        self, job_id: str, status: str, updates: Mapping[str, Any], *, is_end: bool = False
    ) -> None:
        """Update a job that is still at this status."""

        def decide(job: Mapping[str, Any]) -> Mapping[str, Any] | None:
            return updates if job.get("status") == status else None

        await self._storage.change(job_id, decide, is_end=is_end)


class _Answers:
    """The job manager for a handler that runs again: known answers are given at once."""

    def __init__(self, manager: Any, answers: list[dict[str, Any]]) -> None:
        self._manager, self._answers = manager, list(answers)

    async def set_job_awaiting_input(self, job_id: str, schema: Any, message: Any) -> None:
        if self._answers:
            hitl.provide_input_to_job(job_id, self._answers.pop(0))
        else:
            await self._manager.set_job_awaiting_input(job_id, schema, message)


async def recover_jobs_on_startup(  # noqa: PLR0913 - most of it by name
    storage: MasumiJobStorage,
    config: Any,
    *,
    app: Any = None,
    handler: Callable[..., Awaitable[Any]] | None = None,
    poll_seconds: float = JOB_POLL_SECONDS,
    lease_seconds: float = JOB_LEASE_SECONDS,
) -> JobRecovery:
    """Take up every job that a process left behind; call it before requests are served.

    ``app`` is what ``create_masumi_app`` returned, or a ``MasumiAgentServer``; its handler runs
    the jobs, unless ``handler`` is given. With neither, jobs that need to be executed are logged
    and left as they are. A job that a process was executing when it died is taken up when
    ``lease_seconds`` have passed since.
    """
    jobs = [job for status in INTERRUPTED for job in await storage.list_jobs(status)]
    times = {"poll_seconds": poll_seconds, "lease_seconds": lease_seconds}
    recovery = JobRecovery(storage, config, _server_of(app), handler, **times)
    if not jobs:
        logger.info("No jobs to recover.")
        return recovery
    logger.info("Found %d job(s) to recover.", len(jobs))
    for job in jobs:
        if job.get("payment_id"):
            payments = recovery.job_manager._payment_instances  # noqa: SLF001 - no other door
            payments[job["job_id"]] = payment_of(job, config)
        recovery.begin(job["job_id"])
    return recovery


def _server_of(app: Any) -> Any:
    """The server behind an app: its routes know it."""
    if app is None or isinstance(app, MasumiAgentServer):
        return app
    for route in getattr(app, "routes", ()):
        for cell in getattr(getattr(route, "endpoint", None), "__closure__", None) or ():
            if isinstance(cell.cell_contents, MasumiAgentServer):
                return cell.cell_contents
    raise UsageError("app is what create_masumi_app returned, or a MasumiAgentServer")


async def reattach_payment_monitoring(
    job: dict[str, Any],
    payment: Any,
    job_manager: Any,
    *,
    poll_seconds: float = JOB_POLL_SECONDS,
) -> None:
    """Look at the payment of a job that awaits it, and monitor it again if it is not there yet."""
    job_id, bid = job["job_id"], job.get("payment_id") or job.get("blockchain_identifier")
    state = "Unknown"
    with suppress(Exception):
        found = await payment.check_payment_status_by_identifier(bid)
        state = ((found or {}).get("data") or {}).get("onChainState") or "None"
    if state == "FundsLocked":
        await job_manager.set_job_running(job_id)
    elif state in ("ResultSubmitted", "Withdrawn"):
        await job_manager.update_job_status(job_id, "completed")
    elif state in ("None", "Unknown"):
        payment.payment_ids.add(bid)
        job_manager._payment_instances[job_id] = payment  # noqa: SLF001 - it has no other door

        async def paid(_: Any) -> None:
            await job_manager.set_job_running(job_id)

        await payment.start_status_monitoring(callback=paid, interval_seconds=poll_seconds)


def payment_of(job: Mapping[str, Any], config: Any) -> Any:
    """The ``Payment`` of a stored job, with its own identifier: the salt of its hashes."""
    return Payment(
        agent_identifier=job["agent_identifier"],
        config=config,
        network=job.get("network") or "Preprod",
        identifier_from_purchaser=job["identifier_from_purchaser"],
        input_data=job.get("input_data"),
    )


async def import_jobs(path_or_dsn: str | Path, storage: MasumiJobStorage | None = None) -> int:
    """Take over the table ``jobs`` of a SQLite file, or ``masumi_jobs`` of a PostgreSQL database.

    Jobs that are known already are left as they are. Returns the number of those taken over.
    """
    storage = storage or MasumiJobStorage()
    is_postgres = str(path_or_dsn).startswith(("postgresql://", "postgres://"))
    read = _read_postgres if is_postgres else _read_sqlite
    count = 0
    for job in await asyncio.to_thread(partial(read, str(path_or_dsn))):
        if await storage.get_job(job["job_id"]) is None:
            await storage.create_job(job["job_id"], job)
            count += 1
    return count


def _read_sqlite(path: str) -> list[dict[str, Any]]:
    if not Path(path).exists():
        raise UsageError(f"{path} is not there")
    db = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)
    try:
        rows = db.execute("SELECT job_id, data, status FROM jobs ORDER BY updated_at").fetchall()
    finally:
        db.close()
    return [_job_of(*row) for row in rows]


def _read_postgres(dsn: str) -> list[dict[str, Any]]:
    import psycopg

    sql = "SELECT job_id, data::text, status FROM masumi_jobs ORDER BY updated_at"
    with psycopg.connect(dsn) as db:
        return [_job_of(*row) for row in db.execute(sql).fetchall()]


def _job_of(job_id: str, data: str, status: str) -> dict[str, Any]:
    found = json.loads(data)
    found = json.loads(found) if isinstance(found, str) else found  # JSON in a JSON text
    return {**found, "job_id": job_id, "status": status}
