"""Whoever takes, restores or takes back a cut may be killed at each call of the store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from outlive.testing.crash.lab import Lab, Play
from tests.conftest import Figure

pytestmark = [pytest.mark.alone("sweep")]

ROOT = str(Path(__file__).parents[2])
SCENES = ("take", "restore", "go_on", "take_back")
PARALLEL = 4
#: No two passes have quite the same calls.
REACHED_MIN = 0.8
#: The same of a few points drawn by lot, of which some come later than the scene's end.
SAMPLE_REACHED_MIN = 0.5
#: Whoever deletes journals hears from the auditor that they are gone, or others.
DELETES = ("take_back",)
GONE = re.compile(r"journal ends at 0$|was there and is gone$|event \d+ was \w+\(.* and is \w+\(")


@dataclass(frozen=True)
class Killing:
    """Where a scene is killed: on which server, at which part of its points."""

    folder: Path
    chance: Random
    share: float
    server: str | None = None

    def kill(self, scene: str) -> tuple[int, int, int]:
        """How many points there are, how many were tried and reached."""
        play = Play(
            target=f"tests.cuts.scenes:{scene}",
            policies={},
            events_min=0,  # there are no runs, only agents that drive themselves
            search_path=(ROOT,),
            server=self.server,
        )
        with Lab(play, self.folder, parallel=PARALLEL) as lab:
            points = list(lab.survey().call_points())
            some = self.chance.sample(points, round(self.share * len(points)))
            report = lab.crash_at(some)
        wrong = [w for w in report.violations if not (scene in DELETES and GONE.search(w))]
        assert not wrong, "\n".join(wrong[:5])
        return len(points), len(some), report.hits


@pytest.mark.parametrize("scene", SCENES)
def test_killed_at_every_store_call(
    scene: str, trials: Path, chance: Random, full: bool, figure: Figure
) -> None:
    """The cut is there, whole, or not at all; agents end as if nothing had been."""
    points, tried, hits = Killing(trials, chance, 1.0 if full else 0.5).kill(scene)

    figure(f"cuts, SQLite: store calls at which '{scene}' was killed", f"{hits} of {points}")
    assert hits >= (REACHED_MIN if full else SAMPLE_REACHED_MIN) * tried
    assert tried > 10
