"""What holds without a key holds with one: the reference agent is killed, and goes on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.conftest import Figure
from tests.crash.test_crash_points import HALVES, assert_sound, lab, until_hits

pytestmark = [pytest.mark.alone("sweep"), pytest.mark.timeout(4 * 3600)]

CALLS_EACH = 12
SYSCALLS_MIN = 15


@pytest.fixture(autouse=True)
def sealing(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("OUTLIVE_KEY", key)


@pytest.mark.parametrize("half", HALVES)
def test_killed_at_store_calls(
    trials: Path, half: str, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Before and after calls of the sealed store."""
    with lab(trials, half) as crashes:
        points = list(crashes.survey().call_points())
        some = points if full else chance.sample(points, CALLS_EACH)
        report = crashes.crash_at(some)

    figure(f"sealed: killed at store calls, {half}", f"{report.hits} hit of {len(some)}")
    assert report.hits >= len(some) // 2
    assert_sound(report)


def test_killed_at_writes(trials: Path, figure: Figure, full: bool, chance: random.Random) -> None:
    """At any system call that writes, those that store keys too."""
    with lab(trials) as crashes:
        points = list(crashes.survey(trace=True).syscall_points())
        chance.shuffle(points)
        report = until_hits(crashes.crash_at, points, len(points) if full else SYSCALLS_MIN)

    figure("sealed: killed at system calls", f"{report.hits} hit of {len(points)}")
    assert report.hits >= SYSCALLS_MIN
    assert_sound(report)
