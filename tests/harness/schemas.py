"""Stores as an earlier schema had them: the statements of a schema step, taken back."""

from __future__ import annotations

import re
from collections.abc import Sequence


def taken_back(step: Sequence[object]) -> list[str]:
    """Statements that take a step back, as far as what it made is in its own way; {s}: where."""
    return [undone for each in reversed(step) for undone in _taken_back(str(each))]


def _taken_back(statement: str) -> list[str]:
    """What takes back a statement of a schema step, as far as that is in the step's way."""
    lines = (line for line in statement.splitlines() if not line.startswith("--"))
    words = " ".join(" ".join(lines).split()).replace("{s}.", "")
    if made := re.match(r"CREATE (TABLE|FUNCTION) (\w+)", words):
        kind, name = made.groups()
        return [f"DROP {kind} {{s}}{name}"]
    if made := re.match(r"CREATE INDEX (\w+) ON (?!tags)", words):
        return [f"DROP INDEX {{s}}{made[1]}"]
    if made := re.match(r"CREATE TRIGGER (\w+) .*? ON (\w+)", words):
        on_table = f" ON {{s}}{made[2]}" if "EXECUTE FUNCTION" in words else ""
        return [f"DROP TRIGGER {made[1]}{on_table}"]
    if made := re.match(r"ALTER TABLE (\w+) ADD COLUMN", words):
        columns = re.findall(r"ADD COLUMN (\w+)", words)
        return [f"ALTER TABLE {{s}}{made[1]} DROP COLUMN {column}" for column in columns]
    return []
