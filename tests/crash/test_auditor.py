"""The auditor finds every kind of broken promise, one by one, in journals that were sound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from outlive.model.events import (
    AttemptFailed,
    Claimed,
    EffectDone,
    EffectDoubted,
    EffectIntended,
    EffectRaised,
    Event,
    Fault,
    KeyHeld,
    Parked,
    RunCompleted,
    RunStarted,
    StepDone,
    Streamed,
    StreamReset,
    TimerFired,
)
from outlive.testing.audit.auditor import (
    JOURNAL_RULES,
    Policy,
    Receipt,
    audit,
    audit_growth,
    audit_order,
    fresh_nonce,
    nonces_in,
)

A, B = "nonce-00000000000000aa", "nonce-00000000000000bb"
POLICIES: dict[str, Policy] = {"pay": "once", "ring": "at_most_once"}
BROKE = Fault("OSError", "it broke")


def told(event: Event, **changes: object) -> Event:
    return msgspec.structs.replace(event, **changes)  # type: ignore[type-var]


def text(words: str) -> bytes:
    return msgspec.msgpack.encode(words)


START = RunStarted("flow", "1", b"", b"", b"", "3.11", 1_000_000, "r")
CLAIM = Claimed(0, 1, "w1", True)
STEP = StepDone(10, "0/think#1", 1, b"", b"", text(A))
INTENT = EffectIntended(20, "0/pay#1", 1, text(A), b"", "k1", 60_000)
DONE = EffectDone(30, "0/pay#1", 1, text("paid"))
ASKED = EffectIntended(40, "0/ring#1", 1, text(A), b"", "k2", 60_000)
DOUBT = EffectDoubted(50, "0/ring#1", 1, BROKE, asks=True, over=True)
SHRUG = EffectRaised(60, "0/ring#1", 1, BROKE, None, "human")
TIMER = TimerFired(70, "0/sleep#1")
END = RunCompleted(80, text(A))
SOUND: tuple[Event, ...] = (*(START, CLAIM, STEP, INTENT, DONE, ASKED, DOUBT, SHRUG, TIMER, END),)
PAID = Receipt(run_id="r", effect="pay", key="k1", nonces=(A,))
RUNG = Receipt(run_id="r", effect="ring", key="k2", nonces=(A,))


def put(event: Event, *instead: Event) -> tuple[Event, ...]:
    """The sound journal with one event exchanged."""
    place = SOUND.index(event)
    return (*SOUND[:place], *instead, *SOUND[place + 1 :])


def found(events: tuple[Event, ...], receipts: tuple[Receipt, ...] = (PAID, RUNG)) -> list[str]:
    return audit({"r": events}, receipts, policies=POLICIES)


def test_a_sound_run_passes() -> None:
    """Nothing is found in a run that did everything right."""
    key = (KeyHeld("r", "0/pay#1", b""),)

    assert [] == audit({"r": SOUND, "key/k1": key}, [PAID, RUNG], policies=POLICIES)


JOURNALS = {
    "no start": (SOUND[1:], "does not begin with RunStarted"),
    "two starts": (put(CLAIM, CLAIM, START), "starts it a second time"),
    "after the end": ((*SOUND, told(TIMER, timer="x", at=90)), "follows its end"),
    "an epoch twice": (put(STEP, told(CLAIM, worker="w2"), STEP), "claims epoch 1 after epoch 1"),
    "an epoch that falls": (put(CLAIM, told(CLAIM, epoch=2)), "claims epoch 2 after epoch 0"),
    "time that falls": (put(DONE, told(DONE, at=15)), "is at 15 ms, after one at 20 ms"),
    "an end with no intent": (put(INTENT), "has no intent before it"),
    "a doubt with no intent": (put(ASKED), "(EffectDoubted) of 0/ring#1 has no intent"),
    "an end before its intent": (put(INTENT, DONE, told(INTENT, at=30)), "no intent before it"),
    "a repeat unsettled": (put(INTENT, INTENT, told(INTENT, attempt=2)), "was not settled"),
    "a repeat in doubt": (put(DOUBT, DOUBT, told(ASKED, at=55)), "was not settled"),
    "another key": (
        put(
            INTENT,
            INTENT,
            AttemptFailed(25, "0/pay#1", 1, BROKE, 0),
            told(INTENT, at=26, attempt=2, key="k9"),
        ),
        "with another key",
    ),
    "two ends": (put(DONE, DONE, DONE), "ends 0/pay#1 a second time"),
    "two ends of a step": (put(STEP, STEP, STEP), "ends 0/think#1 a second time"),
    "a timer twice": (put(TIMER, TIMER, TIMER), "ends 0/sleep#1 a second time"),
    "left open": (put(DONE), "left effect 0/pay#1 open"),
    "a lost nonce in an effect": (put(INTENT, told(INTENT, args=text(B))), f"depends on {B}"),
    "a lost nonce in the outcome": (put(END, told(END, value=text(B))), f"depends on {B}"),
    "a nonce too late": (put(STEP, INTENT, STEP)[:4], f"depends on {A}"),
    "a misfit": (put(TIMER, Parked(65, None, "code differs"), TIMER), "parked it: code differs"),
}


@pytest.mark.parametrize("name", JOURNALS)
def test_a_doctored_journal_is_found_out(name: str) -> None:
    """Each rule of a journal is checked."""
    events, words = JOURNALS[name]

    assert any(words in violation for violation in found(events))


RECEIPTS = {
    "twice": ((PAID, PAID, RUNG), "effect pay (key k1) happened 2 times"),
    "at most once, twice": ((PAID, RUNG, RUNG), "effect ring (key k2) happened 2 times"),
    "never": ((RUNG,), "is done in the journal and never happened"),
    "no intent": ((PAID, RUNG, replace(PAID, key="k9")), "happened without an intent"),
    "another run's": ((replace(PAID, run_id="x"), RUNG), "happened without an intent"),
    "other arguments": ((replace(PAID, nonces=(B,)), RUNG), "which was not intended"),
    "unknown to the audit": ((replace(PAID, effect="pry"), RUNG), "has no policy for it"),
}


@pytest.mark.parametrize("name", RECEIPTS)
def test_a_doctored_ledger_is_found_out(name: str) -> None:
    """Each rule of the outside world is checked."""
    receipts, words = RECEIPTS[name]

    assert any(words in violation for violation in found(SOUND, receipts))


def test_what_did_not_happen_must_not_have_happened() -> None:
    """A receipt of an effect that the journal calls off is found out."""
    events = put(DONE, EffectRaised(30, "0/pay#1", 1, BROKE, False))

    assert any("did not happen, says the journal, and it did" in each for each in found(events))
    assert [] == found(events, (RUNG,))


def test_an_unknown_effect_is_surfaced() -> None:
    """A run that waits while an effect with neither key nor check is unknown must be asking."""
    waiting = (*SOUND[:6], Parked(45, None))
    asking = (*SOUND[:7], Parked(55, None))

    assert any("nobody is asked about it" in each for each in found(waiting))
    assert [] == found(asking)


def test_a_holder_must_have_an_outcome() -> None:
    """What a key's holder is said to have done, the holder has done."""
    other = (START, CLAIM, STEP, INTENT, told(DONE, by="holder"))

    assert any("holder that has none" in each for each in found(other, ()))
    assert [] == audit({"r": SOUND, "s": other}, [PAID, RUNG], policies=POLICIES)


def test_one_key_is_done_in_one_place() -> None:
    """Two effects that both did it under one key are found out."""
    both = audit({"r": SOUND, "s": SOUND[:5]}, [PAID, RUNG], policies=POLICIES)

    assert any("is done in 2 places" in each for each in both)


def test_what_was_acknowledged_is_there() -> None:
    """A journal that ends before an acknowledged event is found out."""
    kept = {"r": len(SOUND)}
    lost = {"r": len(SOUND) + 1, "gone": 1}

    assert [] == audit({"r": SOUND}, [PAID, RUNG], policies=POLICIES, acknowledged=kept)
    assert 2 == len(audit({"r": SOUND}, [PAID, RUNG], policies=POLICIES, acknowledged=lost))


def test_nothing_done_is_no_pass() -> None:
    """No run, or one that got nowhere, is found out."""
    assert audit({}, [], policies=POLICIES)
    assert audit({"r": SOUND}, [PAID, RUNG], policies=POLICIES, events_min=11)


def test_a_journal_only_grows() -> None:
    """An event that was read once and is gone, or another, is found out."""
    assert [] == audit_growth(SOUND[:5], SOUND)
    assert audit_growth(SOUND, SOUND[:5])
    assert audit_growth(SOUND, put(DONE, told(DONE, at=31)))


def test_branches_are_seen_in_the_journals_order() -> None:
    """A flow that saw its steps in another order, or a step of no journal, is found out."""
    later = told(STEP, step="0/think#2", value=text(B))

    assert [] == audit_order([STEP, later], [A, B])
    assert audit_order([STEP, later], [B, A])
    assert audit_order([STEP], [A, B])


def test_nonces_are_known_when_seen() -> None:
    """A nonce is found in texts and bytes, in order, each once."""
    make: Callable[[int], bytes] = bytes
    nonce = fresh_nonce(make)

    assert (nonce, A) == nonces_in(f"{nonce} {A} {nonce}")
    assert (A,) == nonces_in(text(A))


def test_streams_that_are_doubled_or_have_gaps_are_told() -> None:
    """Chunks behind an attempt that is over, and offsets that do not follow one another."""
    begin = [START, CLAIM]
    first = Streamed(1, "tokens", "0/a#1", 1, 1, [b"\xa1a"])
    second = Streamed(2, "tokens", "0/a#1", 1, 2, [b"\xa1a"])
    withdrawn = [StreamReset(2, "tokens", "0/a#1", 2, 2), told(second, attempt=2, offset=3)]
    claimed = Claimed(1, 2, "v", True)

    assert [] == told_of([*begin, first, second])
    assert [] == told_of([*begin, first, claimed, *withdrawn])
    assert ["streams behind an attempt"] == told_of([*begin, first, claimed, second])
    assert ["offset 3 of stream"] == told_of([*begin, first, told(second, offset=3)])
    assert ["attempt 2 in place of 1"] == told_of([*begin, first, told(second, attempt=2)])


def told_of(events: list[Event]) -> list[str]:
    """What the rules say of the streams of a journal, the part that matters."""
    said = [words for rule in JOURNAL_RULES for words in rule(events) if "stream" in words]
    parts = ("streams behind an attempt", "offset 3 of stream", "attempt 2 in place of 1")
    return [part for words in said for part in parts if part in words]
