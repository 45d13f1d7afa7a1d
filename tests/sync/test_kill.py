"""A plain agent is killed before and after store calls, in its threads or between, and goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from outlive.testing.crash.lab import Lab, Play
from tests.sync.plain_agent import POLICIES, check

Figure = Callable[[str, object], None]

ROOT = Path(__file__).parent.parent.parent
PLAY = Play(
    target="tests.sync.plain_agent:scene",
    policies=POLICIES,
    checks=(check,),
    search_path=(str(ROOT), str(ROOT / "src")),
    poll_seconds=0.02,
    limit_seconds=40.0,
)
SAMPLE = 24
SEED = 11


@pytest.mark.alone("sweep")
def test_a_plain_agent_killed_anywhere_goes_on(tmp_path: Path, full: bool, figure: Figure) -> None:
    """Every effect once, every letter once, the same outcome."""
    with Lab(PLAY, tmp_path, parallel=2) as lab:
        survey = lab.survey()
        points = [*survey.call_points(), *survey.moment_points()]
        chosen = points if full else Random(SEED).sample(points, min(SAMPLE, len(points)))
        report = lab.crash_at(chosen)

    figure("sync: moments at which the plain agent was killed", report.hits)
    assert not report.violations, "\n".join(report.violations[:20])
    assert report.hits >= len(chosen) * 0.7
