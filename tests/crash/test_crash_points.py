"""The reference agent, killed everywhere, goes on without losing or repeating anything."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from outlive.testing.crash_lab import Lab, Play, Report
from outlive.testing.crash_points import Point
from tests.conftest import Figure
from tests.crash.reference_agent import POLICIES
from tests.crash.scenes import RUN_ID, check_outcome

pytestmark = [pytest.mark.alone, pytest.mark.timeout(4 * 3600)]

ROOT = str(Path(__file__).parents[2])
#: Trials mostly wait for time limits, so many fit on one core.
PARALLEL = 12
SYSCALLS_MIN = 300
#: Effects that come off at the first attempt: only a kill can repeat them.
STEADY = {"refund", "charge", "reserve"}


def lab(folder: Path, scene: str = "scene", *, idle_seconds: float = 0.0) -> Lab:
    play = Play(
        target=f"tests.crash.scenes:{scene}",
        policies=POLICIES,
        events_min=5,
        checks=(check_outcome,),
        search_path=(ROOT,),
        idle_seconds=idle_seconds,
    )
    return Lab(play, folder, parallel=PARALLEL)


def assert_sound(report: Report) -> None:
    shown = "\n".join(report.violations[:10])
    assert not report.violations, f"{len(report.violations)} violations:\n{shown}"


def until_hits(
    crash: Callable[[Sequence[Point]], Report], points: Sequence[Point], hits_min: int
) -> Report:
    """Try points in this order until so many were reached: no two passes have quite the same."""
    total = Report()
    for begin in range(0, len(points), 60):
        report = crash(points[begin : begin + 60])
        total.trials += report.trials
        total.seconds += report.seconds
        if total.hits >= hits_min:
            break
    return total


@pytest.mark.parametrize("idle_seconds", [0.0, 2.0], ids=["evicted", "in memory"])
def test_killed_at_every_store_call(
    trials: Path, idle_seconds: float, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Killed before and after every call of the store, the run ends as if nothing had been."""
    with lab(trials, idle_seconds=idle_seconds) as crashes:
        points = list(crashes.survey().call_points())
        if idle_seconds and not full:
            points = chance.sample(points, len(points) // 3)
        report = crashes.crash_at(points)

    name = f"crash points, store calls, idle {idle_seconds:g} s"
    figure(name, f"{report.hits} hit of {len(points)} in {report.seconds:.0f} s")
    assert report.hits > len(points) // 2
    assert_sound(report)


def test_killed_at_every_moment(trials: Path, figure: Figure) -> None:
    """Killed around every effect's body and every commit, the run ends as if nothing had been."""
    with lab(trials, idle_seconds=2.0) as crashes:
        report = crashes.crash_at(crashes.survey().moment_points())

    figure("crash points, moments", f"{report.hits} hit in {report.seconds:.0f} s")
    assert report.hits > 60
    assert_sound(report)


def test_killed_at_every_write(
    trials: Path, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Killed at any system call that writes, the run ends as if nothing had been."""
    assert shutil.which("strace"), "strace is missing; `make setup` installs it"
    with lab(trials) as crashes:
        points = list(crashes.survey(trace=True).syscall_points())
        chance.shuffle(points)
        report = until_hits(crashes.crash_at, points, len(points) if full else SYSCALLS_MIN)

    figure(
        "crash points, system calls",
        f"{report.hits} hit of {len(points)} in {report.seconds:.0f} s",
    )
    assert report.hits >= SYSCALLS_MIN
    assert_sound(report)


def test_killed_under_a_worker(
    trials: Path, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Runs that were handed in and are driven by whatever worker comes survive it, too."""
    with lab(trials, "worker_scene") as crashes:
        points = list(crashes.survey().call_points())
        report = crashes.crash_at(points if full else chance.sample(points, 60))

    figure("crash points, worker", f"{report.hits} hit in {report.seconds:.0f} s")
    assert report.hits >= 30
    assert_sound(report)


def test_killed_again_while_it_recovers(
    trials: Path, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Killed at a point, and again at the points of the recovery, it still ends as it should."""
    pairs: list[tuple[Point, Point]] = []
    with lab(trials) as crashes:
        survey = crashes.survey(trace=True)
        calls, writes = list(survey.call_points()), list(survey.syscall_points())
        firsts = chance.sample(calls, 4) + chance.sample(writes, 4)
        for first in firsts:
            after = crashes.survey([first], trace=True)
            seconds = [*after.call_points(), *after.syscall_points()]
            some = seconds if full else chance.sample(seconds, min(30, len(seconds)))
            pairs += [(first, second) for second in some]
        report = crashes.crash(pairs)

    figure("crash points, pairs", f"{report.hits} hit of {len(pairs)} in {report.seconds:.0f} s")
    assert report.hits >= len(pairs) // 3
    assert_sound(report)


def test_the_naive_twin_repeats_itself(trials: Path, figure: Figure, chance: random.Random) -> None:
    """The same agent with plain steps for effects does things twice: the harness can see it."""
    with lab(trials, "naive_scene") as crashes:
        points = list(crashes.survey().call_points())
        report = crashes.crash_at(chance.sample(points, 60))

    repeated = sum(
        count - 1
        for trial in report.trials
        if trial.evidence is not None
        for (effect, _), count in Counter(
            (each.effect, each.key) for each in trial.evidence.receipts if each.run_id == RUN_ID
        ).items()
        if effect in STEADY
    )
    figure("crash points, naive twin", f"{repeated} repeated by kills, {report.hits} hit")
    assert repeated > 0
    assert any("happened 2 times" in words for words in report.violations)
