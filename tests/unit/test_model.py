"""The pure core: what events mean and what may follow, tried without a loop or a clock."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from outlive.errors import DefinitionRefused, RunIdRefused
from outlive.model.decide import (
    GiveUp,
    RetryAt,
    absence_counts_from,
    decide_failure,
    decide_resolve,
    next_attempt,
)
from outlive.model.events import (
    AttemptFailed,
    Claimed,
    DriveBegan,
    EffectDone,
    EffectDoubted,
    EffectIntended,
    EffectRaised,
    Event,
    Fault,
    MailRead,
    Parked,
    RunCompleted,
    RunQuarantined,
    RunStarted,
    StepDone,
    decode_events,
    encode_events,
)
from outlive.model.ids import check_run_id, derived_bytes, derived_key, key_journal
from outlive.model.kinds import KIND_BITS, KINDS
from outlive.model.mail import Resolve
from outlive.model.retry import Retry, parse_duration
from outlive.model.run import fold

FAULT = Fault("OSError", "gone")
START = RunStarted(
    flow="f",
    version="1",
    args=b"a",
    digest=b"d",
    seed=b"s",
    python="3.11",
    started_at=1_000,
    family="r",
)
INTENT = EffectIntended(5, "0/pay#1", 1, b"a", b"d", "k", 60_000)


def claimed(epoch: int, *, at: int = 0, certain: bool = True) -> Claimed:
    return Claimed(at, epoch, f"w{epoch}", certain)


def test_events_come_back_as_they_were() -> None:
    """Every kind of event survives encoding, and every kind has its bit."""
    events: list[Event] = [START, claimed(1), INTENT, EffectDone(6, "0/pay#1", 1, b"v")]

    assert events == decode_events(encode_events(events))
    assert set(KINDS) == set(KIND_BITS)


def test_a_run_is_due_at_once_until_it_parks() -> None:
    """A started run is due at its start, a claimed one at once, a parked one when it said."""
    assert 1_000 == fold([START]).wake_at
    assert 0 == fold([START, claimed(1)]).wake_at

    parked = fold([START, claimed(1), Parked(9, 5_000)])

    assert ("waiting", 5_000) == (parked.status, parked.wake_at)


def test_an_ended_run_keeps_its_value() -> None:
    """Completion ends the run at the time of the event."""
    run = fold([START, claimed(1), RunCompleted(500, b"v")])

    assert ("completed", 1_500, b"v") == (run.status, run.ended_at, run.value)


def test_claims_without_an_outcome_are_counted_until_one_comes() -> None:
    """Only workers that died while they tried the run count against it."""
    dying = [START, claimed(1), claimed(2), DriveBegan(1), claimed(3), DriveBegan(1)]
    assert 3 == fold(dying).barren
    assert 4 == fold([*dying, claimed(4)]).barren
    assert 4 == fold([*dying, claimed(4), claimed(5), claimed(6)]).barren
    assert 1 == fold([START, *map(claimed, range(1, 9))]).barren
    assert 0 == fold([*dying, StepDone(1, "0/s#1", 1, b"", b"", b"")]).barren
    assert 0 == fold([*dying, Parked(1, None)]).barren
    assert 0 == fold([*dying, RunQuarantined(1, "enough")]).barren


def test_a_certain_death_ends_the_attempts_of_that_driver_only() -> None:
    """A zombie of an older epoch may still be running its attempt when a later driver dies."""
    own = fold([START, claimed(1), INTENT, claimed(2, at=70)])
    assert 1_070 == own.effects["0/pay#1"].over_at

    silent = fold([START, claimed(1), INTENT, claimed(2, at=70, certain=False)])
    assert silent.effects["0/pay#1"].over_at is None

    later = fold([START, claimed(1), INTENT, claimed(2, at=70, certain=False), claimed(3, at=90)])
    assert later.effects["0/pay#1"].over_at is None


def test_absence_counts_only_after_the_attempt_and_the_receiver_are_done() -> None:
    """Known over: settle_after later. Unknown: settle_after behind the time limit."""
    cut = fold([START, claimed(1), INTENT, claimed(2, at=70)]).effects["0/pay#1"]
    assert 1_570 == absence_counts_from(cut, 500)

    unknown = fold([START, claimed(1), INTENT, claimed(2, at=70, certain=False)])
    assert 61_500 == absence_counts_from(unknown.effects["0/pay#1"], 500)

    doubt = EffectDoubted(80, "0/pay#1", 1, FAULT, asks=False, over=False)
    found_open = fold([START, claimed(1), INTENT, claimed(2, at=70, certain=False), doubt])
    assert 61_500 == absence_counts_from(found_open.effects["0/pay#1"], 500)


def test_a_clock_that_was_set_back_moves_no_end_forward() -> None:
    """A claim's time may lie before the journal's last event; the later of the two counts."""
    run = fold([START, claimed(1), INTENT, claimed(2, at=1)])

    assert 1_005 == run.effects["0/pay#1"].over_at


def test_an_attempt_that_was_cut_off_does_not_count() -> None:
    """The next attempt after a cut has the same number, after a failure the next."""
    events: list[Event] = [START, claimed(1), INTENT]
    cut = AttemptFailed(9, "0/pay#1", 1, Fault("DriverEnded", ""), 0, "check")
    failed = AttemptFailed(9, "0/pay#1", 1, FAULT, 0)

    assert 1 == next_attempt(fold([*events, cut]).effects["0/pay#1"])
    assert 2 == next_attempt(fold([*events, failed]).effects["0/pay#1"])


def test_retries_end_and_grow() -> None:
    """Attempts are counted, delays grow up to their limit, other errors end it."""
    retry = Retry(attempts=3, delay="1s", factor=10, delay_max="5s", jitter=False, only=(OSError,))

    assert RetryAt(1_000) == decide_failure(retry, 1, OSError(), now=0, chance=0)
    assert RetryAt(5_000) == decide_failure(retry, 2, OSError(), now=0, chance=0)
    assert GiveUp() == decide_failure(retry, 3, OSError(), now=0, chance=0)
    assert GiveUp() == decide_failure(retry, 1, ValueError(), now=0, chance=0)
    assert 0.5 == Retry(delay="1s").delay_seconds(1, 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"attempts": 0}, "attempts is a whole number of at least 1, not 0"),
        ({"attempts": 1.5}, "attempts is a whole number"),
        ({"attempts": True}, "attempts is a whole number"),
        ({"factor": 0.5}, "factor is a finite number of at least 1, not 0.5"),
        ({"factor": "2"}, "factor is a finite number"),
        ({"factor": math.nan}, "factor is a finite number"),
        ({"factor": math.inf}, "factor is a finite number"),
        ({"jitter": 5}, "True or False"),
        ({"only": ("OSError",)}, "'OSError' is not one"),
        ({"only": OSError}, r"write \(OSError,\)"),
        ({"only": 5}, "5 is not one"),
        ({"delay_max": "soon"}, "not a duration"),
    ],
)
def test_impossible_retries_are_refused(options: dict[str, Any], words: str) -> None:
    """Where they are written, not at the first failure."""
    with pytest.raises(DefinitionRefused, match=words):
        Retry(**options)


def test_pauses_end_at_their_limit_however_they_grow() -> None:
    """Also past what a number can hold."""
    steep = Retry(attempts=100, delay="1s", factor=1e300, delay_max="5s", jitter=False)
    at_once = Retry(attempts=100, delay=0, factor=1e300, jitter=False)

    assert [1, 5, 5] == [steep.delay_seconds(attempt, 0) for attempt in (1, 2, 99)]
    assert [0, 0, 0] == [at_once.delay_seconds(attempt, 0) for attempt in (1, 2, 99)]


def test_a_human_settles_a_doubt_once() -> None:
    """Each verdict leads to its event; what is not in doubt can't be resolved."""
    doubted = EffectDoubted(80, "0/pay#1", 1, FAULT, asks=True, over=True)
    effect = fold([START, claimed(1), INTENT, doubted]).effects["0/pay#1"]

    def resolve(verdict: str, attempt: int = 1) -> Event:
        letter = Resolve("0/pay#1", attempt, verdict, b"v")  # type: ignore[arg-type]
        return decide_resolve(effect, letter, "m", at=90, now=1_090)

    assert EffectDone(90, "0/pay#1", 1, b"v", "human") == resolve("happened")
    assert isinstance(resolve("not_happened"), AttemptFailed)
    assert isinstance(resolve("fail"), EffectRaised)
    assert isinstance(resolve("happened", attempt=7), MailRead)
    assert isinstance(decide_resolve(None, Resolve("x", 1, "fail"), "m", at=1, now=1), MailRead)


def test_parking_shows_a_doubt_that_asks() -> None:
    """A run that waits for a human is in doubt, not just waiting."""
    doubted = EffectDoubted(80, "0/pay#1", 1, FAULT, asks=True, over=True)

    assert "in_doubt" == fold([START, claimed(1), INTENT, doubted, Parked(90, None)]).status


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1h 30m", 5400), ("250ms", 0.25), (2, 2), (timedelta(days=1), 86400)],
)
def test_durations_read_as_written(text: object, seconds: float) -> None:
    """Texts, numbers and timedeltas are durations."""
    assert seconds == parse_duration(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["", "soon", "5 parsecs", -1, float("nan"), True, "1s!"])
def test_what_is_no_duration_is_refused(wrong: object) -> None:
    """Nonsense is refused where it is written."""
    with pytest.raises(DefinitionRefused):
        parse_duration(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["", "a\0b", "x" * 513, "\ud800", "key/a", 7, None])
def test_what_can_be_no_run_id_is_refused(wrong: object) -> None:
    """Ids that some store could not keep are refused by all."""
    with pytest.raises(RunIdRefused):
        check_run_id(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("odd", ["../../etc/passwd", "'; DROP TABLE runs; --", "ｒｕｎ", "a b\n"])
def test_odd_run_ids_are_opaque(odd: str) -> None:
    """An id is text, never a path or a statement."""
    assert odd == check_run_id(odd)


def test_derived_names_depend_on_place_alone() -> None:
    """Keys and chance are functions of run and step."""
    assert derived_key("r", "0/a#1") == derived_key("r", "0/a#1")
    assert derived_key("r", "0/a#1") != derived_key("r", "0/a#2")
    assert derived_bytes(b"s", "x") != derived_bytes(b"t", "x")
    assert "key/refund:7" == key_journal("refund:7")
    assert len(key_journal("k" * 5_000)) < 512
