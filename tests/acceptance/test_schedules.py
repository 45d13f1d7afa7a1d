"""Schedules from the command line and from plain code, with a real worker."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from outlive import sync as outlive
from tests.acceptance.conftest import Cli
from tests.acceptance.shop import fail, greet
from tests.harness.processes import until


@pytest.fixture
def shop(cli: Cli) -> Any:
    """An app of plain code on the store of the command line."""
    with outlive.open(f"sqlite:///{cli.database}") as app:
        yield app


def test_they_are_listed_and_changed(cli: Cli, shop: Any) -> None:
    """Name, flow, times, next instant and last run; pause, resume, fire and remove one."""
    shop.schedule("nightly", greet, cron="0 3 * * *", tz="Europe/Berlin", missed="once")
    shop.schedule("often", greet, "ann", every="90m")

    text = cli("schedules").out.splitlines()
    assert ["SCHEDULE", "FLOW", "WHEN", "NEXT", "IN", "LAST", "RUN", "STATUS"] == text[0].split()
    assert "nightly   greet  0 3 * * * Europe/Berlin" in text[1]
    assert "often     greet  every 1:30:00" in text[2]
    assert (
        "nightly is paused; `resume` goes on with it\n" == cli("schedules", "pause", "nightly").out
    )
    assert "paused" in cli("schedules").out
    assert "nightly goes on at 20" in cli("schedules", "resume", "nightly").out
    fired = cli("schedules", "fire", "often", "--json").json
    assert fired["run"].startswith("often@")
    assert "often is removed; its runs go on\n" == cli("schedules", "remove", "often").out

    (left,) = cli("schedules", "--json").json
    wanted = {"name": "nightly", "flow": "greet", "paused": False, "missed": "once", "runs": []}
    assert wanted == {name: left[name] for name in wanted}
    assert [fired["run"]] == [run["id"] for run in cli("runs", "--flow", "greet", "--json").json]


def test_a_worker_fires_them(cli: Cli, shop: Any) -> None:
    """The list shows what was started last, and what became of it."""
    shop.schedule("often", greet, "ann", every="1s")
    cli.start_worker()
    (there,) = until(lambda: [s for s in shop.schedules() if len(s.recent) >= 2], "two runs")
    until(lambda: "completed" == shop.get(there.recent[0].id).status(), "its end")

    first, second = there.recent[:2]
    assert 1 == (second.at - first.at).total_seconds()
    assert "hello ann" == shop.get(first.id).outcome()
    assert shop.unschedule("often")
    assert not shop.unschedule("often")


def test_doctor_names_one_whose_runs_fail(cli: Cli, shop: Any) -> None:
    """With the last of them and the command that shows it; the exit code says so, too."""
    shop.schedule("often", fail, Decimal(7), every="1s")
    assert "some need you" not in cli("doctor").out
    cli.start_worker()
    until(lambda: [run for run in shop.schedules()[0].recent if run.status == "failed"], "a run")

    ran = cli("doctor")
    assert 1 == ran.code
    line, command = ran.out.partition("  schedule: ")[2].splitlines()[:2]
    assert line.startswith("run schedule/often (flow fail): its last ")
    assert " failed: often@" in line
    assert f"    outlive show {line.rpartition(' ')[2]}" == command
    (told,) = cli("doctor", "--json").json["human"]
    assert ("schedule", "schedule/often") == (told["kind"], told["run"])


def test_doctor_names_one_that_is_quarantined(cli: Cli, shop: Any) -> None:
    """It starts nothing any more until somebody frees it."""
    shop.schedule("often", greet, "ann", every="1h")
    with closing(sqlite3.connect(cli.database)) as db, db:  # as a worker would that died of it
        db.execute("UPDATE runs SET status = 'quarantined' WHERE run_id = 'schedule/often'")

    ran = cli("doctor")
    assert 1 == ran.code
    assert "quarantine: run schedule/often" in ran.out
    assert "outlive retry schedule/often" in ran.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pause", "nightly"), "there is no schedule 'nightly'"),
        (("remove", "nightly"), "there is no schedule 'nightly'"),
        (("fire",), "needs the name of a schedule"),
        (("dance", "nightly"), "invalid choice: 'dance'"),
    ],
)
def test_bad_words_are_usage_errors(cli: Cli, shop: Any, words: Any, said: str) -> None:
    """One line, exit code 2."""
    assert [] == shop.schedules()

    ran = cli("schedules", *words)

    assert 2 == ran.code
    assert said in ran.err
    assert 1 == len(ran.err.splitlines())


def test_no_store_is_no_empty_list(cli: Cli) -> None:
    """A mistyped store is an error, and none is made."""
    ran = cli("schedules")

    assert 3 == ran.code
    assert not Path(cli.database).exists()
