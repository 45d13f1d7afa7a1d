"""The reference agent on PostgreSQL, killed everywhere: the lease passes, and it goes on."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlive.testing.crash.lab import Lab
from tests.conftest import Figure
from tests.crash.test_crash_points import HALVES, assert_sound, lab, of_each_kind
from tests.harness.postgres_server import PostgresServer

pytestmark = [pytest.mark.alone("postgres"), pytest.mark.timeout(4 * 3600)]

#: Of each kind of store call; in full, all.
CALLS_EACH = 1
SYSCALLS, SYSCALLS_FULL = 8, 300


@pytest.fixture(params=HALVES)
def half(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def crashes(
    trials: Path, postgres: PostgresServer, half: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    """Over a network no death is certain, so that doubts wait for the time limits of effects."""
    monkeypatch.setenv("REFERENCE_TIMEOUT", "2s")
    with lab(trials, half, server=postgres.url(connect_timeout="60")) as crashes:
        yield crashes


def test_killed_at_every_store_call(
    crashes: Lab, half: str, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Killed before and after calls of the store, the runs end as if nothing had been."""
    points = list(crashes.survey().call_points())
    some = points if full else of_each_kind(points, CALLS_EACH, chance)
    report = crashes.crash_at(some)

    figure(
        f"postgresql: crash points, store calls, {half}",
        f"{report.hits} hit of {len(some)} of {len(points)} in {report.seconds:.0f} s",
    )
    assert report.hits > len(some) // 3
    assert_sound(report)


def test_killed_at_system_calls(
    crashes: Lab, half: str, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Killed before it asks the server, and before it hears the answer."""
    assert shutil.which("strace"), "strace is missing; `make setup` installs it"
    points = list(crashes.survey(trace=True).syscall_points())
    some = chance.sample(points, min(SYSCALLS_FULL if full else SYSCALLS, len(points)))
    report = crashes.crash_at(some)

    figure(
        f"postgresql: crash points, system calls, {half}",
        f"{report.hits} hit of {len(some)} of {len(points)} in {report.seconds:.0f} s",
    )
    assert report.hits > len(some) // 3
    assert_sound(report)
