"""A store that fails on purpose: at its n-th call it kills the process, or loses the reply.

It wraps any store and counts the calls of all verbs together, or those of one verb. A fault
happens once, before the call reaches the store or after the store has answered. Acknowledgements
are reported to a *witness* first, so that a test can insist on them later.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

import msgspec

from outlive.errors import StoreUnavailable
from outlive.model.defaults import COUNTED_MAX, FIND_LIMIT
from outlive.stores.seam import Store
from outlive.stores.transactions import AsyncTransaction, Attempt, Transactional
from outlive.stores.types import (
    Answers,
    Changes,
    Claims,
    Count,
    Deletion,
    Entry,
    Health,
    Loss,
    Mail,
    Node,
    Page,
    Posted,
    Posting,
    Query,
    QueueLimits,
    QueueState,
    Reading,
    Standing,
    Wanted,
    WorkerState,
)

T = TypeVar("T")


class CallFault(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """A failure, and the call (from 1) at which it occurs."""

    number: int
    #: Count the calls of this verb only.
    verb: str | None = None
    when: Literal["before", "after"] = "before"
    how: Literal["kill", "reply_lost"] = "kill"


def kill_this_process() -> None:
    """Kill this process as the kernel does: no clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)


def nobody_watches(entry: Entry) -> None:
    """The default witness, which ignores everything."""


class FailingStore:
    """Any store, with a fault."""

    #: Calls are counted, so they come one after the other.
    threads: int | None = None

    def __init__(
        self,
        store: Store,
        fault: CallFault | None = None,
        *,
        witness: Callable[[Entry], None] = nobody_watches,
        kill: Callable[[], None] = kill_this_process,
    ) -> None:
        #: The verbs called so far, in order.
        self.calls: list[str] = []
        self._store, self._fault = store, fault
        self.clock = store.clock
        self._witness, self._kill = witness, kill
        self._lock = threading.Lock()
        self.watchable = store.watchable
        self.transactions: Transactional | None = None
        if store.transactions is not None:
            self.transactions = _FailingTransactions(store.transactions, self._call)

    async def _call(self, verb: str, work: Coroutine[Any, Any, T]) -> T:
        fault = self._due(verb)
        if fault is not None and fault.when == "before":
            self._strike(fault, work)
        answer = await work
        if fault is not None and fault.when == "after":
            self._strike(fault, work)
        return answer

    def _due(self, verb: str) -> CallFault | None:
        with self._lock:
            self.calls.append(verb)
            fault = self._fault
            if fault is None or fault.verb not in (None, verb):
                return None
            count = len(self.calls) if fault.verb is None else self.calls.count(verb)
            return fault if fault.number == count else None

    def _strike(self, fault: CallFault, work: Coroutine[Any, Any, object]) -> None:
        work.close()
        if fault.how == "kill":
            self._kill()
        raise StoreUnavailable(f"{fault.verb or 'store'} call {fault.number} failed on purpose")

    # verbs

    @overload
    async def commit(self, batch: Sequence[Entry]) -> Answers: ...
    @overload
    async def commit(self, batch: Sequence[Entry], *, wait: bool) -> Answers | None: ...
    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Answers | None:
        return await self._call("commit", self._commit(batch, wait=wait))

    async def _commit(self, batch: Sequence[Entry], *, wait: bool) -> Answers | None:
        answers = await self._store.commit(batch, wait=wait)
        self._note(batch, answers or ())
        return answers

    async def commit_together(self, batch: Sequence[Entry]) -> Answers:
        return await self._call("commit_together", self._commit_together(batch))

    async def _commit_together(self, batch: Sequence[Entry]) -> Answers:
        answers = await self._store.commit_together(batch)
        if not any(answers):
            self._note(batch, answers)
        return answers

    def _note(self, batch: Sequence[Entry], answers: Answers) -> None:
        for entry, conflict in zip(batch, answers, strict=False):
            if conflict is None:
                self._witness(entry)

    async def read(
        self, run_id: str, after: int = 0, *, limit: int | None = None
    ) -> Reading | None:
        return await self._call("read", self._store.read(run_id, after, limit=limit))

    async def post(self, batch: Sequence[Posting]) -> Sequence[Posted]:
        return await self._call("post", self._store.post(batch))

    async def mail_of(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mail]]:
        return await self._call("mail_of", self._store.mail_of(run_ids))

    async def put_blob(self, family: str, node: Node) -> None:
        await self._call("put_blob", self._store.put_blob(family, node))

    async def get_blobs(self, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return await self._call("get_blobs", self._store.get_blobs(family, addresses))

    async def drop_blobs(self, family: str, addresses: Sequence[bytes]) -> None:
        await self._call("drop_blobs", self._store.drop_blobs(family, addresses))

    async def find(self, query: Query, after: str | None = None, limit: int = FIND_LIMIT) -> Page:
        return await self._call("find", self._store.find(query, after, limit))

    async def claim(self, worker: str, wanted: Wanted, limit: int) -> Claims:
        return await self._call("claim", self._store.claim(worker, wanted, limit))

    async def standing(self, holder: str | None) -> Standing:
        return await self._call("standing", self._store.standing(holder))

    async def beat(self, worker: str, about: str = "") -> int:
        return await self._call("beat", self._store.beat(worker, about))

    async def count(self, query: Query, most: int = COUNTED_MAX) -> Count:
        return await self._call("count", self._store.count(query, most))

    async def changes(self, after: str | None = None, limit: int = FIND_LIMIT) -> Changes:
        return await self._call("changes", self._store.changes(after, limit))

    async def workers(self) -> Sequence[WorkerState]:
        return await self._call("workers", self._store.workers())

    async def release(self, worker: str) -> None:
        await self._call("release", self._store.release(worker))

    async def read_all(self, run_ids: Sequence[str]) -> Mapping[str, Reading]:
        return await self._call("read_all", self._store.read_all(run_ids))

    async def delete(self, batch: Sequence[Deletion]) -> Sequence[bool]:
        return await self._call("delete", self._store.delete(batch))

    async def families(self, after: str, limit: int) -> Sequence[str]:
        return await self._call("families", self._store.families(after, limit))

    async def without_runs(self, families: Sequence[str]) -> Sequence[str]:
        return await self._call("without_runs", self._store.without_runs(families))

    async def drop_family(self, family: str) -> bool:
        return await self._call("drop_family", self._store.drop_family(family))

    async def set_queue(self, name: str, limits: QueueLimits, *, replace: bool) -> QueueLimits:
        work = self._store.set_queue(name, limits, replace=replace)
        return await self._call("set_queue", work)

    async def find_queue(self, name: str) -> QueueLimits | None:
        return await self._call("find_queue", self._store.find_queue(name))

    async def queues(self) -> Sequence[QueueState]:
        return await self._call("queues", self._store.queues())

    async def loss(self) -> Loss | None:
        return await self._call("loss", self._store.loss())

    async def accept_loss(self, timeline: int) -> bool:
        return await self._call("accept_loss", self._store.accept_loss(timeline))

    async def health(self) -> Health:
        return await self._call("health", self._store.health())

    async def close(self) -> None:
        await self._call("close", self._store.close())


class _FailingTransactions:
    """The store's transactions; the calls that are awaited can fail, too."""

    def __init__(self, below: Transactional, call: Callable[..., Any]) -> None:
        self._below, self._call = below, call
        self.seconds_max = below.seconds_max
        self.begin, self.enlist = below.begin, below.enlist
        self.enlist_async, self.commit_with = below.enlist_async, below.commit_with
        self.outcomes_of = below.outcomes_of

    async def begin_async(self, attempt: Attempt, seconds: float) -> AsyncTransaction:
        work = self._below.begin_async(attempt, seconds)
        begun: AsyncTransaction = await self._call("begin_async", work)
        return begun

    async def outcome_of(self, attempt: Attempt) -> bytes | None:
        found: bytes | None = await self._call("outcome_of", self._below.outcome_of(attempt))
        return found

    async def forget_outcomes(self, steps: Sequence[tuple[str, str]]) -> None:
        await self._call("forget_outcomes", self._below.forget_outcomes(steps))
