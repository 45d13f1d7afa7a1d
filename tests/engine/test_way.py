"""How far an effect, a run and a resume travel: counted, so that the way stays short."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_SCRIPT = Path(__file__).parents[2] / "scripts" / "count_way.py"

#: By chapter of the script: what is counted, and the most that it may be.
LIMITS = {
    "effect": {"own_calls": 92, "own_files": 26, "sql": 1},
    "keyed": {"own_calls": 180, "own_files": 34, "sql": 4},
    "many": {"calls": 80, "own_files": 24},
    "one_step": {"own_calls": 280, "sql": 3},
    "signal": {"sql": 4},
    "resume": {"own_calls": 800, "own_files": 66, "sql": 6},
}


@pytest.fixture(scope="module")
def counted() -> dict[str, dict[str, Any]]:
    asked = [sys.executable, str(_SCRIPT), "--json"]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    counted: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return counted


@pytest.mark.parametrize("chapter", list(LIMITS))
def test_the_way_is_no_longer_than_it_was(
    chapter: str, counted: dict[str, dict[str, Any]], figure: Any
) -> None:
    """Python calls, files and SQL statements stay within their limits."""
    found = counted[chapter]
    for what, most in LIMITS[chapter].items():
        figure(f"way: {chapter}, {what}", found[what])
        assert 0 < found[what] <= most, f"{chapter}: {found}"
