"""docs/reading.md is true: it names what is there, all that is there, and the way of a run."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import followed_run

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "outlive"
TEXT = (ROOT / "docs" / "reading.md").read_text()
#: Read in fifteen minutes.
BYTES_MAX = 12_000
#: Rows of "Follow one run" that this run does not pass: its old driver is dead, and it ends well.
ELSEWHERE = ("the old process was only stopped", "or it raises")
PATH = re.compile(r"[\w/]+\.py")


def names_of(node: ast.AST, inside: str = "") -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield inside + node.name
    elif isinstance(node, ast.ClassDef):
        yield node.name
        for each in node.body:
            yield from names_of(each, f"{node.name}.")


def defined(path: Path) -> set[str]:
    """Functions, classes and methods (with their class) of a module."""
    return {name for node in ast.parse(path.read_text()).body for name in names_of(node)}


def rows() -> list[tuple[str, list[str], list[tuple[str, str]]]]:
    """(what happens, events, (file, name) of each function) of "Follow one run"."""
    part = TEXT.partition("## Follow one run")[2].partition("\n## ")[0]
    found = []
    for line in part.splitlines():
        if line.startswith("| ") and not line.startswith("| what happens"):
            what, events, where = (cell.strip() for cell in line.split("|")[1:4])
            found.append((what, re.findall(r"`(\w+)`", events), list(places(where))))
    return found


def places(cell: str) -> Iterator[tuple[str, str]]:
    path = ""
    for word in re.findall(r"`([^`]+)`", cell):
        if PATH.fullmatch(word):
            path = word
        else:
            yield path, word


def test_the_page_is_read_in_fifteen_minutes() -> None:
    """It is short, and begins with events and ends with the app."""
    way = re.findall(r"^\d+\. .*", TEXT, re.MULTILINE)

    assert len(TEXT.encode()) <= BYTES_MAX
    assert "model/events.py" in way[0]
    assert "app/app.py" in way[-1]


def test_every_path_is_there() -> None:
    """A reader who follows a path arrives."""
    paths = set(re.findall(r"`([\w/]+(?:\.py|/))`", TEXT)) - {"outlive/"}

    assert paths
    assert [] == sorted(
        path for path in paths if not any((top / path).exists() for top in (ROOT, SOURCE))
    )


def test_every_function_is_in_the_file_that_is_named() -> None:
    """A reader who opens the file finds the function there."""
    named = [place for _, _, found in rows() for place in found]

    assert len(named) > 40
    assert [] == [(path, name) for path, name in named if name not in defined(SOURCE / path)]


def test_every_event_is_one() -> None:
    """What is said to be appended is an event."""
    events = defined(SOURCE / "model" / "events.py") | defined(SOURCE / "model" / "shared.py")

    assert set() == {name for _, named, _ in rows() for name in named} - events


def test_every_module_is_named() -> None:
    """No module is left out of the tree."""
    tree = {
        cells[1].strip().strip("`"): set(cells[3].split())
        for line in TEXT.splitlines()
        if line.startswith("| `") and len(cells := line.split("|")) == 5
    }
    modules = {
        f"{path.parent.relative_to(SOURCE.parent).as_posix()}/".removeprefix("outlive/")
        or "outlive/": {each.stem for each in path.parent.glob("*.py")} - {"__init__"}
        for path in SOURCE.rglob("__init__.py")
    }

    assert modules == tree


@pytest.mark.alone("processes")
def test_a_run_goes_that_way(tmp_path: Path) -> None:
    """Each function is called, by the process that dies or by the one that continues."""
    url = f"sqlite:///{tmp_path}/followed.db"
    command = [sys.executable, "-m", "tests.docs.followed_run", url, str(tmp_path)]
    died = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert -signal.SIGKILL == died.returncode, died.stderr
    followed_run.watch()
    try:
        outcome = asyncio.run(followed_run.go_on(url))
    finally:
        followed_run.unwatch()
    called = {tuple(each) for each in json.loads((tmp_path / "before.json").read_text())}
    called |= followed_run.CALLED
    constructed = {(path, name.partition(".")[0]) for path, name in called}
    wanted = {
        place for what, _, found in rows() if not what.startswith(ELSEWHERE) for place in found
    }

    assert 1999 == outcome
    assert [] == sorted(wanted - called - constructed)
