"""Transactional steps on a sealed store: tables are the user's own, outcomes are sealed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.envelope import enclose_old_outcome
from outlive.errors import CorruptRecord
from outlive.journal.immediate import run_immediate
from outlive.journal.seal import Seal
from outlive.journal.sealed_store import SealedStore
from outlive.store import Entry, Reading
from outlive.transactional import AsyncTransaction, Attempt, KeptOutcome, Transaction


class _SealedTransaction:
    """A transaction whose outcome is sealed on its way."""

    def __init__(self, below: Transaction, seal: Seal | None, place: bytes) -> None:
        self._below, self._seal, self._place = below, seal, place
        self.connection = below.connection

    @property
    def is_lost(self) -> bool:
        return self._below.is_lost

    def commit(self, outcome: bytes) -> None:
        self._below.commit(_closed(outcome, self._seal, self._place))

    def roll_back(self) -> None:
        self._below.roll_back()

    def abort(self) -> None:
        self._below.abort()


class _SealedAsyncTransaction:
    """The same for a body that awaits."""

    def __init__(self, below: AsyncTransaction, seal: Seal | None, place: bytes) -> None:
        self._below, self._seal, self._place = below, seal, place
        self.connection = below.connection

    @property
    def is_lost(self) -> bool:
        return self._below.is_lost

    async def commit(self, outcome: bytes) -> None:
        await self._below.commit(_closed(outcome, self._seal, self._place))

    async def roll_back(self) -> None:
        await self._below.roll_back()

    def abort(self) -> None:
        self._below.abort()


class SealedTransactional(SealedStore):
    """A sealed store in whose database users keep tables of their own."""

    @property
    def transaction_seconds_max(self) -> float:
        """How long a transaction may stay open at most."""
        return float(self.below.transaction_seconds_max)

    def begin(self, attempt: Attempt, seconds: float) -> Transaction:
        """A transaction for the body of a step, which has about so many seconds."""
        seal = run_immediate(self._seal_of(attempt))
        return _SealedTransaction(self.below.begin(attempt, seconds), seal, _place(attempt))

    async def begin_async(self, attempt: Attempt, seconds: float) -> AsyncTransaction:
        """The same for a body that awaits."""
        seal = await self._seal_of(attempt)
        below = await self.below.begin_async(attempt, seconds)
        return _SealedAsyncTransaction(below, seal, _place(attempt))

    async def outcome_of(self, attempt: Attempt) -> bytes | None:
        """What this attempt, or one before it, has committed."""
        outcome: bytes | None = await self.below.outcome_of(attempt)
        seal = await self._seal_of(attempt)
        if outcome is None or seal is None:
            return outcome
        opened = seal.open(outcome, _place(attempt))
        if opened is None:
            raise CorruptRecord(attempt.run_id, attempt.seq, "the seal of an outcome does not hold")
        return enclose_old_outcome(attempt.run_id, attempt.step, attempt.seq, opened)

    async def outcomes_of(self, run_id: str) -> Sequence[KeptOutcome]:
        """All that is kept of a run's steps; what does not open stays as it was found."""
        kept: Sequence[KeptOutcome] = await self.below.outcomes_of(run_id)
        sealing = await self._sealing_of(run_id) if kept else None
        if sealing is None or sealing.seal is None:
            return kept
        found = []
        for each in kept:
            attempt = Attempt(run_id=run_id, step=each.step, seq=0, epoch=0)
            body = sealing.seal.open(each.body, _place(attempt))
            shown = b"" if body is None else enclose_old_outcome(run_id, each.step, 0, body)
            found.append(KeptOutcome(step=each.step, body=shown))
        return found

    async def forget_outcomes(self, steps: Sequence[tuple[str, str]]) -> None:
        """The journals have these outcomes, of (run, step), themselves."""
        await self.below.forget_outcomes(steps)

    async def _seal_of(self, attempt: Attempt) -> Seal | None:
        sealing = await self._sealing_of(attempt.run_id)
        return None if sealing is None else sealing.seal


class SealedEnlisting(SealedStore):
    """A sealed store in whose database a run can begin in a transaction of the user's."""

    def enlist(self, connection: Any, entry: Entry) -> tuple[bool, Reading | None]:
        """Begin a run in the user's own transaction: whether it is in, else the run of that id."""
        sealed = run_immediate(self._close_enlisted(entry))
        is_in, there = self.below.enlist(connection, sealed)
        return is_in, None if there is None else run_immediate(self.open_reading(there))

    async def enlist_async(self, connection: Any, entry: Entry) -> tuple[bool, Reading | None]:
        """The same over a connection that awaits; one that does not is fine, too."""
        sealed = await self._close_enlisted(entry)
        is_in, there = await self.below.enlist_async(connection, sealed)
        return is_in, None if there is None else await self.open_reading(there)

    async def _close_enlisted(self, entry: Entry) -> Entry:
        (sealed,) = await self._close_all([entry])
        self._beginning.pop(sealed.run_id, None)  # whether it comes to be is the user's affair
        return sealed


def _closed(outcome: bytes, seal: Seal | None, place: bytes) -> bytes:
    return outcome if seal is None else seal.close(outcome, place)


def _place(attempt: Attempt) -> bytes:
    return f"outcome of {attempt.step}\0{attempt.run_id}".encode()
