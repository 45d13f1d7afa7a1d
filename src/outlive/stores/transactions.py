"""Transactions that a store shares with its users, whose tables are in the same database.

A *transactional step* writes to them in a transaction that is begun for it, and that takes in the
step's outcome as well: both are there or neither, and the outcome says which. It is kept beside the
journals until the run's own journal has it. And a run may begin in a transaction of the user's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from outlive.errors import UsageError
from outlive.stores.types import Conflict, Entry, Reading, Statement


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


class Transactional(Protocol):
    """The transactions that a store shares with its users, who keep tables in its database.

    Beside the journals it keeps *outcomes* of transactional steps, each from the user's commit
    until the journal has it. ``begin`` and ``enlist`` block, their twins are awaited.
    """

    #: How long a transaction may stay open at most.
    seconds_max: float

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

        None is final: an earlier attempt that is still under way can't be committed any more.
        """
        ...

    async def outcomes_of(self, run_id: str) -> Sequence[KeptOutcome]:
        """All outcomes of a run's transactional steps that are kept."""
        ...

    async def forget_outcomes(self, steps: Sequence[tuple[str, str]]) -> None:
        """Delete these outcomes, of (run, step): the journals have them."""
        ...

    def enlist(self, connection: Any, entry: Entry) -> tuple[bool, Reading | None]:
        """Begin a run in the user's own transaction: whether it is in, else the run of that id.

        Raises:
            UsageError: the connection leads elsewhere, or has no transaction.
        """
        ...

    async def enlist_async(self, connection: Any, entry: Entry) -> tuple[bool, Reading | None]:
        """The same over a connection that awaits; one that does not is fine, too."""
        ...

    async def commit_with(
        self, entry: Entry | None, statements: Sequence[Statement]
    ) -> Conflict | None:
        """Commit an entry together with these statements, which write rows of a table beside it.

        A refused entry executes none of them.

        Raises:
            UsageError: the store can't; the message names the stores that can.
        """
        ...


def cannot_share(what: str) -> UsageError:
    """The error for a store without ``transactions``."""
    return UsageError(
        f"{what} needs a store that can share a transaction with you: sqlite:// or postgresql://"
    )


def cannot_write_rows() -> UsageError:
    """The error of ``commit_with`` where rows can't, or must not, stand beside the journals."""
    return UsageError(
        "table=True needs a SQLite file or a PostgreSQL database that is not sealed: states "
        "would stand in the table as plain JSON; leave it out, or open it without a key"
    )
