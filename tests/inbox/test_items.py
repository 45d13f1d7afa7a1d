"""Every item of the acceptance list has a test that names its number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from outlive.inbox import JSONFilePersistence, PersistentActivityBuffer
from tests.inbox.conftest import envelope
from tests.inbox.items import ITEMS, OPEN

FOLDERS = ("inbox", "locks", "worktree")


def named() -> set[int]:
    """The items that docstrings of tests name."""
    found: set[int] = set()
    for folder in FOLDERS:
        for path in (Path(__file__).parents[1] / folder).glob("test_*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                is_test = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                said = (ast.get_docstring(node) or "") if is_test else ""
                for numbers in re.findall(r"\bItems? ([\d, ]+)", said):
                    found.update(map(int, re.findall(r"\d+", numbers)))
    return found


def test_every_item_has_a_test_or_is_open() -> None:
    """What is not shown by a test is listed as open, and nothing else is."""
    assert ITEMS.keys() - OPEN.keys() == named()


def test_a_message_costs_the_same_at_any_size(tmp_path: Path) -> None:
    """Item 31; weakness 7: the bytes of one more message do not depend on how many there are."""
    inbox = PersistentActivityBuffer(persistence=JSONFilePersistence(tmp_path / "a.json"))
    log, grown = tmp_path / "a.json.log", []
    message = envelope("t")
    for size in (10, 1000):
        inbox.record_many([{**message, "message_id": f"{size}-{n:04}"} for n in range(size)])
        before = log.stat().st_size
        inbox.record_incoming({**message, "message_id": f"{size:04}-last"})
        grown.append(log.stat().st_size - before)
    assert grown[0] == grown[1]
