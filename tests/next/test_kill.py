"""The agent that waits for everything is killed before and after every store call, and goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from outlive.testing.crash_lab import Lab, Play
from tests.next.kill_agent import POLICIES, check

Figure = Callable[[str, object], None]

ROOT = Path(__file__).parent.parent.parent
PLAY = Play(
    target="tests.next.kill_agent:scene",
    policies=POLICIES,
    checks=(check,),
    search_path=(str(ROOT), str(ROOT / "src")),
    poll_seconds=0.02,
    limit_seconds=40.0,
)
SAMPLE = 60
SEED = 7


@pytest.mark.alone
def test_killed_at_any_store_call_it_goes_on(tmp_path: Path, full: bool, figure: Figure) -> None:
    """Every effect once, every letter once, every run its end."""
    with Lab(PLAY, tmp_path, parallel=2) as lab:
        survey = lab.survey()
        points = list(survey.call_points())
        chosen = points if full else Random(SEED).sample(points, min(SAMPLE, len(points)))
        report = lab.crash_at(chosen)
        moments = lab.crash_at(survey.moment_points())

    figure("next: store calls at which the waiting agent was killed", report.hits)
    figure("next: moments at which the waiting agent was killed", moments.hits)
    assert not report.violations, "\n".join(report.violations[:20])
    assert not moments.violations, "\n".join(moments.violations[:20])
    assert report.hits >= len(chosen) * 0.8


@pytest.mark.alone
def test_killed_twice_it_goes_on(tmp_path: Path, full: bool, figure: Figure) -> None:
    """The second death comes while the first is being made good."""
    random = Random(SEED)
    with Lab(PLAY, tmp_path, parallel=2) as lab:
        points = list(lab.survey().call_points())
        pairs = [tuple(random.sample(points, 2)) for _ in range(200 if full else 20)]
        report = lab.crash(pairs)

    figure("next: pairs of deaths of the waiting agent", report.hits)
    assert not report.violations, "\n".join(report.violations[:20])
