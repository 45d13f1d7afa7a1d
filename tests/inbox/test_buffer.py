"""The inbox on every backend: each test names the items of the acceptance list that it shows."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from outlive.errors import UsageError, ValueRefused
from outlive.inbox import (
    AckStage,
    BufferFullError,
    JSONFilePersistence,
    PersistentActivityBuffer,
    PersistentActivityRecord,
    SQLitePersistence,
    is_terminal_state,
)
from tests.inbox.conftest import Backend, envelope


def ack(inbox: PersistentActivityBuffer, message: dict[str, Any], stage: int) -> Any:
    return inbox.ack({"ack_for_message_id": message["message_id"], "ack_stage": stage})


def test_what_was_recorded_returns_equal(backend: Backend) -> None:
    """Items 3, 6, 13, 14, 18, 29, 42: both directions are there for the next process."""
    inbox = PersistentActivityBuffer(persistence=backend())
    came, went = envelope("t1"), envelope("t2")
    inbox.record_incoming(came)
    inbox.record_outgoing(went)

    again = PersistentActivityBuffer(persistence=backend())
    found = again.get(came["message_id"])
    assert found is not None
    assert came == found.envelope
    assert b"\0\xff" == found.envelope["payload"]
    assert ("in", 0, 0, "") == (
        found.direction, found.ack_stage, found.error_code, found.ack_note,
    )  # fmt: skip
    assert found.ts_ms > 0
    assert ("t1", came["correlation_id"]) == (found.idempotency_token, found.correlation_id)
    assert 1 == found.state
    assert found == PersistentActivityRecord.from_dict(found.to_dict())
    other = again.get(went["message_id"])
    assert other is not None
    assert "out" == other.direction
    assert again.get("unknown") is None


def test_an_inbox_keeps_a_copy(inbox: PersistentActivityBuffer) -> None:
    """What the caller changes in its envelope later does not change the record."""
    message = envelope("t")
    inbox.record_incoming(message)
    message["payload"] = b"other"
    assert b"\0\xff" == inbox.recent()[0].envelope["payload"]


def test_acks_are_durable_and_never_go_back(backend: Backend) -> None:
    """Items 15, 16, 17: stages rise, the end is final, and every acknowledgement is kept."""
    inbox = PersistentActivityBuffer(persistence=backend())
    message = envelope("t")
    inbox.record_incoming(message)
    assert inbox.ack({"ack_for_message_id": "unknown", "ack_stage": 3}) is None
    for stage in (AckStage.READ, AckStage.RECEIVED, AckStage.FULFILLED, AckStage.FAILED):
        ack(inbox, message, stage)

    found = PersistentActivityBuffer(persistence=backend()).get(message["message_id"])
    assert found is not None
    assert AckStage.FULFILLED == found.ack_stage
    kept = inbox.get(message["message_id"])
    assert kept is not None
    assert [(2, True), (1, False), (3, True), (5, False)] == [
        (each.stage, each.counts) for each in kept.ack_history
    ]


@pytest.mark.parametrize("stage", [77, -1, "DONE", None, 2.0, True])
def test_what_is_no_stage_is_refused(inbox: PersistentActivityBuffer, stage: object) -> None:
    """Item 17: nothing is noted of an acknowledgement with an unknown stage."""
    message = envelope("t")
    inbox.record_incoming(message)
    with pytest.raises(UsageError, match="is not a stage; the stages are 0 UNSPECIFIED"):
        ack(inbox, message, stage)  # type: ignore[arg-type]  # that is the point
    assert [] == inbox.recent()[0].ack_history


def test_tokens_find_the_earliest_success(backend: Backend) -> None:
    """Items 19, 37, 41: a retry does not hide the attempt that was fulfilled."""
    inbox = PersistentActivityBuffer(persistence=backend())
    first, second, third = envelope("t"), envelope("t"), envelope("t")
    inbox.record_incoming(first)
    inbox.record_incoming(second)
    ack(inbox, second, AckStage.FULFILLED)
    inbox.record_incoming(third)
    ack(inbox, third, AckStage.FULFILLED)

    again = PersistentActivityBuffer(persistence=backend())
    found = again.get_by_idempotency_token("t")
    assert found is not None
    assert second["message_id"] == found.message_id
    assert again.get_by_idempotency_token("other") is None


def test_directions_are_apart(inbox: PersistentActivityBuffer) -> None:
    """Item 38: a token, and even an id, of a message that was sent is not that of one that came."""
    message = envelope("t")
    inbox.record_outgoing(message)
    assert "NEW" == inbox.begin("t").status
    inbox.record_incoming(message)
    came, went = inbox.get(message["message_id"], "in"), inbox.get(message["message_id"], "out")
    assert came is not None
    assert went is not None
    assert ("in", "out") == (came.direction, went.direction)


def test_without_a_token_the_sequence_number_counts(inbox: PersistentActivityBuffer) -> None:
    """Item 39: the second message of a producer with the same number is a duplicate."""
    first, second = envelope(sequence_number=7), envelope(sequence_number=7)
    for each in (first, second):
        each["idempotency_token"] = ""
    assert inbox.begin(first).is_new
    ack(inbox, first, AckStage.FULFILLED)
    assert "DUPLICATE" == inbox.begin(second).status


def test_begin_is_atomic(backend: Backend) -> None:
    """Item 36: of many threads one gets NEW, and once it has ended all get its outcome."""
    inbox = PersistentActivityBuffer(persistence=backend())
    answers: list[str] = []

    def ask() -> None:
        answers.append(inbox.begin("t").status)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ["ALREADY_IN_PROGRESS"] * 7 + ["NEW"] == sorted(answers)
    inbox.end("t", {"paid": 7})
    inbox.end("t", {"paid": 8})

    found = inbox.begin("t")
    assert ("DUPLICATE", AckStage.FULFILLED, {"paid": 7}) == (
        found.status, found.stage, found.outcome,
    )  # fmt: skip


def test_what_has_failed_may_be_begun_again_on_request(inbox: PersistentActivityBuffer) -> None:
    """Item 36: a failure is answered like any outcome, unless the caller asks to try again."""
    message = envelope("t")
    assert inbox.begin(message).is_new
    ack(inbox, message, AckStage.FAILED)
    assert ("DUPLICATE", AckStage.FAILED) == (inbox.begin("t").status, inbox.begin("t").stage)
    assert inbox.begin("t", again=True).is_new


def test_a_token_is_free_behind_its_window(backend: Backend) -> None:
    """Item 40: inside its window a token is never forgotten; behind it, it may be used again."""
    wide = PersistentActivityBuffer(persistence=backend())
    message = envelope("t")
    wide.begin(message)
    ack(wide, message, AckStage.FULFILLED)
    assert "DUPLICATE" == wide.begin("t").status

    narrow = PersistentActivityBuffer(persistence=backend(), dedup_window_s=0)
    threading.Event().wait(0.01)
    assert narrow.get_by_idempotency_token("t") is None
    assert narrow.begin(envelope("t")).is_new


def test_the_sample_of_the_document(inbox: PersistentActivityBuffer) -> None:
    """Items 34, 35: check, record, process, acknowledge, as it is written there."""
    processed: list[str] = []

    def handle(message: dict[str, Any]) -> Any:
        existing = inbox.get_by_idempotency_token(message["idempotency_token"])
        if existing:
            return existing
        inbox.record_incoming(message)
        processed.append(message["message_id"])
        return inbox.ack({"ack_for_message_id": message["message_id"], "ack_stage": 3})

    first, retry = envelope("t", correlation_id="c"), envelope("t", correlation_id="c")
    handle(first)
    assert first["message_id"] == handle(retry).message_id
    assert [first["message_id"]] == processed
    assert [first["message_id"]] == [r.message_id for r in inbox.find_by_correlation_id("c")]


def test_what_is_not_processed_is_found(backend: Backend) -> None:
    """Items 20, 23, 43, 44, 46: after a restart everything without a terminal stage is listed."""
    inbox = PersistentActivityBuffer(persistence=backend())
    came, read, done, went = (envelope(f"t{n}") for n in range(4))
    for each in (came, read, done):
        inbox.record_incoming(each)
    inbox.record_outgoing(went)
    ack(inbox, read, AckStage.READ)
    ack(inbox, done, AckStage.FULFILLED)

    again = PersistentActivityBuffer(persistence=backend())
    wanted = [came["message_id"], read["message_id"], went["message_id"]]
    assert wanted == [each.message_id for each in again.reconcile()]
    assert wanted == [each.message_id for each in again.unacked()]
    assert [went["message_id"]] == [each.message_id for each in again.reconcile("out")]
    seen: list[str] = []
    assert 3 == again.recover(lambda record: seen.append(record.message_id))
    assert wanted == seen


def test_late_acks_follow_the_policy(backend: Backend) -> None:
    """Item 48: without an ack in time it is TIMED_OUT; a later one is kept, or the truth."""
    inbox = PersistentActivityBuffer(persistence=backend())
    kept, true = envelope("a"), envelope("b")
    inbox.record_outgoing(kept)
    inbox.record_outgoing(true)
    assert [] == inbox.time_out()
    threading.Event().wait(0.01)
    assert 2 == len(inbox.time_out(0))
    late = ack(inbox, kept, AckStage.FULFILLED)
    assert AckStage.TIMED_OUT == late.ack_stage
    assert 3 == late.error_code

    if inbox.get(true["message_id"]):
        truthful = PersistentActivityBuffer(persistence=backend(), late_ack="truth")
        assert AckStage.FULFILLED == ack(truthful, true, AckStage.FULFILLED).ack_stage


def test_recent_has_the_newest_last(inbox: PersistentActivityBuffer) -> None:
    """Items 21, 68: with the number of the document, and with none."""
    sent = [envelope(f"t{n}") for n in range(5)]
    inbox.record_many(sent)
    names = [each["message_id"] for each in sent]
    assert names == [each.message_id for each in inbox.recent(n=100)]
    assert names[-2:] == [each.message_id for each in inbox.recent(2)]
    assert [] == inbox.recent(0)
    inbox.clear()
    assert [] == inbox.recent()


def test_a_redelivered_message_is_counted(backend: Backend) -> None:
    """Items 27, 65: the same id again changes nothing, and wedges nothing."""
    inbox = PersistentActivityBuffer(persistence=backend())
    message = envelope("t")
    inbox.record_incoming(message)
    ack(inbox, message, AckStage.READ)
    assert AckStage.READ == inbox.record_incoming(message).ack_stage
    inbox.record_incoming(envelope("u"))
    inbox.flush()

    facts = PersistentActivityBuffer(persistence=backend()).get_statistics()
    assert 2 == facts["total_entries"]
    assert (1, 2) == (inbox.get_statistics()["duplicate_count"], facts["pending_count"])


def test_a_full_inbox_refuses_and_loses_nothing(backend: Backend) -> None:
    """Items 25, 26: the error has the facts, and a restart finds all of a full inbox."""
    inbox = PersistentActivityBuffer(persistence=backend(), max_items=3)
    sent = [envelope(f"t{n}") for n in range(3)]
    inbox.record_many(sent)
    with pytest.raises(BufferFullError, match="is full") as refused:
        inbox.record_incoming(envelope("t3"))
    assert (3, 3, 1) == (
        refused.value.current_size, refused.value.max_size, refused.value.error_code,
    )  # fmt: skip
    inbox.record_incoming(sent[0])  # it is here already

    again = PersistentActivityBuffer(persistence=backend(), max_items=3)
    assert 3 == len(again)


def test_record_many_is_all_or_nothing(inbox: PersistentActivityBuffer) -> None:
    """One refused message of many refuses all of them."""
    with pytest.raises(UsageError, match="message_id"):
        inbox.record_many([envelope("a"), {"payload": b""}])
    assert 0 == len(inbox)


def test_the_oldest_make_room_if_they_may(inbox: PersistentActivityBuffer) -> None:
    """Items 12, 40: with ``drop_oldest`` only what has ended goes, never inside its window."""
    rules: dict[str, Any] = {"max_items": 2, "overflow": "drop_oldest"}
    backend = inbox._persistence
    wide = PersistentActivityBuffer(persistence=backend, **rules)
    first, second = envelope("a"), envelope("b")
    wide.record_many([first, second])
    ack(wide, first, AckStage.FULFILLED)
    with pytest.raises(BufferFullError):
        wide.record_incoming(envelope("c"))
    narrow = PersistentActivityBuffer(persistence=backend, dedup_window_s=0, **rules)
    threading.Event().wait(0.01)
    narrow.record_incoming(envelope("c"))
    assert narrow.get(first["message_id"]) is None
    assert narrow.get(second["message_id"]) is not None


def test_retention_forgets_only_what_ended_and_is_old(inbox: PersistentActivityBuffer) -> None:
    """Item 63: what is under way stays, and so does a token inside its window."""
    done, open_one = envelope("a"), envelope("b")
    inbox.record_many([done, open_one])
    ack(inbox, done, AckStage.FULFILLED)
    threading.Event().wait(0.01)
    backend = inbox._persistence
    wide = PersistentActivityBuffer(persistence=backend, retention_hours=0)
    assert 0 == wide.cleanup()
    narrow = PersistentActivityBuffer(persistence=backend, retention_hours=0, dedup_window_s=0)
    assert 1 == narrow.cleanup()
    assert [open_one["message_id"]] == [each.message_id for each in narrow.recent()]


def test_four_fifths_are_a_warning(
    inbox: PersistentActivityBuffer, caplog: pytest.LogCaptureFixture
) -> None:
    """Item 65: from 80 % on, once, in the log and in the statistics."""
    small = PersistentActivityBuffer(persistence=inbox._persistence, max_items=10)
    with caplog.at_level(logging.WARNING, "outlive.inbox"):
        small.record_many([envelope(str(n)) for n in range(7)])
        assert not small.get_statistics()["warning"]
        small.record_incoming(envelope("7"))
        small.record_incoming(envelope("8"))
    assert small.get_statistics()["warning"]
    assert ["the inbox has 8 of at most 10 messages; when it is full, new ones are refused"] == [
        record.getMessage() for record in caplog.records
    ]


@pytest.mark.parametrize(
    "message", [{}, {"message_id": None}, {"message_id": ""}, {"message_id": 7}, [], None]
)
def test_a_message_needs_an_id(inbox: PersistentActivityBuffer, message: Any) -> None:
    """Item 28: what has none is refused, and no record is made of it."""
    with pytest.raises(UsageError, match="envelope"):
        inbox.record_incoming(message)
    assert 0 == len(inbox)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "x" * 4000, "\0", "ключ"])
def test_hostile_ids_are_text_like_any(inbox: PersistentActivityBuffer, name: str) -> None:
    """Item 74: an id is never a path."""
    inbox.record_incoming({**envelope("t"), "message_id": name})
    found = inbox.get(name)
    assert found is not None
    assert name == found.message_id


def test_what_can_not_be_stored_is_refused(inbox: PersistentActivityBuffer) -> None:
    """An envelope with an object in it is refused, and nothing of it is kept."""
    with pytest.raises(ValueRefused, match="can't be stored"):
        inbox.record_incoming({**envelope("t"), "client": object()})
    assert 0 == len(inbox)


def test_states_and_the_context_manager(backend: Backend) -> None:
    """Items 22, 24, 69, 70: the envelope's own state changes durably; ``with`` saves at its end."""
    message = envelope("t")
    with PersistentActivityBuffer(persistence=backend()) as inbox:
        inbox.record_incoming(message)
        changed = inbox.update_state(message["message_id"], 4)
        assert changed is not None
        assert is_terminal_state(changed.state)
        assert inbox.update_state("unknown", 4) is None
    found = PersistentActivityBuffer(persistence=backend()).get(message["message_id"])
    assert found is not None
    assert 4 == found.state
    assert [False, False, False, True, True, True, True] == list(
        map(is_terminal_state, range(1, 8))
    )


def test_internals_that_others_touch(inbox: PersistentActivityBuffer) -> None:
    """Item 30: what SW4RM's own code and tests read is there."""
    message = envelope("t")
    inbox.record_outgoing(message)
    assert [message["message_id"]] == list(inbox._by_id)
    assert [message["message_id"]] == list(inbox._order)
    assert inbox._dirty is False
    assert inbox._persistence is not None
    inbox._by_id[message["message_id"]].ack(AckStage.READ)
    assert [AckStage.READ] == [each.ack_stage for each in inbox.recent()]


async def test_plain_verbs_work_inside_a_loop(inbox: PersistentActivityBuffer) -> None:
    """Item 32: from a coroutine, and from threads at the same time."""
    sent = [envelope(f"t{n}") for n in range(20)]
    inbox.record_incoming(sent[0])
    await asyncio.gather(*(asyncio.to_thread(inbox.record_incoming, each) for each in sent[1:]))
    assert {each["message_id"] for each in sent} == set(inbox._by_id)


@pytest.mark.parametrize(
    "options",
    [
        {"max_items": 0}, {"max_items": "9"}, {"dedup_window_s": -1}, {"retention_hours": "7"},
        {"overflow": "panic"}, {"late_ack": "never"}, {"cleanup_interval": None},
    ],
)  # fmt: skip
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """Item 12: each by its name."""
    (name,) = options
    backend = JSONFilePersistence(tmp_path / "a.json")
    with pytest.raises(UsageError, match=name):
        PersistentActivityBuffer(persistence=backend, **options)


def test_no_payload_on_standard_output(
    inbox: PersistentActivityBuffer, capfd: pytest.CaptureFixture[str]
) -> None:
    """Item 74: nothing is printed."""
    inbox.record_incoming(envelope("t"))
    inbox.flush()
    assert ("", "") == capfd.readouterr()


async def test_health(tmp_path: Path) -> None:
    """Item 64: healthy, or not and why."""
    good = SQLitePersistence(tmp_path / "a.db")
    assert (await good.health_check())["healthy"]
    good.close()
    (tmp_path / "b.json").write_text("{")
    bad = await JSONFilePersistence(tmp_path / "b.json").health_check()
    assert not bad["healthy"]
    assert "damaged" in bad["problems"][0]


@pytest.mark.parametrize("backend", ["json", "sqlite", "postgres"], indirect=True)
def test_two_writers_lose_nothing(backend: Backend) -> None:
    """Items 8, 9, 40, 67: two inboxes on one place see each other's messages and tokens."""
    one, two = (PersistentActivityBuffer(persistence=backend()) for _ in range(2))
    for n in range(5):
        one.record_incoming(envelope(f"a{n}"))
        two.record_incoming(envelope(f"b{n}"))
    one.flush()
    two.flush()
    one.record_incoming(envelope("c"))
    assert 11 == len(one) == len(two) == len(PersistentActivityBuffer(persistence=backend()))
    assert ["NEW", "ALREADY_IN_PROGRESS"] == [each.begin("a0").status for each in (one, two)]
