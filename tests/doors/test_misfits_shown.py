"""A run that the code no longer fits, and what else needs a human: runs, show and doctor say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive import errors
from tests.doors.desk import Desk, ask_number


@outlive.step
async def weigh(what: str, grams: int) -> int:
    return grams


@outlive.effect(doubt="ask")
async def post(what: str) -> str:
    raise ConnectionResetError("hung up")


def sends(grams: int) -> Any:
    @outlive.flow(name="sends")
    async def flow() -> str:
        await weigh("tulips", grams)
        return str(await outlive.wait_signal("go"))

    return flow


@outlive.flow
async def posts() -> str:
    return await post("tulips")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr("outlive.cli.doctor.PATIENCE_SECONDS", 0.01)
    return Desk(tmp_path, monkeypatch)


def misfit(desk: Desk) -> None:
    """Leave a run whose step is called with other arguments than it was."""
    with outlive.open(desk.url) as app, pytest.raises(errors.Waiting):
        app.run(sends(500), id="r", on_wait="raise")
    desk("signal", "r", "go", "1")
    with outlive.open(desk.url) as app, pytest.raises(errors.ReplayMismatch):
        app.run(sends(700), id="r")


def test_both_sides_and_the_remedy_are_shown(desk: Desk) -> None:
    misfit(desk)
    (listed,) = json.loads(desk("runs", "--json")[1])
    shown = desk("show", "r")[1]
    code, said, _ = desk("doctor")

    assert "waiting" == listed["status"]
    assert listed["reason"].startswith("mismatch: ")
    assert "- grams=500 + grams=700" in desk("runs")[1]
    for text in (shown, said):
        assert ["- grams=500", "+ grams=700"] == [
            line.strip() for line in text.splitlines() if line.strip()[:7] in ("- grams", "+ grams")
        ]
        assert "put the old code back" in text
    assert 1 == code
    assert "mismatch: run r (flow sends)" in said


def test_doctor_names_doubts_and_says_so_with_its_exit_code(desk: Desk) -> None:
    with outlive.open(desk.url) as app, pytest.raises(errors.InDoubt):
        app.run(posts, id="p", on_wait="raise")
    code, said, _ = desk("doctor")
    (found,) = json.loads(desk("doctor", "--json")[1])["human"]

    assert 1 == code
    assert "doubt: run p (flow posts): 0/post#1: ConnectionResetError: hung up" in said
    assert "outlive resolve p '0/post#1' --happened JSON    (or --not-happened, or" in said
    assert "the store is sound; some need you" in said
    assert ("p", "doubt") == (found["run"], found["kind"])
    assert "outlive resolve p '0/post#1'" == found["command"]


def test_doctor_names_questions_that_nobody_answers(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh one is nobody's fault."""
    desk.park(ask_number, id="q")
    fresh = desk("doctor")
    monkeypatch.setattr("outlive.cli.doctor.OLD_QUESTION_MS", -60_000)
    code, said, _ = desk("doctor")

    assert 0 == fresh[0]
    assert 1 == code
    assert "question: run q (flow ask_number): 0/ask#1: How many?" in said
