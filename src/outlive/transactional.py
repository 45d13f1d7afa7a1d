"""The other seam: stores in whose database users have tables of their own.

A run may begin in a transaction of the user's: it is there if that commits, and only then.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from outlive.errors import UsageError
from outlive.store import Entry, Reading, Store


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
