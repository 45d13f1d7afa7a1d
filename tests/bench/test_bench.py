"""The harness runs: tiny sizes, ours and the floor, no peer and no clock that matters."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import environments, page, run, turns
from bench.contest import argument_of, outcome_of
from bench.figures import Results
from bench.goals import GOALS, Goal
from bench.plan import CONTESTANTS, PLANS, SLOW_SECONDS, Case
from bench.plots import Curve, Point, draw
from bench.sections import SECTIONS


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
    assert "journal_mode=wal, synchronous=FULL" in text


def test_every_case_names_a_contestant() -> None:
    """Plans, contestants and goals speak of the same things, and of each of them once."""
    for plan in PLANS.values():
        rows = [(case.work, case.size, name) for case in plan for name in case.contestants]
        assert len(rows) == len(set(rows))
        assert {name for _, _, name in rows} <= set(CONTESTANTS)
    assert len(GOALS) == len({goal.text for goal in GOALS})


def test_every_work_of_a_plan_has_a_section_of_the_page() -> None:
    """Nothing is measured that nobody gets to see."""
    works = {case.work for plan in PLANS.values() for case in plan}
    assert works == {section.work for section in SECTIONS}


def test_arguments_and_outcomes_have_their_size_and_half_of_them_are_distinct() -> None:
    """As the page says of the steps."""
    arguments = [argument_of("7", number) for number in range(200)]
    outcomes = [outcome_of(number) for number in range(200)]

    assert {100} == {len(each.encode()) for each in arguments}
    assert {200} == {len(each.encode()) for each in outcomes}
    assert 101 == len(set(arguments)) == len(set(outcomes))  # and the one that comes again


@pytest.mark.alone
def test_a_turn_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """What a contestant started does not go on beside the next one's turn."""
    note = tmp_path / "pid"
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)\n"
    )

    told = turns.answer_of(
        [sys.executable, "-c", script], turns.Place(folder=tmp_path, limit_seconds=2), {}
    )

    assert {"error": "not done within 2 s"} == told
    child = Path(f"/proc/{note.read_text()}/stat")
    assert not child.exists() or child.read_text().split()[2] == "Z"


def test_a_store_whose_maker_did_not_die_in_it_is_not_gone_on_from(tmp_path: Path) -> None:
    """The case is told with the reason, instead of measuring something else."""
    case = Case(work="resume-one", size=5, contestants=("floor",), prepared="prepare-one")

    told = turns.sample("floor", case, turns.Place(folder=tmp_path, limit_seconds=60))

    assert "prepare-one: KeyError" in told["error"]


def test_peers_that_can_not_be_had_are_told_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback: what failed, and how to go on without."""
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "nothing").as_uri())
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)

    assert 1 == environments.main(["--into", str(tmp_path / "peers")])

    said = capsys.readouterr().err
    assert "dbos can't be installed" in said
    assert "--only floor,step,effect,waiting" in said
    assert not environments.is_made("dbos", tmp_path / "peers")


@pytest.mark.parametrize(("budget_minutes", "turns_of_slow"), [(60.0, 3), (0.0, 1)])
def test_what_is_slow_is_repeated_only_within_the_budget(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, budget_minutes: float, turns_of_slow: int
) -> None:
    """The rest is run in every round, and what was asked for once, once."""
    seconds = {"slow": 2.0 * SLOW_SECONDS, "quick": 0.1, "single": 0.1}
    taken: Counter[str] = Counter()

    def sample(name: str, case: Case, place: turns.Place) -> dict[str, float]:
        taken[case.work] += 1
        return {"seconds": 0.1, "turn_seconds": seconds[case.work]}

    monkeypatch.setattr(run, "sample", sample)
    plan = [
        Case(work=work, size=1, contestants=("floor",), once=work == "single") for work in seconds
    ]
    list(run.Rounds(plan, 3, budget_minutes).run(turns.Place(folder=tmp_path, limit_seconds=1)))

    assert {"slow": turns_of_slow, "quick": 3, "single": 1} == taken


def test_a_picture_has_a_dot_per_point() -> None:
    """Curves are drawn whole."""
    points = [Point(size=10**n, middle=1e-3, least=1e-4, most=2e-3) for n in range(3)]
    curves = [Curve(name=name, colour="red", points=points) for name in ("a", "b")]

    picture = draw("cost", "steps", str, curves)

    assert 6 == picture.count("<circle")
    ElementTree.fromstring(picture)


def test_a_goal_that_rounds_disagree_on_is_not_claimed() -> None:
    """Nor is one that is too good to be true."""

    def judged(*values: float) -> str:
        goal = Goal(text="", measure=lambda _: {}, limit=2.5, possible_from=1.0)
        return goal._judge(list(values))

    assert "reached" == judged(1.5, 2.0)
    assert "**not reached**" == judged(2.6, 3.0)
    assert "undecided" in judged(2.0, 3.0)
    assert "undecided" in judged(0.2, 2.0)
