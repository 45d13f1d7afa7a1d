"""Transactional steps: what the body writes and the step's outcome are committed together.

Such a step is an effect whose receiver is the store's own database, so its doubts settle
themselves: the outcome is there if and only if the body's writes are. The commit holds the run's
epoch: a driver that lost the run can't commit any more, so what is not there when another one looks
will never be. An absence counts at once, and a body that raised has provably left nothing.

The outcome then goes into the journal like any other; when that is durable it is forgotten here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from outlive.engine.definitions import NOT_HAPPENED
from outlive.engine.host import Cancellable, Host
from outlive.engine.ops import Limits, NotBegun, Op, expire
from outlive.envelope import disclose_outcome, enclose_outcome
from outlive.errors import CorruptRecord, LeaseLost, OutliveError, StoreUnavailable, TimedOut
from outlive.journal.lane import Lane
from outlive.stores.seam import Store
from outlive.stores.transactions import (
    AsyncTransaction,
    Attempt,
    NotInTime,
    Transaction,
    Transactional,
    Unsure,
)

logger = logging.getLogger("outlive")

#: Outcomes that are forgotten with one statement, and how long the first of them waits for others.
FORGET_MANY = 100
FORGET_SECONDS = 0.5


#: A transaction that may be taken away from its body.
Open: TypeAlias = Transaction | AsyncTransaction
#: Called with a transaction that has begun.
Begun: TypeAlias = Callable[[Open], None]
#: What is not recorded, taken out of an outcome.
Hide: TypeAlias = Callable[[bytes], bytes]


class Transactions:
    """The transactional steps of one worker's runs."""

    def __init__(self, store: Transactional, lane: Lane, host: Host) -> None:
        self._store, self._lane, self._host = store, lane, host
        self._seconds_max = store.seconds_max
        self._known: list[tuple[str, str]] = []
        self._timer: Cancellable | None = None
        self._limits: Limits[Op] = Limits(host, expire)

    # one attempt

    def limit_of(self, op: Op) -> float:
        """No store lets a transaction be open for as long as it likes."""
        return min(op.definition.timeout_seconds or 0, self._seconds_max)

    def body_of(
        self, op: Op, attempt: Attempt, hide: Hide, left: Callable[[Op], float]
    ) -> Callable[..., Any]:
        """The body of a step with a transaction around it, which sets its limit."""
        perform = self._perform if op.definition.is_async else self._perform_plainly
        begun = partial(self._begun, op, attempt, left)
        return partial(perform, op, attempt, (hide, begun))

    def _begun(self, op: Op, attempt: Attempt, left: Callable[[Op], float], own: Open) -> None:
        """From here on it is ended at its limit, all of which it has: else it is not begun."""
        op.abort, limit = own.abort, self.limit_of(op)
        if left(op) < limit:
            raise NotBegun
        start = partial(self._start_limit, op, attempt.seq, limit)
        start() if op.definition.is_async else self._host.call_threadsafe(start)

    def _start_limit(self, op: Op, seq: int, seconds: float) -> None:
        """On the run's side: the attempt may have ended meanwhile."""
        if op.task is not None and op.effect is not None and op.effect.seq == seq:
            op.limit = self._limits.set(op.definition.timeout_seconds or 0, seconds, op)

    async def _perform(
        self, op: Op, attempt: Attempt, told: tuple[Hide, Begun], *args: Any, **kwargs: Any
    ) -> Any:
        hide, begun = told
        with _beginning():
            own = await self._store.begin_async(attempt, self.limit_of(op))
        try:
            begun(own)
            value = await op.definition.fn(own.connection, *args, **kwargs)
            outcome = hide(op.definition.value_codec.encode(value))
            await _undisturbed(own.commit(_enclosed(attempt, outcome)))
        except BaseException as error:
            meant = self._meaning(op, own, error)
            await _undisturbed(own.roll_back())
            if meant is error:
                raise
            raise meant from error
        finally:
            op.abort = None
        return value

    def _perform_plainly(
        self, op: Op, attempt: Attempt, told: tuple[Hide, Begun], *args: Any, **kwargs: Any
    ) -> Any:
        hide, begun = told
        with _beginning():
            own = self._store.begin(attempt, self.limit_of(op))
        try:
            begun(own)
            value = op.definition.fn(own.connection, *args, **kwargs)
            outcome = hide(op.definition.value_codec.encode(value))
            own.commit(_enclosed(attempt, outcome))
        except BaseException as error:
            meant = self._meaning(op, own, error)
            own.roll_back()
            if meant is error:
                raise
            raise meant from error
        finally:
            op.abort = None
        return value

    def _meaning(self, op: Op, own: Open, error: BaseException) -> BaseException:
        """What a body raises whose transaction was taken away from it is no fault of its own."""
        is_known = isinstance(error, (Unsure, LeaseLost, NotBegun)) or op.cut
        if is_known or not isinstance(error, (Exception, asyncio.CancelledError)):
            return error
        if not op.expired:
            return Unsure(str(error)) if own.is_lost and isinstance(error, Exception) else error
        given = f"{self.limit_of(op):g} s for its transaction"
        return TimedOut(f"step {op.id} was given {given}, and took longer")

    # doubts

    async def look(self, op: Op, attempt: Attempt) -> object:
        """The outcome that was committed, or NOT_HAPPENED, which is final."""
        try:
            found = await self._outcome_of(attempt)
        except OutliveError as error:
            logger.warning("run %s: %s is asked again: %s", attempt.run_id, op.id, error)
            raise
        return NOT_HAPPENED if found is None else op.definition.value_codec.decode(found)

    async def _outcome_of(self, attempt: Attempt) -> bytes | None:
        body = await self._lane(self._store.outcome_of(attempt))
        if body is None:
            return None
        found = disclose_outcome(attempt.run_id, attempt.step, body)
        if found is None or found[0] > attempt.seq:
            why = f"the outcome of {attempt.step} beside it is damaged, or another's"
            raise CorruptRecord(attempt.run_id, attempt.seq, why)
        return found[1]

    # what the journal has

    def forget(self, run_id: str, step: str) -> None:
        """This step's end is durable in its journal."""
        self._known.append((run_id, step))
        if self._timer is None:
            self._timer = self._host.call_later(FORGET_SECONDS, self._begin_to_forget)

    def _begin_to_forget(self) -> None:
        self._timer = None
        self._host.create_task(self.flush())

    async def flush(self) -> None:
        """Forget what may be forgotten. What can't be now goes with its run."""
        while self._known:
            some, self._known = self._known[:FORGET_MANY], self._known[FORGET_MANY:]
            try:
                await self._lane(self._store.forget_outcomes(some))
            except OutliveError as error:
                logger.debug("outcomes were not forgotten: %s", error)
                return


def transactions_of(store: Store, lane: Lane, host: Host) -> Transactions | None:
    """What a worker needs for such steps, if its store can do them."""
    shared = store.transactions
    return None if shared is None else Transactions(shared, lane, host)


def _enclosed(attempt: Attempt, outcome: bytes) -> bytes:
    return enclose_outcome(attempt.run_id, attempt.step, attempt.seq, outcome)


@contextmanager
def _beginning() -> Iterator[None]:
    """A database that is away is waited for, and so are others who write."""
    try:
        yield
    except NotInTime as error:
        raise NotBegun from error
    except StoreUnavailable as error:
        raise Unsure(str(error)) from error


async def _undisturbed(work: Coroutine[Any, Any, None]) -> None:
    """A cancellation comes too late: how this ends is what counts."""
    task = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done():
                raise
