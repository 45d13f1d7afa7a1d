# ruff: noqa: DTZ001 - naive times are values, too
"""Random values from a seed: every kind, every depth, and twins on purpose.

Random data alone never holds ``{"a": "b"}`` beside ``["a", "b"]`` or ``1`` beside ``True``, and it
is twins that a codec mixes up.
"""

from __future__ import annotations

import math
import random
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

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
    Tag,
    Tree,
    Word,
)

#: Within a group every value looks like another, and none may be taken for it.
TWINS: list[list[Any]] = [
    [1, True, 1.0, Decimal(1), Decimal("1.0"), Level.LOW, "1", b"1", Color.RED, 1 + 0j, Rights(1)],
    [0, False, 0.0, -0.0, Decimal(0), Decimal("-0"), Decimal("0.00"), None, "", b"", Rights(0)],
    ["a", Word.A, b"a", bytearray(b"a"), ["a"], ("a",), {"a"}, frozenset("a"), {"a": None}],
    [{"a": "b"}, ["a", "b"], ("a", "b"), [["a", "b"]], {"a": ["b"]}, {Word.A: "b"}, {"a", "b"}],
    [[], (), {}, set(), frozenset(), "", b"", bytearray(), [[]], [()], ([],), {"": ""}],
    [{1: 2}, {True: 2}, {1.0: 2}, {"1": 2}, {Level.LOW: 2}, [1, 2], [[1, 2]], {Decimal(1): 2}],
    [{"a": 1, "b": 2}, {"b": 2, "a": 1}, [("a", 1), ("b", 2)], {("a", 1), ("b", 2)}],
    [Point(1, 2), Place(1, 2), (1, 2), [1, 2], {"x": 1, "y": 2}, ("Point", 1, 2)],
    [Order(1, [2]), Receipt(id=1, lines=[2]), Job(1, [2]), Model(id=1, lines=[2])],
    [Model(id=1), Model(id=1, lines=None), {"id": 1, "lines": None}, ["Model", 1, None]],
    [Page[Model](items=[]), Page[Tree](items=[]), Page[Model](items=[], next=None)],
    [Tree(1), Tree(1, [Tree(1)]), [Tree(1)], Tree(True), Tree(1.0)],
    [2**64, float(2**64), str(2**64), Decimal(2**64), 2**64 - 1, -(2**63), -(2**63) - 1],
    [date(2024, 1, 1), datetime(2024, 1, 1), "2024-01-01", datetime(2024, 1, 1, tzinfo=UTC)],
    [
        datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Paris")),
        datetime(2024, 10, 27, 2, 30, tzinfo=timezone(timedelta(hours=2))),
        datetime(2024, 10, 27, 2, 30, tzinfo=timezone(timedelta(hours=2), "Europe/Berlin")),
        datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
        datetime(2024, 10, 27, 0, 30, tzinfo=ZoneInfo("UTC")),
    ],
    [time(1), time(1, fold=1), time(1, tzinfo=UTC), timedelta(hours=1), "01:00:00"],
    [uuid.UUID(int=1), str(uuid.UUID(int=1)), uuid.UUID(int=1).bytes, 1],
]

ZONES = (
    None,
    UTC,
    timezone(timedelta(hours=-3, minutes=-30)),
    timezone(timedelta(microseconds=1)),
    timezone(timedelta(hours=1), "CET"),
    ZoneInfo("Asia/Tokyo"),
    ZoneInfo("Europe/Berlin"),
)


def refusable(rng: random.Random) -> Any:
    """Something that would not come back as it is."""
    return rng.choice(
        [
            float("nan"),
            float("inf"),
            complex(0, float("-inf")),
            Decimal("NaN"),
            Decimal("-Infinity"),
            "a\ud800",
            "\udfff",
            10**4300,
            object(),
            len,
            ValueError("x"),
            OrderedDict(a=1),
            defaultdict(list),
            type("Text", (str,), {})("s"),
            type("Row", (list,), {})(),
            type("Late", (Order,), {})(1),
            iter([]),
            memoryview(b"x"),
            range(3),
            int,
            random,
            ...,
        ]
    )


class Maker:
    """Makes values from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._atoms: list[Callable[[], Any]] = [
            lambda: None,
            lambda: self.rng.random() < 0.5,
            self._int,
            self._float,
            self._text,
            self._text,
            lambda: self.rng.randbytes(self._length()),
            lambda: bytearray(self.rng.randbytes(3)),
            lambda: complex(self._float(), self._float()),
            self._datetime,
            lambda: self._datetime().date(),
            lambda: self._datetime().timetz(),
            lambda: timedelta(self.rng.randint(-999, 999), 1, self.rng.randrange(10**6)),
            self._decimal,
            lambda: uuid.UUID(int=self.rng.getrandbits(128)),
            lambda: self.rng.choice((*Color, *Level, *Word, *Rights)),
            lambda: Rights(self.rng.randrange(8)),
        ]

    def value(self, depth: int = 4) -> Any:
        """Any value, containers within containers up to ``depth``."""
        if depth == 0 or self.rng.random() < 0.25:
            return self.atom()
        make = self.rng.choice(
            (self._list, self._dict, self._dict, self._items, self._tuple, self._set, self._object)
        )
        return make(depth - 1)

    def atom(self) -> Any:
        if self.rng.random() < 0.2:
            return self.rng.choice(self.rng.choice(TWINS))
        return self.rng.choice(self._atoms)()

    def key(self) -> Any:
        """Any hashable value."""
        while True:
            found = self.atom() if self.rng.random() < 0.8 else Tag(self._text())
            try:
                hash(found)
            except TypeError:
                continue
            return found if self.rng.random() < 0.8 else (found, self._int())

    def _parts(self, depth: int) -> list[Any]:
        count = 16 if self.rng.random() < 0.02 else self.rng.randrange(5)
        return [self.value(depth) for _ in range(count)]

    def _list(self, depth: int) -> Any:
        return self._parts(min(depth, 2))

    def _tuple(self, depth: int) -> Any:
        return tuple(self._parts(min(depth, 2)))

    def _dict(self, depth: int) -> Any:
        return {self._text(): part for part in self._parts(min(depth, 2))}

    def _items(self, depth: int) -> Any:
        return {self.key(): part for part in self._parts(min(depth, 2))}

    def _set(self, depth: int) -> Any:
        parts = {self.key() for _ in range(self.rng.randrange(5))}
        return self.rng.choice((set, frozenset))(parts)

    def _object(self, depth: int) -> Any:
        a, b = self.value(depth), self.value(depth)
        return self.rng.choice(
            [
                lambda: Point(a, b),
                lambda: Place(a, b),
                lambda: Order(a, b),
                lambda: Receipt(id=a, lines=b),
                lambda: Tree(a, [Tree(b)]),
                lambda: Job(a, b),
                lambda: Frozen(first_name=a, last_name=b),
                lambda: Model(id=a, lines=b),
                lambda: Model(id=a),
                lambda: Page[Model](items=[Model(id=b)]),
                lambda: Page[Tree](items=[Tree(a)], next="x"),
            ]
        )()

    def _length(self) -> int:
        return self.rng.choice((0, 1, 2, 3, 5, 31, 32, 300 if self.rng.random() < 0.1 else 4))

    def _int(self) -> int:
        bits = self.rng.choice((1, 4, 8, 16, 31, 32, 62, 63, 64, 65, 66, 200))
        if self.rng.random() < 0.01:
            bits = 14_000
        return self.rng.choice((-1, 1)) * (self.rng.getrandbits(bits) + self.rng.randint(-1, 1))

    def _float(self) -> float:
        edge = (0.0, -0.0, 5e-324, -1.7976931348623157e308, math.pi, 1e16, 0.1)
        return self.rng.choice((*edge, self.rng.uniform(-1, 1), self.rng.gauss(0, 1e9)))

    def _text(self) -> str:
        alphabet = self.rng.choice(
            ("ab", "abcdefghij_", "é ß\u0301\u212b\0\n", "😀漢\uffff\U0010ffff")
        )
        return "".join(self.rng.choices(alphabet, k=self._length()))

    def _datetime(self) -> datetime:
        day = date.fromordinal(self.rng.randint(2, 3_652_058))
        clock = time(self.rng.randrange(24), 2, 3, self.rng.choice((0, 1, 999_999, 120_000)))
        zone, fold = self.rng.choice(ZONES), self.rng.randrange(2)
        return datetime.combine(day, clock).replace(tzinfo=zone, fold=fold)

    def _decimal(self) -> Decimal:
        digits = tuple(self.rng.choices(range(10), k=self.rng.choice((1, 2, 9, 40))))
        return Decimal((self.rng.randrange(2), digits, self.rng.randint(-50, 50)))


def planted(maker: Maker, bad: Any) -> tuple[Any, str]:
    """A value with something refusable somewhere inside, and the path to it."""
    value, path = bad, ""
    for _ in range(maker.rng.randrange(7)):
        value, step = maker.rng.choice(_wrapped(value, maker.atom()))
        path = step + path
    return value, f"${path}"


def _wrapped(value: Any, good: Any) -> list[tuple[Any, str]]:
    return [
        ([good, value, good], "[1]"),
        ((value, good), "[0]"),
        ({"a": good, "b": value}, ".b"),
        ({"b c": value}, "['b c']"),
        ({7: value, "x": good}, "[7]"),
        ({(1,): value}, "[tuple key]"),
        (Order(good, value), ".lines"),
        (Receipt(id=value), ".id"),
        (Point(good, value), ".y"),
        (Job(value), ".id"),
        (Frozen(first_name=good, last_name=value), ".last_name"),
        (Model(id=value), ".id"),
    ]
