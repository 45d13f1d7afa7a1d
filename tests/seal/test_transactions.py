"""Transactional steps on a sealed store: the outcome beside the journals is sealed, too."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import outlive
import outlive.stores.transactions
from outlive.app.open import open_app
from tests.seal.test_secrets import found_in

SECRET = "planted-00-xyzzyxyzzyxyzzy"


@outlive.step(transaction=True)
def book(connection: sqlite3.Connection, word: str) -> str:
    connection.execute("INSERT INTO bookings VALUES (1)")
    return word


@outlive.flow
async def booking(word: str) -> str:
    return await book(word)


async def test_its_outcome_is_sealed_and_comes_back(tmp_path: Path, key: str) -> None:
    """Forgotten by the journal, it is found beside it; the files say nothing."""
    url = f"sqlite:///{tmp_path / 'o.db'}"
    async with open_app(url, key=key) as app:
        with sqlite3.connect(tmp_path / "o.db") as db:
            db.execute("CREATE TABLE bookings (number INTEGER)")
        transactions: Any = app.store.transactions
        forgetting = transactions.forget_outcomes
        transactions.forget_outcomes = _keep

        assert SECRET == await (await app.start(booking, SECRET, id="r")).outcome()

        ((run_id, step, seq),) = db.execute("SELECT run_id, step, seq FROM outcomes").fetchall()
        attempt = outlive.stores.transactions.Attempt(run_id=run_id, step=step, seq=seq, epoch=1)
        kept = await transactions.outcome_of(attempt)
        assert kept is not None
        assert SECRET.encode() in kept
        assert set() == found_in(tmp_path)
        await forgetting([(run_id, step)])
        db.close()


async def _keep(steps: object) -> None:
    """As if the process had been killed before."""
