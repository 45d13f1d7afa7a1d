"""A loop that is killed at every store call and every transition ends as if nothing had been."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from outlive.testing.crash.lab import CrashReport, Lab, Play
from outlive.testing.crash.points import Point
from tests.conftest import Figure
from tests.harness.postgres_server import PostgresServer
from tests.loop import errands

pytestmark = [pytest.mark.alone("sweep"), pytest.mark.timeout(3600)]

ROOT = str(Path(__file__).parents[2])
PARALLEL = 12
#: Of each kind, unless all are wanted.
CALLS, MOMENTS, CALLS_POSTGRES = 24, 16, 10


def lab(folder: Path, scene: str, server: str | None = None) -> Lab:
    play = Play(
        target=f"tests.loop.errands:{scene}",
        policies=errands.POLICIES,
        events_min=4,
        checks=(errands.check,),
        search_path=(ROOT,),
        server=server,
    )
    return Lab(play, folder, parallel=PARALLEL)


def killed(crashes: Lab, points: list[Point]) -> CrashReport:
    report = crashes.crash_at(points)
    shown = "\n".join(report.violations[:5])
    assert not report.violations, f"{len(report.violations)} violations:\n{shown}"
    return report


@pytest.mark.parametrize("scene", ["agent", "plain", "under_worker"])
def test_killed_at_store_calls(
    trials: Path, scene: str, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Before and after any of them: the same end, each keyed tool call once."""
    with lab(trials, scene) as crashes:
        points = list(crashes.survey().call_points())
        some = points if full else chance.sample(points, CALLS)
        report = killed(crashes, some)

    counted = f"{report.hits} hit of {len(some)} of {len(points)} in {report.seconds:.0f} s"
    figure(f"loop: crash points, store calls, {scene}", counted)
    assert report.hits > len(some) // 2


def test_a_loop_that_is_not_kept_is_gone_whatever_was_killed(
    trials: Path, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Its journal can't be audited any more: its receipts have to be right all the same."""
    with lab(trials, "fleeting") as crashes:
        points = list(crashes.survey().call_points())
        report = crashes.crash_at(points if full else chance.sample(points, CALLS))

    figure("loop: crash points, store calls, not kept", f"{report.hits} hit of {len(points)}")
    broken = [each for each in report.violations if "a pass ended with" in each]
    for trial in report.trials:
        assert trial.evidence is not None
        broken += errands.check_gone(trial.evidence)
    assert [] == broken
    assert report.hits > len(report.trials) // 2


def test_killed_at_every_transition(
    trials: Path, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Around every commit, of which each checkpoint is one, and around every effect."""
    with lab(trials, "agent") as crashes:
        points = list(crashes.survey().moment_points())
        some = points if full else chance.sample(points, MOMENTS)
        report = killed(crashes, some)

    figure("loop: crash points, moments", f"{report.hits} hit of {len(some)} of {len(points)}")
    assert report.hits > len(some) // 2


def test_killed_at_store_calls_on_postgresql(
    trials: Path, postgres: PostgresServer, figure: Figure, full: bool, chance: random.Random
) -> None:
    """The same where a lease has to pass."""
    with lab(trials, "agent", postgres.url(connect_timeout="60")) as crashes:
        points = list(crashes.survey().call_points())
        some = points if full else chance.sample(points, CALLS_POSTGRES)
        report = killed(crashes, some)

    counted = f"{report.hits} hit of {len(some)} of {len(points)} in {report.seconds:.0f} s"
    figure("loop: crash points, store calls, postgresql", counted)
    assert report.hits > len(some) // 3
