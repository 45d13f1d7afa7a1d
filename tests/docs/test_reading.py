"""docs/reading.md is true: what it names is there, and what is there is named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "outlive"
TEXT = (ROOT / "docs" / "reading.md").read_text()
#: What stands above the list of all modules, which is made from the code.
PROSE = TEXT.partition("## Every module")[0]


def named() -> list[str]:
    """Everything between backticks in the prose."""
    return re.findall(r"`([^`\n]+)`", PROSE)


def defined() -> set[str]:
    """Functions, classes and methods (with their class) of all our modules."""
    return {
        name
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        for name in names_of(node)
    }


def names_of(node: ast.AST, inside: str = "") -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield inside + node.name
    elif isinstance(node, ast.ClassDef):
        yield node.name
        for each in node.body:
            yield from names_of(each, f"{node.name}.")


def test_every_path_is_there() -> None:
    """A reader who follows a path arrives."""
    paths = [name for name in named() if re.fullmatch(r"[\w/*]+(\.py|/)", name)]

    assert [] == [
        path
        for path in paths
        if not any(folder.joinpath(path).exists() for folder in (ROOT, SOURCE))
        and not path.endswith("*")
    ]


def test_every_method_and_event_is_there() -> None:
    """What the tables call by name can be searched for."""
    known = defined()
    rows = [line.split("|")[2:4] for line in PROSE.splitlines() if line.startswith("| ")]
    words = [word for row in rows for cell in row for word in re.findall(r"`([A-Za-z_.]+)`", cell)]
    names = {word for word in words if not word.endswith(".py")}
    plain = {"check", "asks"}

    assert set() == names - known - plain


def test_every_module_is_named() -> None:
    """No module is left out."""
    modules = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}

    assert [] == sorted(module for module in modules if f"`{module}`" not in TEXT)


def test_the_way_leads_from_events_to_the_app() -> None:
    """The order of reading begins with what can happen and ends where all parts meet."""
    way = re.findall(r"^\d+\. .*", PROSE, re.MULTILINE)

    assert "model/events.py" in way[0]
    assert "`app.py`" in way[-1]
