"""What is written comes back with the same types, values and order at every depth, or is refused.

Nothing in between: a value that comes back changed would make a replay another run.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from outlive.errors import ValueRefused
from tests.values.generate import TWINS, Maker, planted, refusable
from tests.values.specimens import Order, Point, codec, identical

SEED = 20_240_229
ALL = codec()

Figure = Callable[[str, object], None]


@pytest.mark.parametrize("part", range(4))
def test_generated_values_come_back_identical(part: int, full: bool, figure: Figure) -> None:
    """Random values of every kind round-trip exactly; no two of them share their bytes."""
    count = 250_000 if full else 25_000
    maker = Maker(SEED + part)
    written: dict[bytes, Any] = {}

    for n in range(count):
        value = maker.value()
        data = ALL.encode(value)
        assert identical(value, ALL.decode(data)), (SEED + part, n)
        assert identical(value, written.setdefault(data, value)), (SEED + part, n)

    figure(
        f"values: generated values that came back identical (part {part + 1} of 4)",
        f"{count} ({len(written)} different)",
    )


def test_refusable_values_are_refused_by_path(full: bool, figure: Figure) -> None:
    """Whatever holds something that would not come back is refused, with the path to it."""
    count = 50_000 if full else 5_000
    maker = Maker(SEED)

    for n in range(count):
        value, path = planted(maker, refusable(maker.rng))
        with pytest.raises(ValueRefused) as refused:
            ALL.encode(value)
        assert path == refused.value.path, n

    figure("values: planted parts refused with the path to them", count)


def contexts(value: Any) -> list[Any]:
    """A value in every place where a value can be."""
    found = [value, [value], (value,), {"k": value}, {1: value}, Order(value), Point(0, value)]
    try:
        hash(value)
    except TypeError:
        return found
    return [*found, {value}, frozenset([value]), {value: 0}, {(value, 1): 0}]


def test_twins_are_told_apart(figure: Figure) -> None:
    """Values that look alike have different bytes wherever they stand, and come back unchanged."""
    pairs = 0
    for group in TWINS:
        for value in group:
            for placed in contexts(value):
                assert identical(placed, ALL.decode(ALL.encode(placed)))
        for one, other in itertools.combinations(group, 2):
            for a, b in zip(contexts(one), contexts(other), strict=False):
                assert identical(a, b) == (ALL.encode(a) == ALL.encode(b)), (a, b)
                pairs += 1

    figure("values: pairs of twins told apart", pairs)
    assert pairs > 2_000


def shuffled(maker: Maker, value: Any) -> Any:
    """The same value with every dict in another order."""
    match value:
        case dict():
            keys = list(value)
            maker.rng.shuffle(keys)
            return {key: shuffled(maker, value[key]) for key in keys}
        case list():
            return [shuffled(maker, part) for part in value]
        case Order():
            return Order(shuffled(maker, value.id), shuffled(maker, value.lines))
        case tuple() if type(value) is tuple:
            return tuple(shuffled(maker, part) for part in value)
    return value


def test_only_the_order_of_dicts_is_forgiven(figure: Figure) -> None:
    """Two encodings are the same if and only if their values differ in nothing but dict order."""
    maker = Maker(SEED)
    values = [maker.value() for _ in range(1_500)]
    reordered = 0
    for value in values:
        data, other = ALL.encode(value), ALL.encode(shuffled(maker, value))
        reordered += data != other
        assert ALL.same(data, other)
    for group in TWINS:
        for one, two in itertools.combinations(group, 2):
            is_same = isinstance(one, dict) and isinstance(two, dict) and one == two
            if not is_same or not identical(sorted(map(repr, one)), sorted(map(repr, two))):
                assert ALL.same(ALL.encode([one]), ALL.encode([two])) == identical(one, two)

    figure("values: reordered values still the same", reordered)
    assert reordered > 300


def test_order_is_kept() -> None:
    """A dict comes back in the order in which it was built, not sorted."""
    value = {"b": 1, "a": {"z": 1, "y": 2}, "c": {2: 0, 1: 0}}

    back = ALL.decode(ALL.encode(value))

    assert ["b", "a", "c"] == list(back)
    assert ["z", "y"] == list(back["a"])
    assert [2, 1] == list(back["c"])


def test_a_value_comes_back_as_a_copy_of_its_own() -> None:
    """Changing what was read changes neither the original nor the next reading."""
    value = {"a": [1], "b": Order(1, [2])}
    data = ALL.encode(value)

    back = ALL.decode(data)
    back["a"].append(2)
    back["b"].lines.append(3)

    assert {"a": [1], "b": Order(1, [2])} == value == ALL.decode(data)


def measured(action: Callable[[], object], number: int) -> float:
    """Microseconds of the best of many rounds."""
    best = float("inf")
    for _ in range(60):
        began = time.perf_counter()
        for _ in range(number):
            action()
        best = min(best, time.perf_counter() - began)
    return best / number * 1e6


@pytest.mark.alone("time")
def test_what_it_costs(figure: Figure) -> None:
    """Times are printed, not judged: they say more about the machine than about the code."""
    flat = {"id": "A-12345", "mail": "a@example.com", "cents": 1999, "note": "x" * 130, "ok": True}
    nested = {"id": "x" * 20, "t": 1.5, "tags": ["a", "b"], "n": 3, "who": "user", "x": "y" * 80}
    messages = [{"role": "user", "content": "z" * 900} for _ in range(11)]
    for name, value in {
        "text of 200 bytes": "x" * 200,
        "flat dict of 200 bytes": flat,
        "nested dict of 6 keys": nested,
        "10 kB of messages": messages,
        "dataclass of 2 fields": Order(1, "x"),
    }.items():
        data = ALL.encode(value)
        write = measured(lambda value=value: ALL.encode(value), 200)
        read = measured(lambda data=data: ALL.decode(data), 200)
        figure(f"values: µs to write / read {name}", f"{write:.2f} / {read:.2f}")
