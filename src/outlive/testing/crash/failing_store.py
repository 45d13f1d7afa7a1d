"""A store that fails on purpose: at its n-th call it kills the process, or loses the reply.

It wraps any store and counts the calls of all verbs together, or those of one verb. A fault
happens once, before the call reaches the store or after the store has answered. Whatever the store
acknowledged is told to a *witness* first, so that a test can insist on it later.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from outlive.errors import StoreUnavailable
from outlive.model.defaults import FIND_LIMIT
from outlive.stores.seam import Clearing, Mailroom, Prompt, Store, Watchable
from outlive.stores.transactions import AsyncTransaction, Attempt, Enlisting, Transactional
from outlive.stores.types import (
    Claims,
    Conflict,
    Deletion,
    Entry,
    Health,
    Mail,
    Node,
    Page,
    Posted,
    Posting,
    Query,
    Reading,
    Wanted,
)

T = TypeVar("T")


class CallFault(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """What goes wrong, at which call (from 1)."""

    number: int
    #: Count the calls of this verb only.
    verb: str | None = None
    when: Literal["before", "after"] = "before"
    how: Literal["kill", "reply_lost"] = "kill"


def kill_this_process() -> None:
    """As the kernel does it: no clean-up, no goodbye."""
    os.kill(os.getpid(), signal.SIGKILL)


def nobody_watches(entry: Entry) -> None:
    """The witness of those who ask for none."""


class FailingStore:
    """Any store, with a fault."""

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
        # What it can do beyond the seam, this one can as well.
        if isinstance(store, Watchable):
            self.watch = store.watch
        if isinstance(store, Mailroom):
            self._mailroom = store
            self.post_all, self.mail_of = self._post_all, self._mail_of
        if isinstance(store, Clearing):
            self._clearing = store
            self.read_all, self.delete_all = self._read_all, self._delete_all
        if isinstance(store, Enlisting):
            self.enlist, self.enlist_async = store.enlist, store.enlist_async
        if isinstance(store, Transactional):
            self._transactional = store
            self.transaction_seconds_max = store.transaction_seconds_max
            self.begin, self.begin_async = store.begin, self._begin_async
            self.outcome_of, self.forget_outcomes = self._outcome_of, self._forget_outcomes
            self.outcomes_of = store.outcomes_of

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

    async def commit(self, batch: Sequence[Entry]) -> Sequence[Conflict | None]:
        return await self._call("commit", self._commit(batch))

    async def _commit(self, batch: Sequence[Entry]) -> Sequence[Conflict | None]:
        answers = await self._store.commit(batch)
        self._note(batch, answers)
        return answers

    async def commit_at_once(self, batch: Sequence[Entry]) -> Sequence[Conflict | None] | None:
        if not isinstance(self._store, Prompt):
            return None
        return await self._call("commit", self._commit_at_once(self._store, batch))

    async def _commit_at_once(
        self, store: Prompt, batch: Sequence[Entry]
    ) -> Sequence[Conflict | None] | None:
        answers = await store.commit_at_once(batch)
        self._note(batch, answers or ())
        return answers

    def _note(self, batch: Sequence[Entry], answers: Sequence[Conflict | None]) -> None:
        for entry, conflict in zip(batch, answers, strict=False):
            if conflict is None:
                self._witness(entry)

    async def read(
        self, run_id: str, after: int = 0, *, limit: int | None = None
    ) -> Reading | None:
        return await self._call("read", self._store.read(run_id, after, limit=limit))

    async def post(self, run_id: str, mail_id: str, body: bytes) -> Posted:
        return await self._call("post", self._store.post(run_id, mail_id, body))

    async def _post_all(self, batch: Sequence[Posting]) -> Sequence[Posted]:
        return await self._call("post_all", self._mailroom.post_all(batch))

    async def _mail_of(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mail]]:
        return await self._call("mail_of", self._mailroom.mail_of(run_ids))

    async def _begin_async(self, attempt: Attempt, seconds: float) -> AsyncTransaction:
        work = self._transactional.begin_async(attempt, seconds)
        return await self._call("begin_async", work)

    async def _outcome_of(self, attempt: Attempt) -> bytes | None:
        return await self._call("outcome_of", self._transactional.outcome_of(attempt))

    async def _forget_outcomes(self, steps: Sequence[tuple[str, str]]) -> None:
        await self._call("forget_outcomes", self._transactional.forget_outcomes(steps))

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

    async def beat(self, worker: str) -> int:
        return await self._call("beat", self._store.beat(worker))

    async def release(self, worker: str) -> None:
        await self._call("release", self._store.release(worker))

    async def delete(self, run_id: str, *, seq: int, digest: bytes, keep_until: int) -> bool:
        work = self._store.delete(run_id, seq=seq, digest=digest, keep_until=keep_until)
        return await self._call("delete", work)

    async def _read_all(self, run_ids: Sequence[str]) -> Mapping[str, Reading]:
        return await self._call("read_all", self._clearing.read_all(run_ids))

    async def _delete_all(self, batch: Sequence[Deletion]) -> Sequence[bool]:
        return await self._call("delete_all", self._clearing.delete_all(batch))

    async def health(self) -> Health:
        return await self._call("health", self._store.health())

    async def close(self) -> None:
        await self._call("close", self._store.close())
