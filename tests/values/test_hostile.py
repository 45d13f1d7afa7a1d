"""Nothing thrown at the codec costs more than a moment and a little memory, and nothing sticks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from outlive.errors import ValueRefused, WrongVersion
from tests.harness.programs import told_by_python
from tests.values.hostile import ALL, CASES, MEGABYTE, TO_READ, TO_WRITE

Figure = Callable[[str, object], None]


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    """Every case tried in a process of its own, so that its memory can be seen."""
    told = told_by_python("-m", "tests.values.hostile")
    lines = map(json.loads, told.splitlines())
    return {line["case"]: line for line in lines}


def test_every_case_is_refused_at_once(answers: dict[str, dict[str, Any]], figure: Figure) -> None:
    """Each in under a second and 64 MiB, by an error of ours with a short text."""
    bad = {
        case: answer
        for case, answer in answers.items()
        if answer["refused"] not in ("ValueRefused", "WrongVersion")
        or answer["seconds"] >= 1
        or answer["bytes"] >= 64 * MEGABYTE
        or not 0 < answer["length"] < 1000
    }

    slowest = max(answers.values(), key=lambda answer: answer.get("seconds", 0))
    largest = max(answers.values(), key=lambda answer: answer.get("bytes", 0))
    figure("values: hostile cases refused", f"{len(answers) - len(bad)} of {len(CASES)}")
    figure("values: slowest hostile case", f"{slowest['seconds']:.2f} s ({slowest['case']})")
    figure("values: hungriest hostile case", f"{largest['bytes'] >> 20} MiB ({largest['case']})")
    assert not bad
    assert set(CASES) == set(answers)
    assert len(CASES) >= 60


@pytest.mark.parametrize("name", TO_WRITE)
def test_hostile_values_are_refused(name: str) -> None:
    """What can't come back as it is is not written."""
    with pytest.raises(ValueRefused) as refused:
        ALL.encode(TO_WRITE[name]())

    assert refused.value.path.startswith("$")


@pytest.mark.parametrize("name", TO_READ)
def test_hostile_bytes_are_refused(name: str) -> None:
    """What no release wrote is not read, nor what has parts that are not at hand."""
    with pytest.raises(ValueRefused):
        ALL.decode(TO_READ[name]())


def test_every_cut_of_a_value_is_refused() -> None:
    """A value's bytes without their end are never another value."""
    for cases in ({"a": [1, (2, "x" * 40)], "b": {1: b"y"}}, ["é", 1.5, {2**70}], "text"):
        data = ALL.encode(cases)
        for end in range(len(data)):
            with pytest.raises(ValueRefused):
                ALL.decode(data[:end])


def test_damaged_bytes_never_raise_anything_else(figure: Figure) -> None:
    """Flipping any bit of any value gives another value or a refusal, nothing worse."""
    from tests.values.generate import Maker

    maker = Maker(7)
    refused = tried = 0
    while tried < 40_000:
        data = ALL.encode(maker.value(2))[:400]
        for bit in range(0, len(data) * 8, 1 + len(data) // 8):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            tried += 1
            try:
                ALL.decode(bytes(damaged))
            except (ValueRefused, WrongVersion):
                refused += 1

    figure("values: damaged values read without harm", f"{tried} ({refused} refused)")


def test_a_value_of_the_largest_size_fits_and_one_byte_more_does_not() -> None:
    """The limit is on the recorded bytes, and it is exact."""
    largest = "x" * (64 * MEGABYTE - 5)

    assert 64 * MEGABYTE == len(ALL.encode(largest))
    with pytest.raises(ValueRefused, match="larger than 67108864 bytes"):
        ALL.encode(largest + "x")
    with pytest.raises(ValueRefused, match="more than a value's"):
        ALL.decode(bytes(64 * MEGABYTE + 1))
