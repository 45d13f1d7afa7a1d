# ruff: noqa: DTZ001 - naive times are values, too
"""The bytes of one value of every kind, as every release writes and reads them.

A value that was recorded must be readable for as long as anybody keeps it. A line here may be
added, never changed.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from tests.values.specimens import (
    Color,
    Frozen,
    Job,
    Level,
    Model,
    Order,
    Page,
    Place,
    Point,
    Receipt,
    Rights,
    Tree,
    Word,
    codec,
    identical,
)  # fmt: skip

BERLIN = ZoneInfo("Europe/Berlin")
EAST = timezone(timedelta(hours=5, minutes=30))

GOLDEN: list[tuple[Any, str]] = [
    (None, "c0"),
    (True, "c3"),
    (False, "c2"),
    (0, "00"),
    (-1, "ff"),
    (255, "ccff"),
    (2**63, "cf8000000000000000"),
    (-(2**63), "d38000000000000000"),
    (2**64, "c7090a010000000000000000"),
    (-(2**64), "c7090aff0000000000000000"),
    (1.0, "cb3ff0000000000000"),
    (-0.0, "cb8000000000000000"),
    (1e300, "cb7e37e43c8800759c"),
    ("", "a0"),
    ("é\U0001f600", "a6c3a9f09f9880"),
    (b"", "c400"),
    (b"\x00\xff", "c40200ff"),
    (bytearray(b"ab"), "d50c6162"),
    (1 - 2j, "d80b3ff0000000000000c000000000000000"),
    ([], "90"),
    ([1, [2], {}], "9301910280"),
    ({}, "80"),
    ({"b": 1, "a": None}, "82a16201a161c0"),
    ({1: "a", "b": 2, None: 3, (1,): 4}, "c70e0d9801a161a16202c003d501910104"),
    ((), "d40190"),
    ((1, (2,)), "c706019201d5019102"),
    (set(), "d40290"),
    ({3, 1, 2}, "d60293010203"),
    (frozenset({"a", b"a"}), "c7060392a161c40161"),
    (date(2024, 2, 29), "c70b05aa323032342d30322d3239"),
    (
        datetime(2024, 2, 29, 1, 2, 3, 4),
        "c71b04ba323032342d30322d32395430313a30323a30332e303030303034",
    ),
    (
        datetime(2024, 2, 29, 1, 2, tzinfo=UTC),
        "c71a04b9323032342d30322d32395430313a30323a30302b30303a3030",
    ),
    (
        datetime(2024, 2, 29, 1, 2, tzinfo=EAST),
        "c71a04b9323032342d30322d32395430313a30323a30302b30353a3330",
    ),
    (datetime(2024, 10, 27, 2, 30, fold=1), "c7170493b3323032342d31302d32375430323a33303a3030c001"),
    (
        datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
        "c7240493b3323032342d31302d32375430323a33303a3030ad4575726f70652f4265726c696e01",
    ),
    (
        datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=-1), "X")),
        "c7220493b3323032342d30312d30315430303a30303a303092d3ffffffff296c5c00a15800",
    ),
    (time(1, 2, 3), "c70906a830313a30323a3033"),
    (time(1, 2, tzinfo=UTC), "c70f06ae30313a30323a30302b30303a3030"),
    (time(1, 2, tzinfo=BERLIN), "c7190693a830313a30323a3030ad4575726f70652f4265726c696e00"),
    (timedelta(-1, 2, 3), "d60793ff0203"),
    (Decimal("1.10"), "c70508a4312e3130"),
    (Decimal("-0E+3"), "c70608a52d30452b33"),
    (UUID("12345678-1234-5678-1234-567812345678"), "d80912345678123456781234567812345678"),
    (Color.GREEN, "c70d2192a5436f6c6f72a5475245454e"),
    (Level.LOW, "c70b2192a54c6576656ca34c4f57"),
    (Word.A, "d72192a4576f7264a141"),
    (Rights.READ, "c70d2192a6526967687473a452454144"),
    (Rights.READ | Rights.RUN, "c7092192a652696768747305"),
    (Rights(0), "c7092192a652696768747300"),
    (Point(1, "y"), "c7152093a5506f696e74c4048cc3ed3882a17801a179a179"),
    (Place(1), "c7142093a5506c616365c4048cc3ed3882a17801a17900"),
    (Order("o", [1]), "c71b2093a54f72646572c4042dc8ca2e82a26964a16fa56c696e65739101"),
    (Receipt(id=1), "c71b2093a752656365697074c4042dc8ca2e82a2696401a56c696e6573c0"),
    (
        Tree(1, [Tree(2)]),
        "c73f2093a454726565c404fd113a1082a576616c756501a86368696c6472656e91c71e2093a45472"
        "6565c404fd113a1082a576616c756502a86368696c6472656e90",
    ),
    (Job(1, (2,)), "c71a2093a34a6f62c4042dc8ca2e82a2696401a56c696e6573d5019102"),
    (
        Frozen(first_name="a"),
        "c7272093a646726f7a656ec404f8f2e91e82aa66697273745f6e616d65a161a96c6173745f6e616d65c0",
    ),
    (
        Model(id=1),
        "c71d2094a54d6f64656cc4042dc8ca2e82a2696401a56c696e6573c091a26964",
    ),
    (
        Model(id=1, lines=None),
        "c7232094a54d6f64656cc4042dc8ca2e82a2696401a56c696e6573c092a26964a56c696e6573",
    ),
    (
        Page[Model](items=[Model(id=2)]),
        "c7482094ab506167655b4d6f64656c5dc404d7e7704282a56974656d7391c71d2094a54d6f64656c"
        "c4042dc8ca2e82a2696402a56c696e6573c091a26964a46e657874c091a56974656d73",
    ),
]


@pytest.mark.parametrize(("value", "recorded"), GOLDEN)
def test_the_format_is_final(value: Any, recorded: str) -> None:
    """A value is written to these bytes, and these bytes are read as that value."""
    assert recorded == codec().encode(value).hex()
    assert identical(value, codec().decode(bytes.fromhex(recorded)))
