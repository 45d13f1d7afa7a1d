"""The harness runs: tiny sizes, ours and the floor, no peer and no clock that matters."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import environments, page, postgres_goals, run, turns, values_page, values_run
from bench.cases import Case
from bench.chapter import Chapter
from bench.contest import argument_of, outcome_of
from bench.databases import Databases
from bench.figures import Results
from bench.goals import GOALS, Goal, times
from bench.plan import CONTESTANTS, PLANS, SLOW_SECONDS, chapter_of
from bench.plots import Curve, Point, draw
from bench.progress import Progress
from bench.round_trips import RoundTrips

#: Round trips and transactions that a worker makes beside.
FEW = 6


#: Of each chapter.
SAFE = [
    {"journal_mode": "wal", "synchronous": "FULL"},
    {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"},
]


@pytest.mark.alone("processes")
def test_every_contestant_answers_and_the_page_is_written(tmp_path: Path) -> None:
    """One round at tiny sizes: no errors, safe settings, nothing repeated, a page of it."""
    paths = run.main(["tiny", "--out", str(tmp_path), "--stores", str(tmp_path)])

    assert ["tiny.json", "tiny-postgres.json"] == [path.name for path in paths]
    for path, settings in zip(paths, SAFE, strict=True):
        for row in json.loads(path.read_text())["rows"]:
            (sample,) = row["samples"]
            assert "error" not in sample, (row["command"], sample)
            assert settings == sample["settings"]
            assert 0 == sample.get("repeated", 0)
    page.main(["--results", str(tmp_path), "--page", str(tmp_path / "fast.md")])
    text = (tmp_path / "fast.md").read_text()
    assert "ours resume-one 20 FOLDER effect" in text
    assert "`bench.one pg-effect many 2`" in text
    assert "not measured in this form" in text
    assert "journal_mode=wal, synchronous=FULL" in text
    assert "fsync=on, synchronous_commit=on, full_page_writes=on" in text


@pytest.mark.alone("processes")
def test_the_chapter_of_values_is_written(tmp_path: Path) -> None:
    """What is stored, put, read and sealed, each with a table, two with a curve."""
    path = values_run.main(["tiny", "--out", str(tmp_path), "--stores", str(tmp_path)])

    lines = values_page.written(path, tmp_path, "fast")

    assert [path] == [values_page.newest(tmp_path)]
    titles = [line for line in lines if line.startswith("###")]
    assert ["### On disk", "### Putting a list that grows", "### Reading one state back"] == titles[
        :3
    ]
    assert ["plain", "sealed"] == [
        line.split()[1] for line in lines if line.startswith(("| plain", "| sealed"))
    ]
    for name in ("fast-values-put.svg", "fast-values-read.svg"):
        ElementTree.parse(tmp_path / name)


def test_every_case_names_a_contestant() -> None:
    """Plans, contestants and goals speak of the same things, and of each of them once."""
    for plan in PLANS.values():
        assert plan
        rows = [(case.work, case.size, name) for case in plan for name in case.contestants]
        assert len(rows) == len(set(rows))
        assert {name for _, _, name in rows} <= set(CONTESTANTS)
        for case in plan:
            assert 1 == len({CONTESTANTS[name].chapter for name in case.contestants})
    for goals in (GOALS, postgres_goals.GOALS):
        assert len(goals) == len({goal.text for goal in goals})


@pytest.mark.parametrize("chapter", page.CHAPTERS, ids=lambda chapter: chapter.name)
def test_every_work_of_a_plan_has_a_section_of_the_page(chapter: Chapter) -> None:
    """Nothing is measured that nobody gets to see."""
    works = {
        case.work for plan in PLANS.values() for case in plan if chapter_of(case) == chapter.name
    }
    assert works == {section.work for section in chapter.sections}


def test_a_chapter_can_be_asked_for_by_its_name() -> None:
    """Alone, or with single contestants of the other."""
    asked = run.chosen("quick", "postgres,floor", "sequential")

    names = {name for case in asked for name in case.contestants}
    assert {"floor", "pg-floor", "pg-effect", "pg-dbos", "pg-absurd", "restate"} <= names
    assert "effect" not in names
    assert {"sequential"} == {case.work for case in asked}


@pytest.mark.alone("processes")
def test_an_effect_is_one_round_trip_and_one_transaction(tmp_path: Path) -> None:
    """Counted on the wire and by the server: 40 effects more, 40 more of each, 1 per batch."""
    with Databases() as databases:
        place = turns.Place(folder=tmp_path, limit_seconds=60, databases=databases)
        small, large = (turns.counted("pg-effect", "sequential", n, place) for n in (20, 60))
        many = turns.counted("pg-effect", "many", 20, place)

    assert "error" not in small, small
    more = {what: large[what] - small[what] for what in ("round_trips", "transactions", "commits")}
    assert 40 == more["commits"]
    # A heartbeat, or a look for work, may fall into either.
    assert 40 - FEW <= more["round_trips"] <= 40 + FEW
    assert 40 - FEW <= more["transactions"] <= 40 + FEW
    assert many["commits"] == many["commit_trips"]


@pytest.mark.alone("processes")
def test_a_server_that_can_not_be_had_is_told_in_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has no Restate measures everything else."""
    monkeypatch.setattr(environments, "PLACE", tmp_path)
    case = Case(work="sequential", size=5, contestants=("restate",))

    told = turns.sample("restate", case, turns.Place(folder=tmp_path, limit_seconds=60))

    assert {"error": "python is not installed"} == told
    run.check_environments(["restate"])
    with pytest.raises(SystemExit, match=r"no environment for pg-dbos"):
        run.check_environments(["restate", "pg-dbos"])


def test_npm_of_a_wheel_does_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pins are installed first, and no package's own script is run."""
    called: list[list[str]] = []

    def note(peer: str, command: list[str], remedy: str) -> None:
        called.append(command)

    monkeypatch.setattr(environments, "fetch", note)
    monkeypatch.setattr(environments.shutil, "which", lambda name: None)
    environments.install_packages("restate", tmp_path / "bin" / "python")

    pip, npm = called
    assert str(environments.pins_of("node")) == pip[-1]
    assert [str(tmp_path / "bin" / "python"), "-c", environments.WHEEL_NPM] == npm[:3]
    assert "--ignore-scripts" in npm
    assert npm[-1].startswith("@restatedev/restate-server@")


def test_whatever_is_said_on_the_wire_is_counted_by_turns() -> None:
    """However many packets a question has, it is one."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        RoundTrips(server.getsockname()[1]) as wire,
    ):
        client = socket.create_connection(("127.0.0.1", wire.port))
        other, _ = server.accept()
        with client, other:
            for _ in range(3):
                client.sendall(b"a")
                assert b"a" == other.recv(1)
                client.sendall(b"b")
                assert b"b" == other.recv(1)
                other.sendall(b"answer")
                assert b"answer" == client.recv(6)

    assert 3 == wire.count


def test_arguments_and_outcomes_have_their_size_and_half_of_them_are_distinct() -> None:
    """As the page says of the steps."""
    arguments = [argument_of("7", number) for number in range(200)]
    outcomes = [outcome_of(number) for number in range(200)]

    assert {100} == {len(each.encode()) for each in arguments}
    assert {200} == {len(each.encode()) for each in outcomes}
    assert 101 == len(set(arguments)) == len(set(outcomes))  # and the one that comes again


@pytest.mark.alone("processes")
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
        [sys.executable, "-c", script], turns.Place(folder=tmp_path, limit_seconds=5), {}
    )

    assert {"error": "not done within 5 s"} == told
    child, began = Path(f"/proc/{note.read_text()}/stat"), time.monotonic()
    while _is_alive(child) and time.monotonic() - began < 10:  # a kill takes its moment
        time.sleep(0.01)
    assert not _is_alive(child)


def _is_alive(stat: Path) -> bool:
    try:
        return stat.read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


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
    rounds = run.Rounds(plan, 3, budget_minutes, Progress())
    list(rounds.run(turns.Place(folder=tmp_path, limit_seconds=1)))

    assert {"slow": turns_of_slow, "quick": 3, "single": 1} == taken


def test_a_picture_has_a_dot_per_point() -> None:
    """Curves are drawn whole."""
    points = [Point(size=10**n, middle=1e-3, least=1e-4, most=2e-3) for n in range(3)]
    curves = [Curve(name=name, colour="red", points=points) for name in ("a", "b")]

    picture = draw("cost", "steps", str, curves)

    assert 6 == picture.count("<circle")
    ElementTree.fromstring(picture)


def test_the_median_of_the_rounds_decides_and_dissent_is_told() -> None:
    """What is too good to be true decides nothing."""

    def judged(*values: float) -> str:
        goal = Goal(text="", measure=lambda _: {}, limit=2.5, possible_from=1.0)
        return goal._judge(list(values))

    assert "reached" == judged(1.5, 2.0)
    assert "**not reached**" == judged(2.6, 3.0)
    assert "reached (2 of 3 rounds)" == judged(2.0, 3.0, 2.4)
    assert "**not reached** (1 of 3 rounds)" == judged(2.0, 3.0, 2.6)
    assert "undecided" in judged(0.2, 0.9, 2.0)


def test_a_comparison_that_the_bare_commit_would_lose_says_so(tmp_path: Path) -> None:
    """Nobody can be quicker than the disk."""
    nothing = tmp_path / "nothing.json"
    nothing.write_text('{"rows": []}')

    def told(ours: float, bare: float) -> str:
        goal = Goal(
            text="",
            measure=lambda _: {0: ours},
            bare=lambda _: {0: bare},
            limit=3,
            at_least=True,
            form=times,
        )
        return goal.verdict(Results(nothing))[2]

    assert "**not reached**; nor by the bare commit itself: 2.9x" == told(2.0, 2.9)
    assert "**not reached**" == told(2.0, 3.1)
    assert "reached" == told(3.1, 2.9)
