"""The command line's lists across runs."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.cli import main
from outlive.errors import RunFailed
from outlive.stores.sqlite.store import SQLiteStore


@outlive.effect(name="cli_lists_pay")
async def pay() -> None:
    raise ConnectionResetError("gone")


@outlive.flow(name="cli_lists_refund")
async def refund() -> None:
    await pay()


@outlive.flow(name="cli_lists_ask")
async def ask() -> bool:
    return await outlive.ask("Refund it?", type=bool)


@outlive.flow(name="cli_lists_greet")
async def greet(name: str) -> str:
    if name == "nobody":
        raise ValueError(name)
    return name


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a run of each kind."""

    async def fill() -> None:
        async with App(SQLiteStore(tmp_path / "o.db")) as app:
            for number in range(5):
                await (
                    await app.start(greet.options(tags={"n": str(number)}), "x", id=f"g-{number}")
                )
            with pytest.raises(RunFailed):
                await (await app.start(greet, "nobody", id="bad"))
            for flow, name, status in ((refund, "r", "in_doubt"), (ask, "a", "waiting")):
                handle = await app.start(flow, id=name)
                while status != await handle.status():
                    await asyncio.sleep(0.01)

    asyncio.run(fill())
    return f"sqlite:///{tmp_path}/o.db"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert 0 == main(list(words))
    return json.loads(capsys.readouterr().out)


def test_runs_are_filtered_and_paged(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By status, tag, time and id; the newest last, older ones by the cursor that is told."""

    def ids(*words: str) -> list[str]:
        found = told(capsys, "runs", "--store", url, "--json", *words)
        return [run["id"] for run in found]

    assert ["bad", "r"] == ids("--status", "failed", "--status", "in_doubt")
    assert ["g-3"] == ids("--tag", "n=3", "--since", "1h")
    assert [] == ids("--until", "1h")
    assert ["g-0", "g-1", "g-2", "g-3", "g-4"] == ids("--prefix", "g-")
    assert ["bad"] == ids("--error", "ValueError at test_cli_lists.py:greet")

    assert 0 == main(["runs", "--store", url, "--limit", "3"])
    out, note = capsys.readouterr()
    cursor = re.search(r"--after (\S+),", out + note)
    assert cursor is not None
    assert ["g-2", "g-3", "g-4"] == ids("--limit", "3", "--after", cursor[1])


def test_what_waits_for_people_is_listed(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Questions and doubts of all runs, each with what to do."""
    (question,) = told(capsys, "questions", "--store", url, "--json")
    (doubt,) = told(capsys, "doubts", "--store", url, "--json")

    assert ("a", "Refund it?", {"type": "boolean"}) == (
        question["run"],
        question["text"],
        question["schema"],
    )
    assert ("r", "human") == (doubt["run"], doubt["settled_by"])
    assert doubt["command"].startswith("outlive resolve r ")
    for words in (["questions"], ["doubts"], ["workers"]):
        assert 0 == main([*words, "--store", url])
    out, note = capsys.readouterr()
    assert "Refund it?" in out
    assert "no worker is there" in out + note


def test_runs_are_watched(url: str, tmp_path: Path) -> None:
    """A run that begins meanwhile is told; the process that watches knows nothing of its flow."""
    command = [sys.executable, "-m", "outlive", "runs", "--store", url, "--watch", "--limit", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        for line in watching.stdout:
            if line.startswith(("a ", "r ")):
                break

        async def begin() -> None:
            async with App(SQLiteStore(tmp_path / "o.db")) as app:
                await (await app.start(greet, "x", id="late"))

        asyncio.run(begin())
        for line in watching.stdout:
            if line.startswith("late "):
                break
        else:
            pytest.fail("nothing was told")
        watching.terminate()


def test_doctor_counts_and_names_who_needs_help(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts per status, and the runs that wait for a person."""
    assert 1 == main(["doctor", "--store", url, "--json"])
    report = json.loads(capsys.readouterr().out)

    assert {"completed": 5, "failed": 1, "in_doubt": 1, "waiting": 1} == report["runs"]
    assert [] == report["more_than_counted"]
    assert ["r"] == [each["run"] for each in report["human"]]
