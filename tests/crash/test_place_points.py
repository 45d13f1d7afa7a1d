"""An agent in a place, killed everywhere, keeps its ids and does nothing twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from outlive.testing.crash.lab import Lab, Play
from tests.conftest import Figure
from tests.crash import place_scene
from tests.crash.test_crash_points import PARALLEL, ROOT, assert_sound, of_each_kind

pytestmark = [pytest.mark.alone("sweep"), pytest.mark.timeout(4 * 3600)]

#: Points of each kind that are tried on ordinary days.
CALLS_EACH, MOMENTS = 3, 12


def lab(folder: Path) -> Lab:
    play = Play(
        target="tests.crash.place_scene:scene",
        policies=place_scene.POLICIES,
        events_min=4,
        checks=(place_scene.check,),
        search_path=(ROOT,),
    )
    return Lab(play, folder, parallel=PARALLEL)


def test_an_agent_in_a_place_is_killed_anywhere(
    trials: Path, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Before and after every store call, around every body and commit: ids and effects hold."""
    with lab(trials) as crashes:
        survey = crashes.survey()
        calls, moments = list(survey.call_points()), list(survey.moment_points())
        some = list(calls) if full else of_each_kind(calls, CALLS_EACH, chance)
        some += moments if full else chance.sample(moments, min(MOMENTS, len(moments)))
        report = crashes.crash_at(some)

    counted = f"{report.hits} hit of {len(some)} of {len(calls) + len(moments)}"
    figure("crash points, do and place", f"{counted} in {report.seconds:.0f} s")
    assert report.hits > len(some) // 2
    assert_sound(report)
