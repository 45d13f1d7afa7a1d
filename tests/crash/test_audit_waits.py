"""The auditor knows the laws of mail, questions, children, undoing and chapters, one by one."""

from __future__ import annotations

import msgspec
import pytest

from outlive.model.events import (
    Answered,
    ChapterBegan,
    ChildEnded,
    ChildIntended,
    ChildSpawned,
    Claimed,
    DeadlinePassed,
    EffectDone,
    EffectIntended,
    Event,
    Fault,
    MailRead,
    ParentTold,
    QuestionAsked,
    QuestionClosed,
    Replied,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    RunUndoing,
    SignalReceived,
    StepRaised,
    Undoable,
)
from outlive.stores.types import Found, Head
from outlive.testing.audit.auditor import Policy, Receipt, audit, audit_growth
from outlive.testing.audit.families import check_asleep, check_deadlines
from outlive.testing.audit.waits import audit_undone
from outlive.testing.suite.entries import header

POLICIES: dict[str, Policy] = {"pay": "once"}
BROKE = Fault("ValueError", "no good")


def told(event: Event, **changes: object) -> Event:
    return msgspec.structs.replace(event, **changes)  # type: ignore[type-var]


START = RunStarted("flow", "1", b"", b"", b"", "3.11", 1_000_000, "p")
CLAIM = Claimed(0, 1, "w1", True)
SIGNAL = SignalReceived(10, "s", "s1", b"", False)
REPLY = Replied(11, "s1", b"")
READ = MailRead(12, "answer/x", "nobody waits")
ASKED = QuestionAsked(13, "0/ask#1", "Well?", b"")
ANSWER = Answered(14, "0/ask#1", b"1", "ann")
INTENT = ChildIntended(15, "0/call:f#1", "p.c", "f", b"", b"", True)
SPAWNED = ChildSpawned(16, "0/call:f#1", "p.c")
ENDED = ChildEnded(17, "0/call:f#1", "p.c", "completed", b"v", None)
PAY_A = EffectIntended(18, "0/pay#1", 1, b"", b"", "ka", 60_000)
DONE_A = EffectDone(19, "0/pay#1", 1, b"")
PAY_B = EffectIntended(20, "0/pay#2", 1, b"", b"", "kb", 60_000)
DONE_B = EffectDone(21, "0/pay#2", 1, b"")
UNDOING = RunUndoing(22, "failed", BROKE)
UNDO_B = EffectIntended(23, "undo:0/pay#2", 1, b"", b"", "ub", 60_000)
UNDID_B = EffectDone(24, "undo:0/pay#2", 1, b"")
UNDO_A = EffectIntended(25, "undo:0/pay#1", 1, b"", b"", "ua", 60_000)
UNDID_A = EffectDone(26, "undo:0/pay#1", 1, b"")
END = RunFailed(27, BROKE)
SOUND: tuple[Event, ...] = (
    *(START, CLAIM, SIGNAL, REPLY, READ, ASKED, ANSWER, INTENT, SPAWNED, ENDED),
    *(PAY_A, DONE_A, PAY_B, DONE_B, UNDOING, UNDO_B, UNDID_B, UNDO_A, UNDID_A, END),
)
CHILD_START = told(START, parent="p", is_awaited=True)
CHILD_END = RunCompleted(5, b"v")
CHILD: tuple[Event, ...] = (CHILD_START, CLAIM, CHILD_END, ParentTold(6))
RECEIPTS = [Receipt(run_id="p", effect="pay", key=key) for key in ("ka", "kb", "ua", "ub")]


def put(event: Event, *instead: Event) -> tuple[Event, ...]:
    """The sound journal with one event exchanged."""
    place = SOUND.index(event)
    return (*SOUND[:place], *instead, *SOUND[place + 1 :])


def found(parent: tuple[Event, ...], child: tuple[Event, ...] = CHILD) -> list[str]:
    return audit({"p": parent, "p.c": child}, RECEIPTS, policies=POLICIES)


def test_a_sound_family_passes() -> None:
    """Nothing is found in a run and its child that did everything right."""
    assert [] == found(SOUND)
    assert [] == list(audit_undone({"p": SOUND, "p.c": CHILD}, frozenset({"pay"})))


LATE = QuestionAsked(28, "0/ask#2", "Well?", b"")
JOURNALS = {
    "a signal twice": (put(REPLY, SIGNAL, REPLY), "takes signal/s1 a second time"),
    "a letter twice": (put(READ, READ, READ), "takes answer/x a second time"),
    "a reply twice": (put(REPLY, REPLY, REPLY), "replies to s1 a second time"),
    "a reply to nothing": (put(SIGNAL), "replies to s1, which never came"),
    "asked twice": (put(ASKED, ASKED, ASKED), "asks 0/ask#1 a second time"),
    "answered twice": (put(ANSWER, ANSWER, ANSWER), "(Answered): 0/ask#1 is not open"),
    "answered and closed": (
        put(ANSWER, ANSWER, QuestionClosed(14, "0/ask#1")),
        "(QuestionClosed): 0/ask#1 is not open",
    ),
    "answered unasked": (put(ASKED), "(Answered): 0/ask#1 is not open"),
    "left open": (put(ANSWER), "leaves question 0/ask#1 open"),
    "a child twice": (put(INTENT, INTENT, INTENT), "intends child 0/call:f#1 a second time"),
    "started twice": (put(SPAWNED, SPAWNED, SPAWNED), "starts child 0/call:f#1 a second time"),
    "told twice": (put(ENDED, ENDED, ENDED), "ends child 0/call:f#1 a second time"),
    "a child unintended": (put(INTENT), "0/call:f#1 was not intended"),
    "begun in undoing": (put(UNDID_A, UNDID_A, LATE), "(QuestionAsked) comes after RunUndoing"),
    "undone unsettled": (put(DONE_B), "begins to undo while effect 0/pay#2 is unsettled"),
    "undone before it ended badly": (put(UNDOING), "though the run did not end badly"),
    "undone at once": (put(UNDID_B), "while ['undo:0/pay#2'] are unsettled"),
    "undone unhappened": (
        put(UNDO_A, told(UNDO_A, step="undo:0/pay#9")),
        "undoes 0/pay#9, which did not happen",
    ),
    "undone out of order": (
        (*SOUND[:15], told(UNDO_A, at=23), told(UNDID_A, at=24), told(UNDO_B, at=25)),
        "undoes 0/pay#2 out of order",
    ),
    "completed though undone": (put(END, RunCompleted(27, b"")), "it was undone as failed"),
    "on behind the deadline": (put(ASKED, DeadlinePassed(13), ASKED), "comes after DeadlinePassed"),
    "after the end": ((*SOUND, told(SIGNAL, at=30, signal_id="s2")), "follows its end"),
}


@pytest.mark.parametrize("name", JOURNALS)
def test_a_doctored_journal_is_found_out(name: str) -> None:
    """Each law of waiting and ending is checked."""
    events, words = JOURNALS[name]

    assert any(words in violation for violation in found(events))


CHILDREN = {
    "never intended": (put(INTENT), CHILD, "its parent p never intended it"),
    "not told": (SOUND, CHILD[:-1], "told its parent 0 times"),
    "told twice": (SOUND, (*CHILD, ParentTold(7)), "told its parent 2 times"),
    "told before its end": (
        SOUND,
        (CHILD_START, CLAIM, ParentTold(4), CHILD_END),
        "tells its parent before its end",
    ),
    "told something else": (
        put(ENDED, told(ENDED, value=b"w")),
        CHILD,
        "p.c ended with RunCompleted",
    ),
    "told too early": (SOUND, CHILD[:2], "and it did not end"),
    "ended in another way": (
        SOUND,
        (CHILD_START, CLAIM, RunCancelled(5, BROKE), ParentTold(6)),
        "p.c ended with RunCancelled",
    ),
}


@pytest.mark.parametrize("name", CHILDREN)
def test_a_doctored_family_is_found_out(name: str) -> None:
    """What parents and children say of one another is compared."""
    parent, child, words = CHILDREN[name]

    assert any(words in violation for violation in found(parent, child))


def test_what_was_not_undone_is_found_out() -> None:
    """A run that ended badly must have undone all that can be."""
    less = [event for event in SOUND if event not in (UNDO_A, UNDID_A)]

    assert ["run p: it ended badly and 0/pay#1 was not undone"] == list(
        audit_undone({"p": less}, frozenset({"pay"}))
    )
    assert [] == list(audit_undone({"p": less}, frozenset({"ring"})))


CHAPTER = ChapterBegan(
    at=30,
    seq=11,
    epoch=1,
    number=1,
    start=START,
    args=b"",
    happened=[Undoable("pay", "tests:pay", "0/pay#1", b"", b"", None, DONE_A)],
)


def test_ids_begin_anew_with_a_chapter() -> None:
    """The same step, question and child may come again in the next chapter."""
    first = SOUND[:10]
    again = [told(event, at=40) for event in SOUND[5:7]]
    end = RunCompleted(50, b"")

    assert [] == audit({"p": (*first, CHAPTER, *again, end), "p.c": CHILD}, [], policies={})
    assert any("asks" in each for each in found((*first, *again, end)))


def test_a_chapter_leaves_nothing_open() -> None:
    """No effect of a chapter is unsettled when the next begins."""
    events = (*SOUND[:11], told(CHAPTER, seq=12), RunCompleted(50, b""))

    assert any("left effect 0/pay#1 open" in each for each in found(events))


def test_what_a_chapter_did_is_undone_by_the_next() -> None:
    """What happened in earlier chapters is on the list, before what happened in this one."""
    undo = (told(UNDO_A, at=40), told(UNDID_A, at=41), told(END, at=42))
    begun = (told(CHAPTER, seq=1), told(UNDOING, at=39))

    assert [] == audit({"p": (*begun, *undo)}, RECEIPTS[2:3], policies=POLICIES)
    assert [] != list(audit_undone({"p": (*begun, undo[-1])}, frozenset({"pay"})))


def test_records_before_a_chapter_may_be_gone() -> None:
    """A journal that begins with a chapter has its place, and is the same journal."""
    whole = (*SOUND[:10], CHAPTER, RunCompleted(50, b""))
    rest = whole[10:]

    assert [] == audit({"p": rest}, [], policies={}, acknowledged={"p": 12})
    assert [] == audit_growth(whole, rest)
    assert audit_growth(rest, whole)
    assert audit_growth(whole, rest[:1])


def test_another_try_may_do_what_failed() -> None:
    """A step that raised may be done again behind a new try, one that returned may not."""
    raised = StepRaised(5, "0/s#1", 1, b"", b"", BROKE)
    failed = RunFailed(6, BROKE)
    retried = RunRetried(7, 3, "ann")
    end = RunCompleted(9, b"")
    claim = told(CLAIM, epoch=2, at=8)
    again = (START, CLAIM, raised, failed, retried, claim, told(raised, at=8), end)

    assert [] == audit({"p": again}, [], policies={})
    assert audit({"p": (*again[:4], *again[5:])}, [], policies={})


def test_a_claim_behind_the_deadline_drives_no_further() -> None:
    """Who takes a run over when its time is up must say so before anything else."""
    start = told(START, deadline_at=1_000_100)
    late = Claimed(150, 2, "w2", True)
    asked = told(ASKED, at=150)

    assert [] == list(check_deadlines("p", (start, CLAIM, asked)))
    assert [] == list(check_deadlines("p", (start, CLAIM, late, DeadlinePassed(150))))
    assert ["run p: event 4 (QuestionAsked) comes behind its deadline"] == list(
        check_deadlines("p", (start, CLAIM, late, asked))
    )


def test_nobody_sleeps_over_mail() -> None:
    """A run that nobody holds and that has unread mail is told."""
    head = Head(run_id="p", seq=3, epoch=1, link=b"", posted=2, consumed=1)
    held = msgspec.structs.replace(head, worker="w")
    read = msgspec.structs.replace(head, consumed=2)

    def asleep(head: Head, **about: object) -> list[str]:
        return list(check_asleep([Found(head=head, header=header(**about))]))

    assert ["run p: is asleep (waiting) with 1 unread"] == asleep(head, status="waiting")
    assert [] == asleep(held) + asleep(read) + asleep(head, ended_at=5)
