"""The quick form ends in time and says how long it will take; the floors keep what they promise."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from bench import instructions, run, turns
from bench.__main__ import SECONDS, chapters
from bench.__main__ import main as bench_main
from bench.cases import Case
from bench.plan import BUDGET_MINUTES, CHAPTERS, PLANS, QUICK_MINUTES_MAX, ROUNDS, chapter_of
from bench.progress import Progress, known_seconds
from outlive.journal.record import LINK_START, unpack

#: Instructions of a second of work are more than this, and an effect's fewer than that.
INSTRUCTIONS_MIN, INSTRUCTIONS_MAX = 10_000, 2_000_000


class Clock:
    """Moved by who does the work."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_time_left_follows_the_pace_of_what_is_done() -> None:
    """Turns that take twice as long as expected double what is told to be left."""
    clock = Clock()
    progress = Progress(clock=clock)
    progress.add([("work", size, "floor") for size in range(100)], seconds=10.0)
    assert 1000.0 == progress.seconds_left()

    for size in range(50):
        clock.now += 20.0
        progress.done(("work", size, "floor"), 20.0)

    assert 950 < progress.seconds_left() <= 1000
    assert progress.line().startswith(" 50%, 16:")


def test_nothing_is_begun_that_would_end_too_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first turns fill the time; whoever gets none is told so, and not repeated."""
    clock = Clock()
    limits: list[int] = []

    def sample(name: str, case: Case, place: turns.Place) -> dict[str, float]:
        clock.now += 25.0
        limits.append(place.limit_seconds)
        return {"seconds": 25.0, "turn_seconds": 25.0}

    monkeypatch.setattr(run, "sample", sample)
    monkeypatch.setattr(run.time, "monotonic", clock)
    plan = [Case(work="many", size=size, contestants=("floor",)) for size in range(4)]
    known = {("many", size, "floor"): 25.0 for size in range(4)}
    progress = Progress(known=known, clock=clock)
    run.expect(progress, plan, 3, [])
    progress.begin_chapter(1.0)

    rounds = run.Rounds(plan, 3, 60.0, progress)
    *_, told = rounds.run(turns.Place(folder=tmp_path, limit_seconds=1000))

    samples = [row["samples"] for row in told["rows"]]
    measured = {"seconds": 25.0, "turn_seconds": 25.0}
    none = {"error": run.NO_TIME}
    assert [[measured], [measured], [none], [none]] == samples
    assert [60, 35] == limits
    assert clock.now - 100.0 <= 60.0


def test_the_quick_form_is_expected_to_end_in_time(tmp_path: Path) -> None:
    """By what its turns took when they were last measured, all of it takes below 15 minutes."""
    progress = Progress(known=known_seconds(run.RESULTS))
    asked = run.arguments(["quick", "--out", str(tmp_path)])
    for chapter in CHAPTERS:
        plan = [case for case in PLANS["quick"] if chapter_of(case) == chapter]
        run.expect(progress, plan, ROUNDS["quick"], run.counted_in(plan, asked))
    others = sum(seconds for (_, form), seconds in SECONDS.items() if form == "quick")

    assert progress.seconds_left() + others < QUICK_MINUTES_MAX * 60 < 15 * 60
    limits = sum(BUDGET_MINUTES["quick", chapter] for chapter in CHAPTERS)
    assert limits * 60 + others <= QUICK_MINUTES_MAX * 60


def test_one_chapter_can_be_asked_for() -> None:
    """By its name; one that does not exist is told with those that do."""
    assert ["postgres"] == chapters("quick", "postgres")
    assert ["sqlite", "where"] == chapters("full", "where,sqlite")
    with pytest.raises(SystemExit, match="no chapter scale in quick: there are sqlite, postgres"):
        chapters("quick", "scale")


@pytest.mark.parametrize("name", ["floor-l1", "floor-l2"])
def test_the_hand_written_journal_keeps_what_an_effect_promises(tmp_path: Path, name: str) -> None:
    """Records of the same bytes, chained, with each intent durable before its outcome's record."""
    place = turns.Place(folder=tmp_path, limit_seconds=60)
    found = {}
    for each in (name, "effect"):
        folder = tmp_path / each
        folder.mkdir()
        command = [turns.python_of(turns.CONTESTANTS[each])]
        answer = turns.answer_of(
            [*command, *turns.command_of(each, "many", 5, str(folder))], place, {}
        )
        assert "error" not in answer, answer
        (file,) = folder.glob("*.db")
        with sqlite3.connect(file) as db:
            found[each] = db.execute(
                "SELECT run_id, records.seq, body FROM records JOIN runs ON runs.id = run"
                " ORDER BY run, records.seq"
            ).fetchall()
        db.close()

    floor, ours = found[name], found["effect"]
    assert [row[1] for row in floor if row[0] == "0"] == [row[1] for row in ours if row[0] == "0"]
    weights = [sum(len(body) for *_, body in rows) for rows in (floor, ours)]
    assert weights[0] == pytest.approx(weights[1], rel=0.02)
    links: dict[str, bytes] = {}
    for run_id, seq, body in floor:
        envelope = unpack(run_id, links.get(run_id, LINK_START), body, seq)
        links[run_id] = envelope.link
    kinds = [[event[0] for event in msgspec.msgpack.decode(body[48:])] for *_, body in floor[:22]]
    assert [[1, 2], [20], *[[21, 20]] * 19, [21, 40]] == kinds


@pytest.mark.alone("processes")
def test_instructions_are_counted(tmp_path: Path) -> None:
    """By callgrind, from the difference of two sizes: a Task per body costs some."""
    assert shutil.which("valgrind"), instructions.MISSING

    plain, task = (
        instructions.per_operation(name, "many", (2, 12, 20)) for name in ("floor-l1", "floor-l2")
    )

    assert INSTRUCTIONS_MIN < plain < task < INSTRUCTIONS_MAX
    told = {"floor-l1": {"many": 88_600, "starts": 400_000}}
    assert "| L1: hand-written journal | 88,600 | 400,000 |" in instructions.written(told)


def test_a_missing_valgrind_is_told_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not after an hour."""
    monkeypatch.setattr(shutil, "which", lambda name: None)

    assert 1 == bench_main(["full", "--only", "instructions"])

    assert "apt-get install valgrind" in capsys.readouterr().err
    with pytest.raises(instructions.NotCounted, match="valgrind is missing"):
        instructions.instructions(["true"], Path())


def test_what_took_long_is_known_from_the_results(tmp_path: Path) -> None:
    """The mean of a row's turns; what failed tells nothing."""
    rows = [
        {"work": "many", "size": 5, "contestant": "dbos", "samples": [
            {"turn_seconds": 2.0}, {"turn_seconds": 4.0}, {"error": "no"}]},
    ]  # fmt: skip
    (tmp_path / "full.json").write_text(json.dumps({"rows": rows}))
    (tmp_path / "where.json").write_text("{}")

    assert {("many", 5, "dbos"): 3.0} == known_seconds(tmp_path)
