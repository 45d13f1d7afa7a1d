"""The reference agent, killed everywhere, goes on without losing or repeating anything."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from outlive.testing.crash.failing_store import CallFault
from outlive.testing.crash.lab import CrashReport, Lab, Play
from outlive.testing.crash.points import Point
from tests.conftest import Figure
from tests.crash import family_scene, reference_agent, reference_family, scenes
from tests.crash.scenes import RUN_ID

pytestmark = [pytest.mark.alone("sweep"), pytest.mark.timeout(4 * 3600)]

ROOT = str(Path(__file__).parents[2])
#: Trials mostly wait for time limits, so many fit on one core.
PARALLEL = 12
#: Points of each kind that are tried on ordinary days: before and after each verb of the store.
CALLS_EACH, CALLS_EACH_IN_MEMORY = 8, 2
MOMENTS = 24
SYSCALLS_MIN, SYSCALLS_MIN_FULL = 30, 150
#: First deaths, at store calls and at writes each.
FIRSTS, FIRSTS_FULL = 1, 4
#: Second deaths per first one, of some hundred that there are.
PAIRS_EACH, PAIRS_EACH_FULL = 8, 100
#: Kills of the naive twin until it did something twice.
NAIVE_AT_ONCE, NAIVE_MAX = 12, 60
#: Effects that come off at the first attempt: only a kill can repeat them.
STEADY = {"refund", "charge", "reserve"}


#: The two halves of the reference agent: steps and effects; people, other runs and ends.
HALVES = ("agent", "family")


def lab(
    folder: Path, scene: str = "agent", *, idle_seconds: float = 0.0, server: str | None = None
) -> Lab:
    is_family = scene == "family"
    policies = reference_family.POLICIES if is_family else reference_agent.POLICIES
    play = Play(
        target="tests.crash.family_scene:scene" if is_family else f"tests.crash.scenes:{scene}",
        policies=policies,
        events_min=4,
        checks=(family_scene.check if is_family else scenes.check_outcome,),
        search_path=(ROOT,),
        poll_seconds=0.02 if is_family else 0.05,
        idle_seconds=idle_seconds,
        server=server,
    )
    return Lab(play, folder, parallel=PARALLEL)


def assert_sound(report: CrashReport) -> None:
    shown = "\n".join(report.violations[:10])
    assert not report.violations, f"{len(report.violations)} violations:\n{shown}"


def until_hits(
    crash: Callable[[Sequence[Point]], CrashReport], points: Sequence[Point], hits_min: int
) -> CrashReport:
    """Try points in this order until so many were reached: no two passes have quite the same."""
    total, size = CrashReport(), min(60, hits_min)
    for begin in range(0, len(points), size):
        report = crash(points[begin : begin + size])
        total.trials += report.trials
        total.seconds += report.seconds
        if total.hits >= hits_min:
            break
    return total


def of_each_kind(points: Sequence[Point], each: int, chance: random.Random) -> list[Point]:
    """At most this many points of every kind, so that a sample leaves out no kind.

    A kind is before or after one verb of the store, or one system call.
    """
    kinds: dict[tuple[str, ...], list[Point]] = {}
    for point in points:
        kinds.setdefault(_kind(point), []).append(point)
    return [point for some in kinds.values() for point in chance.sample(some, min(each, len(some)))]


def _kind(point: Point) -> tuple[str, ...]:
    if isinstance(point, CallFault):
        return point.verb or "", point.when
    return (getattr(point, "syscall", "moment"),)


@pytest.mark.parametrize("half", HALVES)
def test_killed_at_every_store_call(
    trials: Path, half: str, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Killed before and after every call of the store, the runs end as if nothing had been."""
    with lab(trials, half) as crashes:
        points = list(crashes.survey().call_points())
        some = points if full else of_each_kind(points, CALLS_EACH, chance)
        report = crashes.crash_at(some)

    name = f"crash points, store calls, {half}, every wait leaves memory"
    counted = f"{report.hits} hit of {len(some)} of {len(points)}"
    figure(name, f"{counted} in {report.seconds:.0f} s")
    assert report.hits > len(some) // 2
    assert_sound(report)


@pytest.mark.parametrize("half", HALVES)
def test_killed_while_it_stays_in_memory(
    trials: Path, half: str, figure: Figure, full: bool, chance: random.Random
) -> None:
    """The same with runs that leave memory only for long waits."""
    with lab(trials, half, idle_seconds=2.0) as crashes:
        points = list(crashes.survey().call_points())
        some = points if full else of_each_kind(points, CALLS_EACH_IN_MEMORY, chance)
        report = crashes.crash_at(some)

    name = f"crash points, store calls, {half}, in memory"
    figure(name, f"{report.hits} hit of {len(some)} in {report.seconds:.0f} s")
    assert report.hits > len(some) // 2
    assert_sound(report)


@pytest.mark.parametrize("half", HALVES)
def test_killed_at_every_moment(
    trials: Path, half: str, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Killed around every effect's body and every commit, the runs end as if nothing had been."""
    with lab(trials, half, idle_seconds=2.0) as crashes:
        points = list(crashes.survey().moment_points())
        some = points if full else chance.sample(points, min(MOMENTS, len(points)))
        report = crashes.crash_at(some)

    counted = f"{report.hits} hit of {len(some)} of {len(points)}"
    figure(f"crash points, moments, {half}", f"{counted} in {report.seconds:.0f} s")
    assert report.hits > (60 if full else len(some) // 2)
    assert_sound(report)


@pytest.mark.parametrize("half", HALVES)
def test_killed_at_every_write(
    trials: Path, half: str, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Killed at any system call that writes, the runs end as if nothing had been."""
    assert shutil.which("strace"), "strace is missing; `make setup` installs it"
    with lab(trials, half) as crashes:
        points = list(crashes.survey(trace=True).syscall_points())
        chance.shuffle(points)
        # One of each kind comes first.
        first = of_each_kind(points, 1, chance)
        points = [*first, *(point for point in points if point not in first)]
        report = until_hits(crashes.crash_at, points, len(points) if full else SYSCALLS_MIN)

    figure(
        f"crash points, system calls, {half}",
        f"{report.hits} hit of {len(points)} in {report.seconds:.0f} s",
    )
    assert report.hits >= (SYSCALLS_MIN_FULL if full else SYSCALLS_MIN)
    assert_sound(report)


def test_killed_under_a_worker(
    trials: Path, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Runs that were handed in and are driven by whatever worker comes survive it, too."""
    with lab(trials, "agent_under_worker") as crashes:
        points = list(crashes.survey().call_points())
        some = points if full else of_each_kind(points, CALLS_EACH_IN_MEMORY, chance)
        report = crashes.crash_at(some)

    figure("crash points, worker", f"{report.hits} hit in {report.seconds:.0f} s")
    assert report.hits >= len(some) // 2
    assert_sound(report)


@pytest.mark.parametrize("half", HALVES)
def test_killed_again_while_it_recovers(
    trials: Path, half: str, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Killed at a point, and again at the points of the recovery, it still ends as it should."""
    pairs: list[tuple[Point, Point]] = []
    with lab(trials, half) as crashes:
        survey = crashes.survey(trace=True)
        calls, writes = list(survey.call_points()), list(survey.syscall_points())
        count = FIRSTS_FULL if full else FIRSTS
        firsts = chance.sample(calls, count) + chance.sample(writes, count)
        for first in firsts:
            after = crashes.survey([first], trace=True)
            seconds = [*after.call_points(), *after.syscall_points()]
            most = min(PAIRS_EACH_FULL if full else PAIRS_EACH, len(seconds))
            some = chance.sample(seconds, most)
            pairs += [(first, second) for second in some]
        report = crashes.crash(pairs)

    name = f"crash points, pairs, {half}"
    figure(name, f"{report.hits} hit of {len(pairs)} in {report.seconds:.0f} s")
    # Of so small a sample few are hit where others slow the machine down.
    assert report.hits >= len(pairs) // (3 if full else 8)
    assert_sound(report)


def test_the_naive_twin_repeats_itself(trials: Path, figure: Figure, chance: random.Random) -> None:
    """The same agent with plain steps for effects does things twice: the harness can see it."""
    total, repeated = CrashReport(), 0
    with lab(trials, "naive_twin") as crashes:
        points = chance.sample(list(crashes.survey().call_points()), NAIVE_MAX)
        while points and not repeated:
            report = crashes.crash_at(points[:NAIVE_AT_ONCE])
            total.trials += report.trials
            repeated += repeated_by_kills(report)
            del points[:NAIVE_AT_ONCE]

    figure("crash points, naive twin", f"{repeated} repeated by kills, {total.hits} hit")
    assert repeated > 0
    assert any("happened 2 times" in words for words in total.violations)


def repeated_by_kills(report: CrashReport) -> int:
    """Effects that come off at once and happened more often than once."""
    return sum(
        count - 1
        for trial in report.trials
        if trial.evidence is not None
        for (effect, _), count in Counter(
            (each.effect, each.key) for each in trial.evidence.receipts if each.run_id == RUN_ID
        ).items()
        if effect in STEADY
    )
