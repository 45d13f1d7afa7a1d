"""Known-bad variants of transactional steps."""

from __future__ import annotations

from inspect import getsource
from typing import Any

import pytest

from outlive.engine.definitions import NOT_HAPPENED
from outlive.engine.transactions import Transactions
from outlive.stores.sqlite.transactions import SQLiteTransaction, SQLiteTransactions


def outcome_outside_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """What the body wrote is committed first, and the outcome a moment later."""

    def commit(self: SQLiteTransactions, own: SQLiteTransaction, outcome: bytes) -> None:
        own._db.set_authorizer(None)
        own._is_over = True
        own.flush()
        self._failpoint("transaction.after")
        own._is_over = False
        own._db.execute("BEGIN IMMEDIATE")
        own.write(outcome)
        own.flush()
        own.roll_back()

    patch.setattr(SQLiteTransactions, "commit", commit)


def epoch_not_held(patch: pytest.MonkeyPatch) -> None:
    """Whoever has the run by now, the commit goes through."""
    real = SQLiteTransaction._ask

    def ask(self: SQLiteTransaction, sql: str, *values: Any) -> Any:
        if sql.startswith("SELECT epoch"):
            return (self._attempt.epoch,)
        return real(self, sql, *values)

    assert "SELECT epoch" in getsource(SQLiteTransaction), "the mutant must follow it"
    patch.setattr(SQLiteTransaction, "_ask", ask)


def outcome_not_looked_up(patch: pytest.MonkeyPatch) -> None:
    """What an earlier driver left open is attempted before anybody looks whether it was done."""

    async def look(self: Transactions, drive: Any, op: Any) -> object:
        return NOT_HAPPENED

    patch.setattr(Transactions, "look", look)
