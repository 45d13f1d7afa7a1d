"""The real package: its code over our backends and our inbox, its weaknesses, its files."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sw4rm import constants, persistence
from sw4rm import worktree_state as their_worktree
from sw4rm.ack_integration import ACKLifecycleManager, MessageProcessor
from sw4rm.activity_buffer import PersistentActivityBuffer as TheirBuffer

from outlive.errors import WrongVersion
from outlive.inbox import (
    AckStage,
    ActivityBufferLoadError,
    JSONFilePersistence,
    PersistentActivityBuffer,
    SQLitePersistence,
)
from tests.inbox.conftest import envelope

OURS: list[Callable[[Path], Any]] = [
    lambda folder: JSONFilePersistence(folder / "a.json"),
    lambda folder: SQLitePersistence(folder / "a.db"),
]
THEIRS: list[Callable[[Path], Any]] = [
    lambda folder: persistence.JSONFilePersistence(str(folder / "b.json")),
    lambda folder: persistence.SQLitePersistence(str(folder / "b.db")),
]


class Router:
    """Accepts, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.sent: list[dict[str, Any]] = []
        self._fails = fails

    def send_message(self, message: dict[str, Any]) -> Any:
        if self._fails:
            raise ConnectionError("no route")
        self.sent.append(message)
        return type("Response", (), {"accepted": True, "reason": ""})()


@pytest.mark.parametrize("make", OURS)
def test_their_buffer_over_our_backend(
    make: Callable[[Path], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Items 1, 7: their own envelopes, which their backends can't save, survive."""
    sent = [envelope(f"t{n}") for n in range(3)]
    theirs = TheirBuffer(persistence=make(tmp_path))
    for each in sent:
        theirs.record_incoming(each)
    theirs.ack({"ack_for_message_id": sent[1]["message_id"], "ack_stage": 3})
    theirs.flush()
    assert theirs._dirty is False

    again = TheirBuffer(persistence=make(tmp_path))
    assert [each["message_id"] for each in sent] == list(again._order)
    assert [0, 3, 0] == [each.ack_stage for each in again._by_id.values()]
    assert sent == [each.envelope for each in again._by_id.values()]
    assert "Failed" not in capsys.readouterr().out


@pytest.mark.parametrize("make", OURS)
def test_two_of_their_buffers_do_not_delete_each_others_records(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    """Items 7, 9; weakness 15: the last flush does not win."""
    one, two = (TheirBuffer(persistence=make(tmp_path)) for _ in range(2))
    one.record_incoming(envelope("a"))
    two.record_incoming(envelope("b"))
    one.flush()
    two.flush()
    assert 2 == len(TheirBuffer(persistence=make(tmp_path))._by_id)
    two.clear()
    assert 0 == len(TheirBuffer(persistence=make(tmp_path))._by_id)


@pytest.mark.parametrize("make", OURS)
def test_their_lifecycle_over_our_inbox(make: Callable[[Path], Any], tmp_path: Path) -> None:
    """Item 33: sending, failing, processing and acknowledging by their code."""
    inbox = PersistentActivityBuffer(persistence=make(tmp_path))
    manager = ACKLifecycleManager(Router(), inbox, "agent-1")
    sent = envelope("out")
    assert manager.send_message_with_ack(sent).accepted
    assert AckStage.FULFILLED == inbox._by_id[sent["message_id"]].ack_stage

    handled: list[str] = []
    processor = MessageProcessor(manager)
    processor.set_default_handler(lambda message: handled.append(message["message_id"]))
    came = envelope("in")
    assert processor.process_message(came).success
    assert [came["message_id"]] == handled
    assert came == inbox._by_id[came["message_id"]].envelope
    again = PersistentActivityBuffer(persistence=make(tmp_path))
    assert 5 == len(again)  # the message that was sent, the one that came, three acks


def test_a_failed_send_is_failed(tmp_path: Path) -> None:
    """Weakness 13: their number for it, which is an agent's state, is understood."""
    inbox = PersistentActivityBuffer(persistence=JSONFilePersistence(tmp_path / "a.json"))
    sent = envelope("out")
    ACKLifecycleManager(Router(fails=True), inbox, "agent-1").send_message_with_ack(sent)
    assert AckStage.FAILED == inbox._by_id[sent["message_id"]].ack_stage
    assert 10 == constants.FAILED
    theirs = TheirBuffer(persistence=persistence.JSONFilePersistence(str(tmp_path / "b.json")))
    ACKLifecycleManager(Router(fails=True), theirs, "agent-1").send_message_with_ack(sent)
    assert 10 == theirs._by_id[sent["message_id"]].ack_stage


@pytest.mark.parametrize("make", THEIRS)
def test_theirs_can_not_save_their_own_envelopes(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    """Weaknesses 1, 2, 6: what ours keeps is lost there, and flush says nothing."""
    theirs = TheirBuffer(persistence=make(tmp_path))
    theirs.record_incoming(envelope("t"))
    theirs.flush()
    assert 0 == len(TheirBuffer(persistence=make(tmp_path))._by_id)
    with PersistentActivityBuffer(persistence=OURS[0](tmp_path)) as ours:
        ours.record_incoming(envelope("t"))
    assert 1 == len(PersistentActivityBuffer(persistence=OURS[0](tmp_path)))


def test_a_save_that_fails_raises(tmp_path: Path) -> None:
    """Item 22; weakness 2: nobody takes for durable what is not."""

    class Full(persistence.JSONFilePersistence):
        def save_records(self, records: Any, order: Any) -> None:
            raise OSError("no space left")

    ours = PersistentActivityBuffer(persistence=Full(str(tmp_path / "a.json")))
    with pytest.raises(OSError, match="no space left"):
        ours.record_incoming(envelope("t"))
    assert 0 == len(ours)
    theirs = TheirBuffer(persistence=Full(str(tmp_path / "b.json")))
    theirs.record_incoming(envelope("t"))
    theirs.flush()  # as if all were well


def test_damage_is_loud_and_put_aside(tmp_path: Path) -> None:
    """Item 4; weakness 3: a damaged file raises and is kept; ``empty`` on request."""
    path = tmp_path / "a.json"
    path.write_text('{"records": {"m"')
    with pytest.raises(ActivityBufferLoadError, match="is damaged"):
        PersistentActivityBuffer(persistence=JSONFilePersistence(path))
    empty = JSONFilePersistence(path, load_failure_mode="empty")
    inbox = PersistentActivityBuffer(persistence=empty)
    inbox.record_incoming(envelope("t"))
    inbox.flush()
    assert '{"records": {"m"' == (tmp_path / "a.json.damaged").read_text()
    assert 1 == len(inbox)


def test_another_version_is_refused(tmp_path: Path) -> None:
    """Item 11; weakness 17: by its name."""
    path = tmp_path / "a.json"
    path.write_text('{"records": {}, "order": [], "version": "2.0"}')
    with pytest.raises(WrongVersion, match=r"'2\.0'"):
        PersistentActivityBuffer(persistence=JSONFilePersistence(path))


def test_files_of_one_stem_do_not_collide(tmp_path: Path) -> None:
    """Item 10; weakness 15: state.json and state.wt have temporary files of their own."""
    one = PersistentActivityBuffer(persistence=JSONFilePersistence(tmp_path / "state.json"))
    two = PersistentActivityBuffer(persistence=JSONFilePersistence(tmp_path / "state.wt"))
    one.record_incoming(envelope("a"))
    two.record_many([envelope("b"), envelope("c")])
    one.flush()
    two.flush()
    assert [1, 2] == [len(json.loads((tmp_path / name).read_text())["records"])
                      for name in ("state.json", "state.wt")]  # fmt: skip


def test_a_retry_does_not_hide_the_success(tmp_path: Path) -> None:
    """Item 37; weakness 9: theirs forgets it, ours keeps it."""
    first, second = envelope("t"), envelope("t")
    found = []
    for buffer in (
        TheirBuffer(persistence=THEIRS[0](tmp_path)),
        PersistentActivityBuffer(persistence=OURS[0](tmp_path)),
    ):
        buffer.record_incoming(first)
        buffer.ack({"ack_for_message_id": first["message_id"], "ack_stage": 3})
        buffer.record_incoming(second)
        record = buffer.get_by_idempotency_token("t")
        assert record is not None
        found.append(record.message_id)
    assert [second["message_id"], first["message_id"]] == found


def test_our_files_are_read_by_theirs_and_back(tmp_path: Path) -> None:
    """Items 2, 3, 75: the JSON file is theirs; what they wrote is read, both forms of bytes."""
    inbox = PersistentActivityBuffer(persistence=JSONFilePersistence(tmp_path / "a.json"))
    message = envelope("t")
    inbox.record_incoming(message)
    inbox.flush()
    records, order = persistence.JSONFilePersistence(str(tmp_path / "a.json")).load_records()
    assert [message["message_id"]] == order
    assert message["payload"] == records[order[0]]["envelope"]["payload"]

    old = {**message, "payload": "AP8=", "audit_proof": "", "_payload_is_b64": True}
    record = {"message_id": "m", "direction": "in", "envelope": {**old, "message_id": "m"}}
    record |= {"ts_ms": 1, "ack_stage": 1, "error_code": 0, "ack_note": ""}
    content = {"records": {"m": record}, "order": ["m"], "version": "1.0"}
    (tmp_path / "old.json").write_text(json.dumps(content))
    found = PersistentActivityBuffer(persistence=JSONFilePersistence(tmp_path / "old.json")).get(
        "m"
    )
    assert found is not None
    assert (b"\0\xff", "") == (found.envelope["payload"], found.envelope["audit_proof"])


def test_their_table_is_taken_over(tmp_path: Path) -> None:
    """Items 5, 75: a SQLite file of theirs opens with all its messages, once."""
    path = tmp_path / "a.db"
    theirs = TheirBuffer(persistence=persistence.SQLitePersistence(str(path)))
    theirs.record_incoming({"message_id": "m", "idempotency_token": "t", "state": 1})
    theirs.ack({"ack_for_message_id": "m", "ack_stage": 3})
    theirs.flush()
    for _ in range(2):
        place = SQLitePersistence(path)
        inbox = PersistentActivityBuffer(persistence=place)
        assert 1 == len(inbox)
        assert "DUPLICATE" == inbox.begin("t").status
        place.close()


def test_a_damaged_row_is_loud(tmp_path: Path) -> None:
    """Weakness 3: no envelope becomes empty in silence."""
    path = tmp_path / "a.db"
    theirs = TheirBuffer(persistence=persistence.SQLitePersistence(str(path)))
    theirs.record_incoming({"message_id": "m"})
    theirs.flush()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE activity_records SET envelope_json = '{'")
    db.close()
    with pytest.raises(ActivityBufferLoadError, match="activity_records is damaged"):
        PersistentActivityBuffer(persistence=SQLitePersistence(path))


def test_files_are_private(tmp_path: Path) -> None:
    """Item 72: files 0600, folders 0700, whatever the umask says."""
    before = os.umask(0)
    try:
        folder = tmp_path / "new"
        for make in OURS:
            place = make(folder)
            inbox = PersistentActivityBuffer(persistence=place)
            inbox.record_incoming(envelope("t"))
            inbox.close()
    finally:
        os.umask(before)
    assert 0o700 == stat.S_IMODE(folder.stat().st_mode)
    for path in folder.rglob("*"):
        assert (0o700 if path.is_dir() else 0o600) == stat.S_IMODE(path.stat().st_mode), path


def test_a_sealed_inbox_has_no_plaintext(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items 71, 73: with a key nothing of a message stands in the files."""
    monkeypatch.setenv("OUTLIVE_KEY", "MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTE=")
    place = SQLitePersistence(tmp_path / "a.db")
    inbox = PersistentActivityBuffer(persistence=place)
    inbox.record_incoming({**envelope("topsecret-token"), "payload": b"topsecret"})
    assert b"topsecret" == inbox.recent()[0].envelope["payload"]
    found = [path.name for path in tmp_path.iterdir()
             if path.is_file() and b"topsecret" in path.read_bytes()]  # fmt: skip
    assert [] == found
    place.close()


def test_theirs_is_what_the_facts_say(tmp_path: Path) -> None:
    """Weaknesses 4, 5, 14, 18: the stock package has them."""
    theirs = TheirBuffer(persistence=THEIRS[0](tmp_path), max_items=1)
    theirs.record_incoming({"message_id": "m"})
    theirs.ack({"ack_for_message_id": "m", "ack_stage": 77})
    assert 77 == theirs._by_id["m"].ack_stage
    theirs.flush()
    assert 0 == len(TheirBuffer(persistence=THEIRS[0](tmp_path), max_items=1)._by_id)
    with pytest.raises(TypeError):
        theirs.recent()
    worktree = their_worktree.PersistentWorktreeState(
        persistence=their_worktree.WorktreePersistence(str(tmp_path / "w.json"))
    )
    worktree.bind("org/repo", "main")
    again = their_worktree.PersistentWorktreeState(
        persistence=their_worktree.WorktreePersistence(str(tmp_path / "w.json"))
    )
    assert (True, "UNBOUND") == (again.is_bound(), again.state)
