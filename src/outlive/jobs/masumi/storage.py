"""A drop-in for the job storage of the masumi package: each job is a key of a log in a store.

    create_masumi_app(config=..., job_storage=MasumiJobStorage("sqlite:///jobs.db"), ...)

An update is an entry, decided on the job as it is at that moment: no update of another thread or
process is lost. The original input stays as it was; what humans answered stands beside it.

It may be made without an event loop and used from many, from threads and from processes.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from masumi.job_manager import JobStorage

from outlive.app.app import App
from outlive.app.log import KeyedLog, LogEntry, LogView, LogWrite
from outlive.app.open import open_app
from outlive.errors import UsageError
from outlive.jobs.flow import plain
from outlive.jobs.masumi.escrow import in_ms
from outlive.model.retry import Duration

LOG: Final = "masumi-jobs"
DELETED: Final = "masumi-jobs-deleted"
_PAGE: Final = 500
#: Statuses that may follow; others than these are let through.
EDGES: Final[Mapping[str, frozenset[str]]] = {
    "awaiting_payment": frozenset({"running", "failed"}),
    "running": frozenset({"awaiting_input", "completed", "failed"}),
    "awaiting_input": frozenset({"running", "failed"}),
    "completed": frozenset(),
    "failed": frozenset(),
}
ENDED: Final = ("completed", "failed")
_TIMES = ("pay_by_time", "submit_result_time", "unlock_time", "external_dispute_unlock_time")


class _Refusal(UsageError):
    """Raised in a decision, so that it is made again if it was made on an old state."""


class MasumiJobStorage(JobStorage):  # type: ignore[misc]  # the package has no types
    """Jobs of the masumi package in any store; default: ``OUTLIVE_STORE``.

    ``strict=True`` refuses transitions that make no sense, as from completed to running. ``keep``
    says how long a job stays after it ended. ``network`` is noted in each new job.
    """

    def __init__(
        self,
        store_url: str | None = None,
        *,
        strict: bool = False,
        keep: Duration | None = None,
        network: str = "Preprod",
        key: str | None = None,
    ) -> None:
        self._url, self._key, self._keep = store_url, key, keep
        self._strict, self._network = strict, network
        self._app: App | None = None
        self._opening = threading.Lock()

    # the five methods

    async def create_job(self, job_id: str, job_data: dict[str, Any]) -> None:
        """Store a new job; durable when this returns.

        Raises:
            ValueError: there is a job of this id.
        """
        data = _normal(job_data)
        if data.get("network") is None:
            data["network"] = self._network

        def decide(view: LogView) -> LogWrite:
            if len(view):
                raise _Refusal(f"Job {job_id} exists already in storage")
            return LogWrite(values=[data], tags=_tags(data))

        await self._append(job_id, decide, is_end=data.get("status") in ENDED)

    async def get_job(self, job_id: str) -> dict[str, Any] | None:
        """A copy of the job; None: there is none."""
        log = await self._log()
        return folded(await log.read(job_id))

    async def update_job(self, job_id: str, updates: dict[str, Any]) -> None:
        """Merge these fields into the job, in one atomic step.

        Raises:
            ValueError: there is no such job, or ``strict`` forbids this transition.
        """
        is_end = updates.get("status") in ENDED
        await self.change(job_id, lambda _: updates, is_end=is_end)

    async def delete_job(self, job_id: str) -> None:
        """Delete the job with its contents; that it was there stays known."""
        log = await self._log()
        if await log.drop([job_id]):
            app = await self._opened()
            await app.log(DELETED).append(job_id, lambda view: [{"deleted_at": str(view.now)}])

    async def list_jobs(self, status: str | None = None) -> list[dict[str, Any]]:
        """Copies of all jobs, or of those of a status."""
        log = await self._log()
        return await asyncio.to_thread(_listed, log, status)

    # more than the package asks for

    async def change(
        self,
        job_id: str,
        decide: Callable[[dict[str, Any]], Mapping[str, Any] | None],
        *,
        is_end: bool = False,
    ) -> bool:
        """Update a job by a function of it, atomically; it may be called several times.

        It returns what to change, or None: then nothing is, and this returns False. ``is_end``
        says that the job will have ended: the time that it is kept begins.
        """
        is_changed = False

        def deciding(view: LogView) -> LogWrite | None:
            nonlocal is_changed
            job = folded(view.entries)
            if job is None:
                raise _Refusal(f"Job {job_id} not found in storage")
            wanted = decide(job)
            is_changed = wanted is not None
            if wanted is None:
                return None
            patch = self._patch(job, _normal(wanted))
            return LogWrite(values=[patch], tags=_tags({**job, **patch}))

        await self._append(job_id, deciding, is_end=is_end)
        return is_changed

    async def changes(self, job_id: str) -> list[dict[str, Any]]:
        """What happened to a job: each change with its instant, also that it was deleted."""
        log = await self._log()
        app = await self._opened()
        entries = [*await log.read(job_id), *await app.log(DELETED).read(job_id)]
        return [{"at": entry.at, "changed": copy.deepcopy(entry.value)} for entry in entries]

    async def close(self) -> None:
        """Close the store; it is opened again when it is used."""
        with self._opening:
            app, self._app = self._app, None
        if app is not None:
            await asyncio.to_thread(app.close)

    # parts

    def _patch(self, job: Mapping[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
        """What is recorded of an update."""
        before, after = job.get("status"), wanted.get("status", job.get("status"))
        if self._strict and before != after and after not in EDGES.get(str(before), {after}):
            raise _Refusal(f"Job {job['job_id']} can't go from {before} to {after}")
        if self._strict and before in ENDED and before == after:
            wanted = {"status": after}
        given, known = wanted.get("input_data"), job.get("input_data")
        is_answer = (before, after) == ("awaiting_input", "running")
        if is_answer and isinstance(given, dict) and isinstance(known, dict):
            # The package merges the answer into the input, whose hash then fits no longer.
            answer = {k: v for k, v in given.items() if k not in known or known[k] != v}
            wanted = {**wanted, "input_data": known}
            wanted["answers"] = [*job.get("answers", []), answer]
        return wanted

    async def _append(
        self, job_id: str, decide: Callable[[LogView], LogWrite | None], *, is_end: bool
    ) -> None:
        log = (await self._opened()).log(LOG, keep=self._keep if is_end else None)
        try:
            await log.append(job_id, decide)
        except _Refusal as refusal:
            raise ValueError(str(refusal)) from None

    async def _log(self) -> KeyedLog:
        return (await self._opened()).log(LOG)

    async def _opened(self) -> App:
        app = self._app
        return await asyncio.to_thread(self._open) if app is None else app

    def _open(self) -> App:
        with self._opening:
            if self._app is None:
                self._app = open_app(self._url, key=self._key)
            return self._app


def folded(entries: Sequence[LogEntry]) -> dict[str, Any] | None:
    """The job that these entries make; None: none."""
    if not entries:
        return None
    job: dict[str, Any] = {}
    for entry in entries:
        job |= copy.deepcopy(entry.value)
    if job.get("created_at") is None:
        job["created_at"] = _text(entries[0].at)
    job["updated_at"], job["version"] = _text(entries[-1].at), len(entries)
    payment = job.get("payment_id", job.get("blockchain_identifier"))
    if payment is not None:
        job["payment_id"] = job["blockchain_identifier"] = payment
    return job


def _listed(log: KeyedLog, status: str | None) -> list[dict[str, Any]]:
    """All jobs, page by page, on a thread of its own."""
    found, after = list[dict[str, Any]](), None
    tag = None if status is None else ("status", status)
    while True:
        page = log.sync.find(tag=tag, limit=_PAGE, after=after)
        for each in page.items:
            job = folded(log.sync.read(each.key))
            if job is not None and status in (None, job.get("status")):
                found.append(job)
        after = page.next
        if after is None:
            return found


def _normal(data: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as they are stored: plain values, times in milliseconds."""
    found: dict[str, Any] = plain(dict(data))
    for name in _TIMES:
        if isinstance(found.get(name), int):
            found[name] = in_ms(found[name])
    return found


def _tags(job: Mapping[str, Any]) -> dict[str, str]:
    return {"status": str(job.get("status") or "unknown")}


def _text(at: datetime) -> str:
    return at.isoformat()
