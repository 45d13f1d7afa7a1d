"""Every default has one home: ``outlive.model.defaults``."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlive.model import defaults
from outlive.settings import Settings

SRC = Path(inspect.getfile(defaults)).parent.parent
#: What users get for their own tests has numbers of its own, and so has the demo.
OWN_NUMBERS = ("testing/", "cli/demo/")
DURATIONS = {
    value for value in vars(defaults).values() if type(value) is str and value[0].isdigit()
}


def literals(node: ast.expr | None) -> Iterator[str | int | float]:
    if isinstance(node, ast.Constant) and type(node.value) in (str, int, float):
        yield node.value


def defaults_of(tree: ast.AST) -> Iterator[tuple[int, str, str | int | float]]:
    """(line, name, value) of each parameter and each field that has a literal as its default."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            named = [*node.posonlyargs, *node.args]
            with_default = named[len(named) - len(node.defaults) :]
            pairs = [*zip(with_default, node.defaults, strict=True)]
            pairs += [
                (arg, value)
                for arg, value in zip(node.kwonlyargs, node.kw_defaults, strict=True)
                if value is not None
            ]
            for arg, value in pairs:
                yield from ((arg.lineno, arg.arg, each) for each in literals(value))
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield from ((field.lineno, field.target.id, x) for x in literals(field.value))


def is_default(name: str, value: str | float) -> bool:
    """Whether it is a number of seconds, of things at once, or a duration that somebody chose."""
    if type(value) is str:
        return value in DURATIONS
    return value not in (0, 1) and (
        name.endswith(("_seconds", "_ms")) or name in {"limit", "concurrency", "attempts", "factor"}
    )


def found() -> list[str]:
    return [
        f"{path.relative_to(SRC)}:{line}: {name} = {value!r}"
        for path in sorted(SRC.rglob("*.py"))
        if not path.relative_to(SRC).as_posix().startswith(OWN_NUMBERS)
        for line, name, value in defaults_of(ast.parse(path.read_text()))
        if is_default(name, value)
    ]


def test_no_default_is_a_literal_elsewhere() -> None:
    """A parameter or field whose default is a number or duration takes it from ``defaults``."""
    assert [] == found()


def test_no_name_stands_twice() -> None:
    """No other module assigns a constant that ``defaults`` defines."""
    ours = {name for name in vars(defaults) if name.isupper()}
    twice = [
        f"{path.relative_to(SRC)}:{node.lineno}: {node.targets[0].id}"
        for path in sorted(SRC.rglob("*.py"))
        if path.name != "defaults.py" and not path.relative_to(SRC).as_posix().startswith("testing")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ours
    ]

    assert [] == twice


@pytest.mark.parametrize("name", [n for n in vars(defaults) if n.endswith("_SECONDS")])
def test_seconds_are_seconds(name: str) -> None:
    """A duration in seconds is a number above zero."""
    assert getattr(defaults, name) > 0


def test_the_environment_without_settings_gives_the_defaults() -> None:
    """``Settings()`` and an empty environment agree."""
    assert Settings() == Settings.from_environment({})
