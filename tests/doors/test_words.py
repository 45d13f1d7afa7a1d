"""What a person sees who types something wrong, or looks where nothing is."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

import outlive
from outlive.cli import main
from outlive.settings import Settings, tell_unknown
from tests.doors.desk import Desk, ask_number

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A store and the command line on it."""
    return Desk(tmp_path, monkeypatch)


def refused(words: list[str], capsys: Printed) -> str:
    """What is said of words that mean nothing."""
    with pytest.raises(SystemExit) as left:
        main(words)
    assert 2 == left.value.code
    out, err = capsys.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    return err


def test_nothing_typed_is_answered_with_help(capsys: Printed) -> None:
    """All commands, and the exit code of words that did nothing."""
    assert 2 == main([])
    out, err = capsys.readouterr()
    assert "" == err
    assert out.startswith("usage: outlive")
    assert "show a run and everything that happened to it" in " ".join(out.split())


def test_the_release_is_told(capsys: Printed) -> None:
    """On one line, for reports of bugs and for scripts."""
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert 0 == left.value.code
    assert f"outlive {version('outlive')}\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["shwo", "r"], "invalid choice: 'shwo'; did you mean show?; see `outlive --help`"),
        (["work", "m"], "did you mean worker?"),
        (["show", "r", "--folow"], "--folow; did you mean --follow?; see `outlive show --help`"),
        (["runs", "--limt=3"], "--limt=3; did you mean --limit?"),
        (["runs", "--stor", "x"], "did you mean --store?"),
        (["runs", "--status", "complete"], "'complete'; did you mean completed?"),
        (["schedules", "puase", "x"], "did you mean pause?"),
    ],
)
def test_a_slip_is_told_what_was_meant(words: list[str], meant: str, capsys: Printed) -> None:
    """Of commands, options and words that are one of a few."""
    assert meant in refused(words, capsys)


def test_a_word_that_is_like_nothing_is_told_what_there_is(capsys: Printed) -> None:
    """No guess is better than a wild one."""
    assert "invalid choice: 'tired' (choose from pending, running" in refused(
        ["runs", "--status", "tired"], capsys
    )
    assert "did you mean" not in refused(["runs", "--zzz"], capsys)


def test_an_unknown_variable_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the one that was meant; those of other programs and of the tests are none of ours."""
    tell_unknown.cache_clear()
    slips = {"OUTLIVE_STOER": "x", "OUTLIVE_TEST_FULL": "1", "OUTLIVELY": "1", "OUTLIVE_ZZZ": ""}
    with caplog.at_level(logging.WARNING, "outlive"):
        assert Settings() == Settings.from_environment(slips)
        assert Settings() == Settings.from_environment(slips)
    first, second = (record.getMessage() for record in caplog.records)
    assert (
        "the environment variable OUTLIVE_STOER is unknown to Outlive and ignored; "
        "did you mean OUTLIVE_STORE?"
    ) == first
    assert second.startswith("the environment variable OUTLIVE_ZZZ is unknown")
    assert "OUTLIVE_RETENTION" in second


LOOKS = [
    "runs", "show r", "show r --follow", "show r step", "queues", "schedules", "verify", "doctor",
    "diff a b", "retain", "rekey", "resume r", "answer r 1", "signal r n 1", "cancel r", "retry r",
    "resolve r s --fail", "fork r --at 1", "erase r --yes",
]  # fmt: skip


def test_looking_makes_no_store(desk: Desk, tmp_path: Path) -> None:
    """Not a file of it is there afterwards; the line says what makes one."""
    for words in LOOKS:
        code, out, err = desk(*words.split())
        assert (3, "", 1) == (code, out, err.count("\n")), words
        assert "there is no store at" in err
        assert "looking makes none: the first run does" in err
    assert 3 == desk("restore", "nowhere")[0]
    assert [] == list(tmp_path.iterdir())


def test_looking_makes_no_store_for_blobs(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place that nobody has put a blob into is not made by ``runs``; a run makes it."""
    desk.start(ask_number)
    monkeypatch.setenv("OUTLIVE_BLOBS", f"sqlite:///{tmp_path}/blobs.db")
    before = sorted(tmp_path.iterdir())
    assert (0, 0) == (desk("runs")[0], desk("show", "r")[0])
    assert before == sorted(tmp_path.iterdir())
    with outlive.open():
        assert (tmp_path / "blobs.db").exists()


def test_zero_needs_no_unit_and_all_else_does(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """``completed=0`` is "as soon as it ended"; who writes 30 may mean days, and is asked."""
    desk.start(ask_number)
    desk("cancel", "r")
    desk.end()
    monkeypatch.setenv("OUTLIVE_RETENTION", "completed=0,cancelled=0,id_window=0")
    assert (0, "1 deleted\n", "") == desk("retain")
    code, _, err = desk("retain", "--rules", "shop.failed=30")
    assert 2 == code
    assert (
        "outlive: --rules: 'shop.failed=30' has no unit; "
        "write shop.failed=30d for days, or shop.failed=30s\n"
    ) == err


@outlive.step
async def fetch(word: str) -> str:
    return word * 100


@outlive.flow
async def reads() -> str:
    return await fetch("long") + await fetch("more")


def test_a_step_is_shown_whole(desk: Desk) -> None:
    """By its name, its place or its id; a slip is told what was meant."""
    outlive.run(reads, id="r")
    assert "long" * 100 not in desk("show", "r")[1].split("SEQ")[1]
    code, out, _ = desk("show", "r", "fetch")
    assert 0 == code
    assert f'"{"long" * 100}"' in out
    assert f'"{"more" * 100}"' in out
    assert '"word": "long"' in out
    for name in ("fetch#2", "0/fetch#2"):
        out = desk("show", "r", name)[1]
        assert ("more" * 100 in out, "long" in out) == (True, False)
    (row,) = json.loads(desk("show", "r", "fetch#1", "--json")[1])
    assert ("long" * 100, {"word": "long"}) == (row["value"], row["args"])
    code, _, err = desk("show", "r", "fech")
    assert (2, "outlive: run r has no step 'fech'; did you mean fetch?\n") == (code, err)
    assert 2 == desk("show", "r", "fetch", "--follow")[0]


def test_runs_are_listed_with_how_long_they_took(desk: Desk) -> None:
    """From start to end; one that is under way took nothing yet."""
    outlive.run(reads, id="over")
    desk.start(ask_number, id="open")
    titles, over, under_way = (line.split() for line in desk("runs")[1].splitlines())
    assert ["AGE", "TOOK"] == titles[3:5]
    assert over[5] in ("ms", "s")
    assert "-" == under_way[4]
    first, second = json.loads(desk("runs", "--json")[1])
    assert 0 <= first["duration_ms"] < 60_000
    assert second["duration_ms"] is None


SCRIPT = """
import asyncio, sys
import outlive

@outlive.step
async def slow() -> None:
    print("under way", flush=True)
    await asyncio.sleep(60)

@outlive.flow
async def waits() -> None:
    await slow()

outlive.run(waits, id="r 1")
"""


@pytest.mark.parametrize("is_plain", [False, True])
def test_ctrl_c_says_how_to_go_on(desk: Desk, tmp_path: Path, *, is_plain: bool) -> None:
    """In a few lines, of which the last has the command; the run is as it was."""
    script = SCRIPT if not is_plain else _plain(SCRIPT)
    (tmp_path / "shop.py").write_text(script)
    words = [sys.executable, "shop.py"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        assert ran.stdout is not None
        assert "under way\n" == ran.stdout.readline()
        ran.send_signal(signal.SIGINT)
        _, err = ran.communicate(timeout=60)
    assert ran.returncode in (-signal.SIGINT, 130)
    lines = err.splitlines()
    if is_plain:
        assert "bodies of steps still run in threads (1), and Python waits" in lines.pop()
    assert len(lines) < 14, err
    assert lines[-1].startswith("KeyboardInterrupt: run r 1 was stopped and is safe: ")
    assert "step 0/slow#1, which was under way, is repeated" in lines[-1]
    assert "`outlive resume 'r 1' shop` goes on with it" in lines[-1]
    assert "waiting" == json.loads(desk("show", "r 1", "--json")[1])["status"]


@pytest.mark.parametrize("is_hurried", [False, True])
def test_a_stopped_command_names_the_step(desk: Desk, tmp_path: Path, *, is_hurried: bool) -> None:
    """First what it waits for, then what was cut off; a step that ended in time was not."""
    script = SCRIPT.partition("outlive.run")[0]
    lasts = "60" if is_hurried else "0.5"
    (tmp_path / "shop.py").write_text(script.replace("sleep(60)", f"sleep({lasts})\n", 1))
    words = [sys.executable, "-m", "outlive", "run", "shop:waits", "--id", "r"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        assert ran.stdout is not None
        assert ran.stderr is not None
        assert "under way\n" == ran.stdout.readline()
        ran.send_signal(signal.SIGINT)
        assert "outlive: stopping once 0/slow#1 has ended, within " in ran.stderr.readline()
        if is_hurried:
            ran.send_signal(signal.SIGINT)
        out, err = ran.communicate(timeout=60)
    assert "sleeps" not in err
    if is_hurried:
        assert (130, "") == (ran.returncode, out)
        assert err.startswith("outlive: run r stopped and is safe: what was recorded is kept, ")
        assert "step 0/slow#1, which was under way, is repeated; `outlive resume r shop`" in err
    else:
        assert "0/slow#1" not in err
        assert "slow" in desk("show", "r")[1]


def _plain(script: str) -> str:
    for old, new in (
        ("import outlive", "import time\nfrom outlive import sync as outlive"),
        ("await asyncio.sleep(60)", "time.sleep(5)"),  # far longer than stopping takes
        ("async def", "def"),
        ("await ", ""),
    ):
        script = script.replace(old, new)
    return script


async def test_what_is_found_has_names_and_datetimes(tmp_path: Path) -> None:
    """Beside the stored form, which stays."""
    async with outlive.open(f"sqlite:///{tmp_path}/f.db") as app:
        before = datetime.now(UTC)
        await (await app.start(reads.options(tags={"a": "b"}), id="over"))
        await app.submit(ask_number, id="open")
        over, under_way = (await app.find()).items
    assert ("over", "reads", "completed") == (over.id, over.flow, over.status)
    assert {"a": "b"} == over.tags
    assert over.ended_at is not None
    assert -1 < (over.started_at - before).total_seconds() < 60
    assert over.started_at <= over.ended_at
    assert over.started_at.timestamp() * 1000 == over.header.started_at
    assert (None, "pending") == (under_way.ended_at, under_way.status)


async def test_events_are_decoded(tmp_path: Path) -> None:
    """Times as datetimes, arguments and values as they were; the stored event stays beside."""
    async with outlive.open(f"sqlite:///{tmp_path}/e.db") as app:
        handle = await app.start(reads, id="r")
        await handle
        events = [event async for event in handle.events()]
        (found,) = (await app.find()).items
        assert [event.raw for event in events] == await handle.read()
    done = next(event for event in events if event.kind == "StepDone")
    assert ("0/fetch#1", {"word": "long"}, "long" * 100) == (done.step, done.args, done.value)
    assert found.ended_at is not None
    assert found.started_at <= done.at <= found.ended_at
    assert list(range(1, len(events) + 1)) == [event.seq for event in events]
    assert ("RunCompleted", "long" * 100 + "more" * 100) == (events[-1].kind, events[-1].value)
