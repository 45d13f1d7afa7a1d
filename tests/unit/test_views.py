"""Views: journals as people read them, without any flow's code."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest

from outlive.journal.headers import header_of
from outlive.journal.record import LINK_START, pack
from outlive.model.events import (
    Claimed,
    EffectDoubted,
    Event,
    RunCompleted,
    RunFailed,
    encode_events,
)
from outlive.model.kinds import KIND_BITS
from outlive.model.run import fold
from outlive.stores.types import Head, Reading, StoredRecord
from outlive.views.damage import check_journal
from outlive.views.runs import iso, outcome, summary
from outlive.views.timeline import ComparedStep, StepEnd
from outlive.views.values import Unread, as_json, preview, read_value
from tests.unit.every_event import EVERY_EVENT, FAULT, STARTED, encoded


class Colour(enum.Enum):
    """Something to choose."""

    RED = "r"


@dataclass
class Cat:
    """Something with fields."""

    name: str
    lives: int


# values


@pytest.mark.parametrize(
    ("value", "hints", "text", "data"),
    [
        (None, (), "None", None),
        ("é\n\x1b", (), '"é\\n\\u001b"', "é\n\x1b"),
        ([1, 2.5, True], (), "[1, 2.5, True]", [1, 2.5, True]),
        ((1, (2,)), (), "(1, (2))", [1, [2]]),
        ({3}, (), "{3}", [3]),
        (frozenset({3}), (), "{3}", [3]),
        ({"a": {"b": None}}, (), '{"a": {"b": None}}', {"a": {"b": None}}),
        ({1: "x"}, (), '{1: "x"}', [[1, "x"]]),
        (b"abc", (), "b'abc'", b"abc"),
        (bytes(20), (), f"{bytes(16)!r}… 20 bytes", bytes(20)),
        (10**30, (), str(10**30), str(10**30)),
        (1 + 2j, (), "(1+2j)", "(1+2j)"),
        (Decimal("1.50"), (), "1.50", Decimal("1.50")),
        (UUID(int=7), (), str(UUID(int=7)), UUID(int=7)),
        (date(2024, 1, 2), (), "2024-01-02", date(2024, 1, 2)),
        (time(1, 2), (), "01:02:00", time(1, 2)),
        (timedelta(hours=1), (), "1:00:00", timedelta(hours=1)),
        (
            datetime(2024, 1, 2, tzinfo=UTC),
            (),
            "2024-01-02T00:00:00+00:00",
            datetime(2024, 1, 2, tzinfo=UTC),
        ),
        (Colour.RED, (Colour,), "Colour.RED", "RED"),
        (Cat("Tom", 9), (Cat,), 'Cat(name="Tom", lives=9)', {"name": "Tom", "lives": 9}),
        ([Cat("A", 1)], (Cat,), '[Cat(name="A", lives=1)]', [{"name": "A", "lives": 1}]),
    ],
)
def test_values_are_shown_without_their_classes(
    value: object, hints: tuple[Any, ...], text: str, data: object
) -> None:
    """As a programmer would write them, and as JSON would."""
    recorded = encoded(value, *hints)

    assert text == preview(recorded)
    assert data == as_json(read_value(recorded))
    msgspec.json.encode(as_json(read_value(recorded)))


def test_a_long_value_is_cut() -> None:
    """However long and deep it is, a preview has its length."""
    deep: list[Any] = []
    for _ in range(50):
        deep = [deep, "x" * 1000]

    for value in ("x" * 100_000, list(range(100_000)), {"k" * 500: 1}, deep):
        shown = preview(encoded(value), 40)

        assert len(shown) <= 40
        assert shown.endswith("…")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x93\x01",
        msgspec.msgpack.encode(msgspec.msgpack.Ext(99, b"later")),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(1, b"\xc1")),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(32, b"\x01")),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(8, b"\xa4oops")),
        b"\x91" * 100_000,
    ],
)
def test_a_value_that_can_not_be_read_is_shown_as_such(data: bytes) -> None:
    """A view never fails over a value."""
    assert isinstance(read_value(data), Unread)
    assert "can't be shown" in preview(data)
    assert "can't be shown" in as_json(read_value(data))


# a run at a glance


def reading_of(*batches: Sequence[Event], run_id: str = "r") -> Reading:
    """A journal with a record per batch, as a store would give it."""
    link, seq, epoch, records = LINK_START, 1, 0, []
    for batch in batches:
        epoch = max([epoch, *(event.epoch for event in batch if isinstance(event, Claimed))])
        kinds = 0
        for event in batch:
            kinds |= KIND_BITS[type(event)]
        body = encode_events(list(batch))
        record, link = pack(run_id, prev=link, epoch=epoch, seq=seq, kinds=kinds, body=body)
        records.append(StoredRecord(seq, record))
        seq += len(batch)
    run = fold([event for batch in batches for event in batch])
    head = Head(run_id=run_id, seq=seq - 1, epoch=epoch, link=link)
    return Reading(head=head, header=header_of(run), records=records, mail=[])


def test_a_summary_says_what_the_header_knows() -> None:
    """Id, flow and status above all; instants as text."""
    reading = reading_of([STARTED, Claimed(0, 1, "w", True)], [RunCompleted(9, encoded("ok"))])

    told = summary(reading)

    assert ("r", "buy", "completed", 3) == (told["id"], told["flow"], told["status"], told["seq"])
    assert "1970-01-01T00:16:40.009Z" == told["ended_at"]
    assert None is told["wake_at"]
    assert ("ok", None) == outcome(fold([STARTED, RunCompleted(9, encoded("ok"))]))
    assert (None, {"type": "BankError", "message": "closed"}) == outcome(
        fold([STARTED, RunFailed(9, FAULT)])
    )


def test_instants_beyond_the_calendar_are_shown_all_the_same() -> None:
    """A damaged header may hold any number."""
    assert None is iso(None)
    assert "99999999999999999 ms since 1970" == iso(99999999999999999)


# damage

SOUND = reading_of(
    [STARTED, Claimed(0, 1, "w", True)],
    [EVERY_EVENT[5]],
    [EVERY_EVENT[10], EVERY_EVENT[11]],
    [EVERY_EVENT[12]],
    [RunCompleted(73, encoded("done"))],
)


def with_records(*records: StoredRecord) -> Reading:
    return msgspec.structs.replace(SOUND, records=list(records))


def test_a_sound_journal_has_no_damage() -> None:
    """Its events come out."""
    checked = check_journal(SOUND)

    assert ([], 5, 7) == (checked.damage, checked.records, len(checked.events))


def test_what_follows_damage_is_still_checked() -> None:
    """Each fault is named once, at its place; sound records between them are not blamed."""
    records = list(SOUND.records)
    broken = [
        StoredRecord(record.seq, record.body[:-1] + bytes((record.body[-1] ^ 1,)))
        for record in records
    ]
    lost_link = StoredRecord(records[1].seq, records[1].body[:50])

    for spoilt, seqs in (
        ([records[0], broken[1], records[2], broken[3], records[4]], [3, 6]),
        ([records[0], lost_link, records[2], records[3], broken[4]], [3, 7]),
        ([broken[0], records[1], records[2], records[3], records[4]], [1]),
        ([lost_link, *records[1:]], [1, 3, 3]),
        ([records[0], *records[2:4]], [3, 7]),
        (records[:-1], [7]),
        ([], [1]),
        ([*records, records[0]], [1]),
        ([records[0], StoredRecord(3, "text"), *records[2:]], [3]),  # type: ignore[arg-type]
    ):
        found = check_journal(with_records(*spoilt)).damage

        assert seqs == [each.seq for each in found], found
        assert {"r"} == {each.run for each in found}


def test_events_before_the_damage_can_be_shown() -> None:
    """None behind it: they may contradict what is missing."""
    records = list(SOUND.records)

    checked = check_journal(with_records(records[0], records[2]))

    assert [STARTED, Claimed(0, 1, "w", True)] == checked.events


def test_a_record_of_a_later_release_is_named() -> None:
    """It is whole, but this release can't say what it holds."""
    from hashlib import blake2b

    body = SOUND.records[0].body
    placed = body[:2] + b"\x09" + body[3:32]
    link = blake2b(LINK_START + placed + b"r", digest_size=16).digest()

    found = check_journal(with_records(StoredRecord(1, placed + link + body[48:]))).damage

    assert 1 == found[0].seq
    assert "record format 9" in found[0].why


def test_events_that_contradict_one_another_are_found() -> None:
    """A chain that holds does not make a story."""
    doubted = EffectDoubted(30, "0/pay#1", 1, FAULT, True, True)
    body = encode_events([STARTED, doubted])
    record, link = pack("r", prev=LINK_START, epoch=0, seq=1, kinds=0, body=body)
    head = Head(run_id="r", seq=2, epoch=0, link=link)
    reading = Reading(head=head, header=SOUND.header, records=[StoredRecord(1, record)], mail=[])

    (damage,) = check_journal(reading).damage

    assert "contradict" in damage.why


def test_a_difference_is_called_by_its_place() -> None:
    """What two runs were started with is no outcome."""
    one, other = StepEnd(digest=b"1"), StepEnd(digest=b"2")

    assert ["arguments", "outcome", "outcome"] == [
        ComparedStep(step=step, a=one, b=other).difference
        for step in ("arguments", "0/plan#1", "outcome")
    ]
    assert "" == ComparedStep(step="arguments", a=one, b=one).difference
