"""Killed at every call of the store: the next process ends as one that was never disturbed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.victim import STEPS
from tests.conftest import Figure
from tests.harness.postgres_server import PostgresServer
from tests.harness.programs import run_python

pytestmark = pytest.mark.alone("sweep")


def play(where: str, template: str, folder: Path, numbers: list[int]) -> list[dict[str, Any]]:
    ran = run_python("-m", "tests.checkpoints.victim", where, template, folder, *numbers)
    assert (0, "") == (ran.returncode, ran.stderr), ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def check(where: str, template: str, folder: Path, parts: int) -> int:
    """Kill at every call of a part of them; how many there are in all."""
    (whole,) = play(where, template, folder, [-1])
    expected, calls = whole["told"]
    points = range(0, 2 * len(calls), parts)
    for number, trial in zip(points, play(where, template, folder, list(points)), strict=True):
        place = f"call {number // 2 + 1} ({calls[number // 2]}), {number % 2}"
        assert trial["killed"], (place, trial)
        assert 0 == trial["ended"], (place, trial)
        assert expected == trial["told"][0], place
        paid = sorted(map(int, trial["receipts"]))
        # A step that was not saved is run again; one that was is not.
        assert set(range(1, STEPS)) == set(paid), place
        assert len(paid) <= STEPS, place
    return 2 * len(calls)


#: On threads of their own, and on the caller's loop.
WHERE = ("lane", "here")


@pytest.mark.parametrize("where", WHERE)
def test_on_sqlite(where: str, tmp_path: Path, full: bool, figure: Figure) -> None:
    """Every call, before and behind it; every third of them on ordinary days."""
    parts = 1 if full else 3
    points = check(where, f"sqlite:///{tmp_path}/NUMBER.db", tmp_path, parts)
    figure(f"checkpoints: kills on SQLite, {where}", points // parts)


@pytest.mark.parametrize("where", WHERE)
def test_on_postgresql(
    where: str, postgres: PostgresServer, tmp_path: Path, full: bool, figure: Figure
) -> None:
    """The same where a server keeps them."""
    parts = 1 if full else 5
    points = check(where, postgres.url(schema=f"{where}_NUMBER"), tmp_path, parts)
    figure(f"checkpoints: kills on PostgreSQL, {where}", points // parts)
