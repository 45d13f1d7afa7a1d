"""Transactional steps on a sealed store: their outcomes are sealed before they are committed.

What a body writes into tables of its own is the user's, and stays as it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from outlive.errors import CorruptRecord
from outlive.journal.keeper import run_immediate
from outlive.journal.seal import data_key_id
from outlive.journal.sealed_rows import outcome_place
from outlive.journal.sealed_store import SealedStore
from outlive.transactional import AsyncTransaction, Attempt, Transaction

_Close = Callable[[bytes], bytes]


class SealedTransactional(SealedStore):
    """See ``Transactional``."""

    @property
    def transaction_seconds_max(self) -> float:
        """How long a transaction may stay open at most."""
        limit: float = self.below.transaction_seconds_max
        return limit

    def begin(self, attempt: Attempt, seconds: float) -> Transaction:
        """A transaction for the body of a step."""
        close = run_immediate(self._closer(attempt))
        return _Sealed(self.below.begin(attempt, seconds), close)

    async def begin_async(self, attempt: Attempt, seconds: float) -> AsyncTransaction:
        """The same for a body that awaits."""
        close = await self._closer(attempt)
        return _AsyncSealed(await self.below.begin_async(attempt, seconds), close)

    async def _closer(self, attempt: Attempt) -> _Close:
        sealing = await self._sealing_of(attempt.run_id)
        if sealing is None or sealing.seal is None:
            return bytes  # the run was begun without a key
        return partial(sealing.seal.close, place=outcome_place(attempt.run_id, attempt.step))

    async def outcome_of(self, attempt: Attempt) -> bytes | None:
        """What this attempt, or one before it, has committed."""
        found: bytes | None = await self.below.outcome_of(attempt)
        sealing = None if found is None else await self._sealing_of(attempt.run_id)
        if found is None or sealing is None or sealing.seal is None:
            return found
        key_id = data_key_id(found)
        seal = None if key_id is None else await self.keyring.seal(sealing.family, key_id)
        place = outcome_place(attempt.run_id, attempt.step)
        opened = None if seal is None else seal.open(found, place)
        if opened is None:
            raise CorruptRecord(attempt.run_id, attempt.seq, "the seal of an outcome does not hold")
        return opened

    async def forget_outcomes(self, steps: Sequence[tuple[str, str]]) -> None:
        """The journals have these outcomes themselves."""
        await self.below.forget_outcomes(steps)


class _Sealed:
    def __init__(self, own: Transaction, close: _Close) -> None:
        self.connection, self.abort, self.roll_back = own.connection, own.abort, own.roll_back
        self._own, self._close = own, close

    def commit(self, outcome: bytes) -> None:
        """See ``Transaction``."""
        self._own.commit(self._close(outcome))


class _AsyncSealed:
    def __init__(self, own: AsyncTransaction, close: _Close) -> None:
        self.connection, self.abort, self.roll_back = own.connection, own.abort, own.roll_back
        self._own, self._close = own, close

    async def commit(self, outcome: bytes) -> None:
        """See ``AsyncTransaction``."""
        await self._own.commit(self._close(outcome))
