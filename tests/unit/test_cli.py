"""The command line's parts, each by itself."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

import outlive
from outlive.cli import main
from outlive.cli.modules import find_flow, flows_of, parse_input
from outlive.cli.output import age, print_table, safe, took
from outlive.errors import UsageError


@dataclass
class Box:
    """A dataclass."""

    cents: int
    day: date | None = None


class Struct(msgspec.Struct):
    """A Struct."""

    box: Box


class Model(pydantic.BaseModel):
    """A pydantic model."""

    box: Box
    name: str = "x"


class Pair(NamedTuple):
    """A NamedTuple."""

    a: int
    b: int


@outlive.flow
async def take(
    box: Box,
    struct: Struct | None = None,
    model: Model | None = None,
    *rest: Decimal,
    price: float = 1.0,
    **more: Pair,
) -> None:
    """Takes anything."""


@outlive.flow
async def loose(x, y: Any = 2) -> None:  # type: ignore[no-untyped-def]
    """Says nothing about its arguments."""


@outlive.flow
async def models(many: list[Model], tags: set[str]) -> None:
    """Models inside a list."""


@outlive.flow
async def keyed(*, id: str) -> None:
    """A name that is taken."""


def test_json_becomes_what_the_hints_say() -> None:
    """By position and by name, defaults left as they are."""
    args, kwargs = parse_input(take, '[{"cents": 5, "day": "2024-01-02"}]')

    assert (Box(5, date(2024, 1, 2)), None, None) == args
    assert {"price": 1.0} == kwargs

    text = """{"box": {"cents": 1}, "struct": {"box": {"cents": 2}}, "price": 3,
               "p": [1, 2]}"""
    args, kwargs = parse_input(take, text)

    assert (Box(1), Struct(Box(2)), None) == args
    assert {"price": 3.0, "p": Pair(1, 2)} == kwargs
    assert float is type(kwargs["price"])


def test_each_of_the_rest_is_converted() -> None:
    """``*rest`` takes its hint for every one."""
    args, _ = parse_input(take, '[{"cents": 5}, null, null, "1.50", "2"]')

    assert (Decimal("1.50"), Decimal("2")) == args[3:]


def test_pydantic_models_are_validated_by_themselves() -> None:
    """Also inside of lists."""
    args, _ = parse_input(models, '[[{"box": {"cents": 1}}], ["a", "a"]]')

    assert ([Model(box=Box(1))], {"a"}) == args
    with pytest.raises(UsageError, match="argument 'many'"):
        parse_input(models, '[[{"box": 1}], []]')


def test_what_has_no_hint_is_left_alone() -> None:
    """JSON's own types come through."""
    assert (({"a": [1]}, 2), {}) == parse_input(loose, '[{"a": [1]}]')
    assert ((None, 2), {}) == parse_input(loose, '{"x": null}')


def test_no_input_is_no_arguments() -> None:
    """A flow that needs some says so."""
    with pytest.raises(UsageError, match="missing a required argument: 'box'"):
        parse_input(take, None)


def test_a_parameter_that_can_not_be_given_is_named() -> None:
    """Rather than being taken for the run's id."""
    with pytest.raises(UsageError, match="keyword-only parameter 'id'"):
        parse_input(keyed, '{"id": "x"}')


def module_with(**names: Any) -> ModuleType:
    module = ModuleType("made_up")
    vars(module).update(names)
    return module


def test_flows_are_found_among_a_modules_names() -> None:
    """Each once, however often and with whatever options it is there."""
    module = module_with(take=take, same=take, tagged=take.options(tags={"a": "b"}), other=3)

    assert [take] == flows_of([module, module])


def test_a_flow_is_found_by_its_own_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only by that of the variable."""
    renamed = outlive.flow(name="given")(take.fn)
    monkeypatch.setitem(sys.modules, "made_up", module_with(variable=renamed))

    assert renamed is find_flow("made_up:variable")
    assert renamed is find_flow("made_up:given")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢", "plain é 漢"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202egnp", "\\u202egnp"),
        ("\udcff", "\\udcff"),
    ],
)
def test_text_from_outside_steers_no_terminal(text: str, shown: str) -> None:
    """Control characters are escaped; everything else is left as it is."""
    assert shown == safe(text)


def test_a_plain_table_is_the_same_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns as wide as their widest cell, no colours, no trailing spaces."""
    print_table(("A", "LONG"), [["1", ""], ["222", "x\n"]])

    assert "A    LONG\n1\n222  x\\n\n" == capsys.readouterr().out


def test_durations_have_one_unit() -> None:
    """The largest that fits."""
    assert ["0s", "59s", "1m", "2h", "3d", "0s"] == [
        age(seconds * 1000) for seconds in (0, 59, 60, 7200, 3 * 86400, -5)
    ]
    assert ["", "5 ms", "1.5 s"] == [took(each) for each in (None, 5, 1500)]


def test_the_demo_parses_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever follows ``demo`` is passed on as it is."""
    seen: list[list[str]] = []

    def pretend(argv: list[str]) -> int:
        seen.append(argv)
        return 7

    monkeypatch.setitem(sys.modules, "outlive.cli.demo", module_with(main=pretend))

    assert 7 == main(["demo", "--seed", "3", "--help"])
    assert 7 == main(["--debug", "demo"])
    assert [["--seed", "3", "--help"], []] == seen


def test_a_fault_of_our_own_is_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the way to the traceback."""

    def broken(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError("by\nnothing")

    monkeypatch.setattr("outlive.cli.runs.open_app", broken)

    assert 1 == main(["runs"])
    err = capsys.readouterr().err
    assert "outlive: unexpected ZeroDivisionError: by nothing; --debug shows where\n" == err
    assert 1 == main(["runs", "--debug"])
    assert "Traceback" in capsys.readouterr().err
