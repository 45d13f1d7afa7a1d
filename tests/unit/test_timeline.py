"""The timeline: a journal as rows, without any flow's code."""

from __future__ import annotations

from outlive.model.events import Answered, AttemptFailed, ChapterBegan, Claimed, TimerFired
from outlive.model.kinds import KINDS
from outlive.views.timeline import doubts, split_id, timeline
from outlive.views.values import read_value
from tests.unit.every_event import EVERY_EVENT, FAULT, STARTED, encoded


def test_every_kind_of_event_has_a_row() -> None:
    """Seqs count up, times never fall, each row says what happened."""
    rows = timeline("r", EVERY_EVENT)

    assert set(KINDS) == {type(event) for event in EVERY_EVENT}
    assert list(range(1, len(EVERY_EVENT) + 1)) == [row.seq for row in rows]
    assert sorted(row.at for row in rows) == [row.at for row in rows]
    assert [
        "started", "claimed", "done", "raised", "attempt failed", "intended", "in doubt", "parked",
        "claimed", "mail read", "done", "intended", "raised", "timer fired", "parked",
        "quarantined", "completed", "failed", "key held", "key kept", "marked", "signal", "replied",
        "taken",
        "asked", "answered", "closed", "child intended", "child started", "child failed",
        "cancel asked",
        "deadline passed", "undoing", "intended", "cancelled", "parent told",
        "patched", "retried", "fork made", "forked", "chapter", "tried again",
        "published", "tagged", "streamed", "stream reset", "checkpoints began",
        "saved",
        "restored", "rolled back", "failed", "cleared",
            "log began", "appended", "noted", "dropped",
    ] == [row.what for row in rows]  # fmt: skip


def test_rows_tell_place_attempt_and_duration() -> None:
    """Branch and step are taken apart; an attempt's time runs from its intent."""
    rows = timeline("r", EVERY_EVENT)

    assert ("0.1", "search#2", 1, None) == (
        rows[2].branch,
        rows[2].step,
        rows[2].attempt,
        rows[2].duration_ms,
    )
    assert (20, 40, 5) == (rows[6].duration_ms, rows[10].duration_ms, rows[12].duration_ms)
    assert ("told by a human", "nobody knows, told by its check") == (rows[10].note, rows[12].note)
    assert "by worker w2, epoch 2, its last driver is dead" == rows[8].note
    assert ("until there is mail", 5_000_000) == (rows[7].note, rows[14].due_at)


def test_rows_tell_who_asked_and_who_answered() -> None:
    """What people and other runs said, and how long it took them."""
    rows = {row.what: row for row in timeline("r", EVERY_EVENT)}

    assert ("go", {"a": 1}, "id s1") == (
        rows["signal"].step,
        read_value(rows["signal"].value or b""),
        rows["signal"].note,
    )
    assert "How many? (for ann)" == rows["asked"].note
    assert (15, "by bob", 7) == (
        rows["answered"].duration_ms,
        rows["answered"].note,
        read_value(rows["answered"].value or b""),
    )
    assert "calls run r.c of flow pack" == rows["child intended"].note
    assert ("r.c", 10, FAULT) == (
        rows["child failed"].child,
        rows["child failed"].duration_ms,
        rows["child failed"].error,
    )
    assert "by ann" == rows["cancel asked"].note
    assert ("0", "undo pay#1") == split_id("undo:0/pay#1")


def test_rows_count_from_where_the_journal_begins() -> None:
    """What came before a chapter may be gone; the others keep their seqs."""
    begin = ChapterBegan(5, 90, 1, 3, STARTED, encoded({}))
    rows = timeline("r", [begin, TimerFired(7, "0/sleep#1")])

    assert [(90, "chapter"), (91, "timer fired")] == [(row.seq, row.what) for row in rows]


def test_an_answer_that_is_no_json_is_shown_as_text() -> None:
    """A view never fails over a value."""
    for raw, shown in ((b"{", "{"), (b"1" * 30, "1" * 30)):
        (row,) = timeline("r", [Answered(1, "0/ask#1", raw, "")])
        assert shown == read_value(row.value or b"")


def test_ids_without_a_branch_stay_whole() -> None:
    """A place is what follows the first slash."""
    assert ("0.1", "a#1") == split_id("0.1/a#1")
    assert ("", "a") == split_id("a")


def test_doubts_are_what_is_open_and_unknown() -> None:
    """An attempt under way is none while somebody drives the run, and one when nobody does."""
    intended = [STARTED, Claimed(0, 1, "w1", True), EVERY_EVENT[5]]
    doubted = [*intended, EVERY_EVENT[6]]
    retried = [*intended, AttemptFailed(12, "0/pay#1", 1, FAULT, 1_000_500)]

    assert [] == doubts("r", intended, driven=True)
    (cut,) = doubts("r", intended, driven=False)
    assert ("0/pay#1", "its driver ended before it did", False) == (cut.step, cut.why, cut.asks)
    (doubt,) = doubts("r", doubted, driven=True)
    assert ("pay:7", "BankError: closed", True) == (doubt.key, doubt.why, doubt.asks)
    assert [] == doubts("r", retried, driven=False)
    assert [] == doubts("r", [*doubted, EVERY_EVENT[10]], driven=False)
