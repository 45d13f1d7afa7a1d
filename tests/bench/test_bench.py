"""The harness runs: tiny sizes, ours and the floor, no peer and no clock that matters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import page, run
from bench.figures import Results
from bench.goals import GOALS, Goal
from bench.plan import CONTESTANTS, PLANS
from bench.plots import draw


@pytest.mark.alone
def test_every_contestant_answers_and_the_page_is_written(tmp_path: Path) -> None:
    """One round at tiny sizes: no errors, safe settings, nothing repeated, a page of it."""
    path = run.main(["tiny", "--out", str(tmp_path), "--stores", str(tmp_path)])
    told = json.loads(path.read_text())

    for row in told["rows"]:
        (sample,) = row["samples"]
        assert "error" not in sample, (row["command"], sample)
        assert {"journal_mode": "wal", "synchronous": "FULL"} == sample["settings"]
        assert 0 == sample.get("repeated", 0)
    page.write(Results(path), tmp_path / "fast.md")
    text = (tmp_path / "fast.md").read_text()
    assert "ours resume-one 20 FOLDER effect" in text
    assert "not measured in this form" in text


def test_every_case_names_a_contestant() -> None:
    """Plans, contestants and goals speak of the same things."""
    for plan in PLANS.values():
        for case in plan:
            assert set(case.contestants) <= set(CONTESTANTS)
    assert len(GOALS) == len({goal.text for goal in GOALS})


def test_a_picture_has_a_dot_per_point() -> None:
    """Curves are drawn whole."""
    picture = draw("cost", "steps", str, {"a": [(1, 1e-3), (10, 2e-3)], "b": [(10, 1.0)]})
    assert 3 == picture.count("<circle")


def test_a_goal_that_rounds_disagree_on_is_not_claimed() -> None:
    """Nor is one that is too good to be true."""

    def judged(*values: float) -> str:
        goal = Goal(text="", measure=lambda _: {}, limit=2.5, possible_from=1.0)
        return goal._judge(list(values))

    assert "reached" == judged(1.5, 2.0)
    assert "**not reached**" == judged(2.6, 3.0)
    assert "undecided" in judged(2.0, 3.0)
    assert "undecided" in judged(0.2, 2.0)
