"""Very many parts of one run: all of them end, failures are told, and memory stays flat."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.programs import told_by_python

Figure = Callable[[str, object], None]

#: What one more part may cost in memory: its place in the flow and its outcome, not its run.
KB_PER_PART = 8.0
KB_PER_PROCESS = 40_000.0
SECONDS_MAX = 3600.0


def expected(count: int) -> list[int]:
    """Good ones, bad ones, and the sum of the good ones."""
    good = [number for number in range(count) if number % 7 != 3]
    return [len(good), count - len(good), sum(good)]


def run(folder: Path, flow: str, count: int, limit: int, **settings: str) -> list[Any]:
    """Outcome, seconds, memory at first and at most, epochs of the parent."""
    words = ("-m", "tests.scale.many", f"sqlite:///{folder}/o.db", flow, count, limit)
    told: list[Any] = json.loads(told_by_python(*words, seconds=SECONDS_MAX, **settings))
    return told


@pytest.mark.parametrize(("flow", "limit"), [("over_steps", 50), ("over_children", 100)])
def test_a_thousand_parts(tmp_path: Path, flow: str, limit: int, figure: Figure) -> None:
    """Steps, and children: each failure is told and none keeps the others."""
    outcome, seconds, first, most, _ = run(tmp_path, flow, 1000, limit)
    figure(f"scale: {flow}, 1000: seconds, MB more", (round(seconds, 1), round(most - first, 1)))
    assert expected(1000) == outcome
    assert (most - first) * 1000 < KB_PER_PROCESS + 1000 * KB_PER_PART


def test_a_parent_of_many_is_evicted_while_they_run(
    tmp_path: Path, full: bool, figure: Figure
) -> None:
    """Ten thousand children (fewer unless at full counts); their parent is not in memory."""
    count = 10_000 if full else 1500
    outcome, seconds, first, most, epochs = run(
        tmp_path, "over_children", count, 200, OUTLIVE_IDLE_SECONDS="0"
    )
    told = (round(seconds, 1), round(first), round(most), epochs - 1)
    figure(f"scale: {count} children: seconds, MB at first and at most, evictions", told)
    assert expected(count) == outcome
    assert epochs > 3, "the parent never left memory"
    assert (most - first) * 1000 < KB_PER_PROCESS + count * KB_PER_PART
