"""Killed at every call of the store: the next process ends as one that was never disturbed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outlive.testing.postgres_server import PostgresServer
from tests.checkpoints.victim import STEPS
from tests.conftest import Figure

pytestmark = pytest.mark.alone


def play(template: str, folder: Path, numbers: list[int]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.checkpoints.victim", template, str(folder)]
    ran = subprocess.run(
        [*command, *map(str, numbers)], capture_output=True, text=True, check=False, timeout=600
    )
    assert (0, "") == (ran.returncode, ran.stderr), ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def check(template: str, folder: Path, part: int, parts: int) -> int:
    """Kill at every call of a part of them; how many there are in all."""
    (whole,) = play(template, folder, [-1])
    expected, calls = whole["told"]
    points = range(part, 2 * len(calls), parts)
    for number, trial in zip(points, play(template, folder, list(points)), strict=True):
        where = f"call {number // 2 + 1} ({calls[number // 2]}), {number % 2}"
        assert trial["killed"], (where, trial)
        assert 0 == trial["ended"], (where, trial)
        assert expected == trial["told"][0], where
        paid = sorted(map(int, trial["receipts"]))
        # A step that was not saved is run again; one that was is not.
        assert set(range(1, STEPS)) == set(paid), where
        assert len(paid) <= STEPS, where
    return 2 * len(calls)


def test_on_sqlite(tmp_path: Path, full: bool, figure: Figure) -> None:
    """Every call, before and behind it; every third of them on ordinary days."""
    parts = 1 if full else 3
    points = check(f"sqlite:///{tmp_path}/NUMBER.db", tmp_path, 0, parts)
    figure("checkpoints: kills on SQLite", points // parts)


def test_on_postgresql(
    postgres: PostgresServer, tmp_path: Path, full: bool, figure: Figure
) -> None:
    """The same where a server keeps them."""
    parts = 1 if full else 5
    points = check(postgres.url(schema="kills_NUMBER"), tmp_path, 0, parts)
    figure("checkpoints: kills on PostgreSQL", points // parts)
