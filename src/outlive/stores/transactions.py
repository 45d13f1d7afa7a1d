"""The other seam: stores in whose database users have tables of their own.

A *transactional step* writes to them in a transaction that is begun for it, and that takes in the
step's outcome as well: both are there or neither, and the outcome says which. It is kept beside the
journals until the run's own journal has it. And a run may begin in a transaction of the user's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from outlive.errors import UsageError
from outlive.stores.seam import Store
from outlive.stores.types import Entry, Reading


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a transactional step, and the right by which it is made."""

    run_id: str
    step: str
    #: Of its intent: a later attempt of the step has a higher one.
    seq: int
    epoch: int


class KeptOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome that is kept beside its journal, as it was found."""

    step: str
    body: bytes


class Unsure(Exception):
    """Nobody knows whether a transaction was committed; ``outcome_of`` finds out."""


class NotInTime(Exception):
    """No transaction could be begun in time, and nothing of it has happened."""


class Transaction(Protocol):
    """A transaction of the user's, begun; it ends with one of these calls."""

    #: The user's to write through.
    connection: Any

    @property
    def is_lost(self) -> bool:
        """The database went away while it was open: what a body raises then is not its fault."""
        ...

    def commit(self, outcome: bytes) -> None:
        """Commit what was written, together with the step's outcome: both or neither.

        Raises:
            LeaseLost: another epoch has begun; nothing was committed.
            Unsure: the answer was lost.
            Exception: the database's own, or the user's mistake; nothing was committed.
        """
        ...

    def roll_back(self) -> None:
        """Leave nothing of it. Fine at any time, and twice."""
        ...

    def abort(self) -> None:
        """From any thread, at its time limit: it can't be committed any more."""
        ...


class AsyncTransaction(Protocol):
    """The same for a body that awaits."""

    connection: Any

    @property
    def is_lost(self) -> bool:
        """As that of ``Transaction``."""
        ...

    async def commit(self, outcome: bytes) -> None:
        """As that of ``Transaction``. To be left alone: a cancellation must not reach it."""
        ...

    async def roll_back(self) -> None:
        """Leave nothing of it. Fine at any time, and twice."""
        ...

    def abort(self) -> None:
        """From any thread, at its time limit: it can't be committed any more."""
        ...


@runtime_checkable
class Transactional(Protocol):
    """A store in whose database users keep tables of their own.

    Beside the journals it keeps *outcomes* of transactional steps, each from the user's commit
    until the journal has it. ``begin`` blocks, its twin is awaited.
    """

    #: How long a transaction may stay open at most.
    transaction_seconds_max: float

    def begin(self, attempt: Attempt, seconds: float) -> Transaction:
        """A transaction for the body of a step, which has about so many seconds.

        Raises:
            NotInTime: none could be had within as many; it may be asked for again.
        """
        ...

    async def begin_async(self, attempt: Attempt, seconds: float) -> AsyncTransaction:
        """The same for a body that awaits."""
        ...

    async def outcome_of(self, attempt: Attempt) -> bytes | None:
        """What this attempt, or one before it, has committed.

        None is final: whatever of them is still under way can't be committed any more.
        """
        ...

    async def outcomes_of(self, run_id: str) -> Sequence[KeptOutcome]:
        """All that is kept of a run's transactional steps, whoever put it there."""
        ...

    async def forget_outcomes(self, steps: Sequence[tuple[str, str]]) -> None:
        """The journals have these outcomes, of (run, step), themselves."""
        ...


@runtime_checkable
class Enlisting(Protocol):
    """A store in whose database a run can begin in a transaction of the user's."""

    def enlist(self, connection: Any, entry: Entry) -> tuple[bool, Reading | None]:
        """Begin a run in the user's own transaction: whether it is in, else the run of that id.

        Raises:
            UsageError: the connection leads elsewhere, or has no transaction.
        """
        ...

    async def enlist_async(self, connection: Any, entry: Entry) -> tuple[bool, Reading | None]:
        """The same over a connection that awaits; one that does not is fine, too."""
        ...


def enlisting(store: Store) -> Enlisting:
    """The store as one in which a run can begin so.

    Raises:
        UsageError: it can't; the message names the stores that can.
    """
    if isinstance(store, Enlisting):
        return store
    raise cannot_share("connection=")


def cannot_share(what: str) -> UsageError:
    """What somebody is told whose store has no transactions of theirs."""
    return UsageError(
        f"{what} needs a store that can share a transaction with you: sqlite:// or postgresql://"
    )
