"""The rules that transactional steps rest on, one small test each."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from outlive.errors import LeaseLost
from outlive.ports import Ports
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.transactions import Attempt
from outlive.testing.suite.entries import entry, held
from tests.harness.places import SQLitePlace
from tests.transactions.booking import booked, expected, recover, spawn

ATTEMPT = Attempt(run_id="r", step="0/book#1", seq=2, epoch=1)


class Died(BaseException):
    """Stands for the end of the process."""


def writes_come_with_their_outcome(folder: Path) -> None:
    """Whoever sees what a body wrote can look up its outcome."""

    def die(moment: str) -> None:
        if moment == "transaction.after":
            raise Died

    place, store = _place(folder, Ports(failpoint=die))
    own = store.transactions.begin(ATTEMPT, 5)
    own.connection.execute(place.insert(), ("a flight",))
    with pytest.raises(Died):
        own.commit(b"done")
    own.roll_back()

    assert ["a flight"] == place.rows()
    assert b"done" == asyncio.run(store.transactions.outcome_of(ATTEMPT))
    asyncio.run(store.close())


def a_lost_run_commits_nothing(folder: Path) -> None:
    """A driver whose run was taken over can't commit what it wrote."""
    place, store = _place(folder, Ports())
    asyncio.run(store.commit([entry("r", 1, epoch=2, lease="take", worker="two")]))
    own = store.transactions.begin(ATTEMPT, 5)
    own.connection.execute(place.insert(), ("a flight",))
    with pytest.raises(LeaseLost):
        own.commit(b"done")

    assert [] == place.rows()
    asyncio.run(store.close())


def what_was_committed_is_looked_up(folder: Path) -> None:
    """Killed between the two commits, a step is not attempted again."""
    place = SQLitePlace(f"sqlite:///{folder}/o.db")
    child = spawn(place, "t", "transaction.after", 1)
    child.join(30)
    child.close()

    asyncio.run(asyncio.wait_for(recover(place, ["t"]), 8))

    assert expected(["t"]) == booked(place)


def _place(folder: Path, ports: Ports) -> tuple[SQLitePlace, Any]:
    place = SQLitePlace(f"sqlite:///{folder}/o.db")
    store = SQLiteStore(place.path, ports=ports)
    asyncio.run(store.commit([held("r", "one")]))
    return place, store


KILLERS = {
    "outcome outside the transaction": writes_come_with_their_outcome,
    "epoch not held": a_lost_run_commits_nothing,
    "outcome not looked up": what_was_committed_is_looked_up,
}
