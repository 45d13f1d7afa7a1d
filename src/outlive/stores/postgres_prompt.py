"""Commits that a run's own loop makes by itself, as long as the server answers at once.

Handing a batch to the keeper's thread and hearing of it costs more than a quick server needs to
commit it. So a lone run's loop may ask the server itself and wait for a moment. A network is quick
until it is gone: what is not answered within that moment is left to the keeper's thread, which
waits for the very same answer, and asks again if none comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from outlive.store import Entry
from outlive.stores.postgres_connection import PostgresConnection, Statement
from outlive.stores.postgres_errors import Refused, Unreachable
from outlive.stores.postgres_pool import Pool
from outlive.stores.postgres_wire import Row
from outlive.stores.tables import bytes_in

#: How long a loop waits for a server that was quick each time before.
MOMENT_SECONDS = 0.002
#: What fits into a socket at once.
_BYTES_MAX = 64 * 1024

#: Run, the seq to follow and the epoch: of all that commit only one can mean this place.
Place: TypeAlias = tuple[str, int, int]
#: Brings a statement that commits this batch to the server; its rows.
Ask: TypeAlias = Callable[[Sequence[Entry], Statement], list[Row]]


class TooLate(Exception):
    """It was not asked, or the answer is not there yet: the keeper's thread goes on from here."""


class Commits:
    """How commits get to the server."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        #: Asked and not answered.
        self._late: dict[Place, PostgresConnection] = {}

    def run(self, batch: Sequence[Entry], statement: Statement) -> list[Row]:
        """Ask, however long it takes; first of all for an answer that is on its way."""
        late = self._late.pop(_place(batch), None) if self._late else None
        if late is not None:
            try:
                rows = late.finish()
            except (Unreachable, Refused):
                self._pool.forget(late)
            else:
                self._pool.give_back("commit", late)
                return rows
        return self._pool.run("commit", statement)[0]

    def run_at_once(self, batch: Sequence[Entry], statement: Statement) -> list[Row]:
        """Ask, and wait for a moment.

        Raises:
            TooLate: give the same batch to ``run``.
        """
        db = self._pool.take_kept("commit") if _is_small(batch) else None
        if db is None:
            raise TooLate
        if not db.is_direct:  # a pooler's sessions need more than one statement
            self._pool.keep("commit", db)
            raise TooLate
        try:
            rows = db.run_at_once(statement, MOMENT_SECONDS)
        except (Unreachable, Refused) as error:
            self._pool.forget(db)
            raise TooLate from error
        if rows is None:
            self._late[_place(batch)] = db
            raise TooLate
        self._pool.give_back("commit", db)
        return rows

    def close(self) -> None:
        """Wait for no answer any more."""
        while self._late:
            self._late.popitem()[1].close()


def _place(batch: Sequence[Entry]) -> Place:
    entry = batch[0]
    return entry.run_id, entry.after, entry.epoch


def _is_small(batch: Sequence[Entry]) -> bool:
    return len(batch) == 1 and bytes_in(batch[0]) < _BYTES_MAX
