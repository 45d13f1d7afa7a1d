"""Messages that start runs, and messages that move between programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sw4rm.activity_buffer import PersistentActivityBuffer as TheirBuffer
from sw4rm.persistence import JSONFilePersistence as TheirJSON
from sw4rm.persistence import SQLitePersistence as TheirSQLite

import outlive
from outlive.errors import UsageError
from outlive.inbox import (
    AckStage,
    JSONFilePersistence,
    PersistentActivityBuffer,
    StorePersistence,
)
from tests.inbox.conftest import envelope
from tests.inbox.flows import payment


def order(path: Path, amount: int = 7, token: str = "t") -> dict[str, Any]:
    return envelope(token) | {"amount": amount, "path": str(path / "payments")}


async def test_a_token_starts_one_run(tmp_path: Path) -> None:
    """Items 44, 47: effect done, ACK lost: the message that comes again gets the same outcome."""
    async with outlive.open(f"sqlite:///{tmp_path}/store.db") as app:
        inbox = PersistentActivityBuffer(persistence=StorePersistence(app))
        for _ in range(3):
            handle = await inbox.deliver(payment, order(tmp_path))
            assert 7 == await handle
        assert "7\n" == (tmp_path / "payments").read_text()
        await inbox.settle()
        assert {AckStage.FULFILLED} == {each.ack_stage for each in inbox.recent()}
        assert [] == inbox.reconcile()
        assert "DUPLICATE" == inbox.begin("t").status


async def test_a_failed_run_fails_its_message(tmp_path: Path) -> None:
    """Item 17: the stage of the message follows from how its run ended."""
    async with outlive.open(f"sqlite:///{tmp_path}/store.db") as app:
        inbox = PersistentActivityBuffer(persistence=JSONFilePersistence(tmp_path / "a.json"))
        handle = await inbox.deliver(payment, order(tmp_path, -1), app=app)
        with pytest.raises(outlive.errors.OutliveError):
            await handle
        await inbox.settle(app)
        assert [AckStage.FAILED] == [each.ack_stage for each in inbox.recent()]


async def test_an_inbox_needs_an_app_to_deliver(tmp_path: Path) -> None:
    """The error says how to give one."""
    inbox = PersistentActivityBuffer(persistence=JSONFilePersistence(tmp_path / "a.json"))
    with pytest.raises(UsageError, match="which app"):
        await inbox.deliver(payment, order(tmp_path))


@pytest.mark.parametrize("name", ["out.json", "out.sqlite3"])
def test_messages_move_to_theirs_and_back(tmp_path: Path, name: str) -> None:
    """Item 75: what is exported loads in the real package, and comes back equal."""
    inbox = PersistentActivityBuffer(persistence=JSONFilePersistence(tmp_path / "a.json"))
    sent = [envelope("a"), envelope("b")]
    inbox.record_many(sent)
    inbox.ack({"ack_for_message_id": sent[0]["message_id"], "ack_stage": 3})
    assert 2 == inbox.export_records(tmp_path / name)

    backend = (TheirJSON if name.endswith("json") else TheirSQLite)(str(tmp_path / name))
    theirs = TheirBuffer(persistence=backend)
    assert [each["message_id"] for each in sent] == list(theirs._order)
    back = PersistentActivityBuffer(persistence=JSONFilePersistence(tmp_path / "b.json"))
    assert 2 == back.import_records(tmp_path / name)
    assert 0 == back.import_records(tmp_path / name)
    assert inbox.recent() == back.recent()
