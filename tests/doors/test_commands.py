"""The commands that speak to a run: what they do, what they refuse, in one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from outlive.cli.doctor import _named
from outlive.cli.output import span
from outlive.cli.timeline import since
from outlive.journal.seal.keys import MasterKeys, new_key
from outlive.model.schema import example, wanted
from outlive.settings import Settings
from outlive.sync.checkpoints import DurableRunner
from tests.doors.desk import (
    Desk,
    ask_all,
    ask_number,
    fails_at_first,
    parent,
    wait_two,
)
from tests.harness.programs import python, shown_on_terminal


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A store and the command line on it."""
    return Desk(tmp_path, monkeypatch)


def test_answer_is_shown_checked_and_taken(desk: Desk) -> None:
    """``show`` has the command, a slip is refused in one line, the right answer is read."""
    desk.park(ask_number)
    code, shown, _ = desk("show", "r")
    assert 0 == code
    assert "asks: How many?" in shown
    assert "wants      a whole number" in shown
    assert "answer it  outlive answer r NUMBER" in shown
    (asked,) = json.loads(desk("show", "r", "--json")[1])["questions"]
    assert ("0/ask#1", {"type": "integer"}) == (asked["id"], asked["schema"])

    assert (
        2,
        "",
        "outlive: question 0/ask#1 refuses this answer: $: integer is wanted, not str; "
        "it stays open and wants a whole number\n",
    ) == desk("answer", "r", "many")
    code, told, _ = desk("answer", "r", "41", "--by", "ann", "--json")
    assert {"id": "r", "question": "0/ask#1", "answer": 41, "worker": None} == json.loads(told)
    code, _, refused = desk("answer", "r", "42")
    assert (2, 1) == (code, refused.count("\n"))
    assert "asks nothing right now" in refused

    ended = desk.end()
    assert 42 == ended["outcome"]
    (answered,) = [row for row in ended["timeline"] if row["what"] == "answered"]
    assert "by ann" == answered["note"]
    assert "run r has ended (completed)" in desk("answer", "r", "1")[2]


def test_several_questions_need_a_name(desk: Desk) -> None:
    """A text may be given as it is, and yes is true."""
    desk.park(ask_all)
    code, _, refused = desk("answer", "r", "Ada")
    assert 2 == code
    assert "asks 2 questions, name one" in refused
    assert "--question '0.1/ask#1'" in desk("show", "r")[1]
    assert 0 == desk("answer", "r", "Ada", "--question", "0.1/ask#1")[0]
    assert 0 == desk("answer", "r", "yes")[0]

    assert ["Ada", True] == desk.end()["outcome"]


def test_signal_is_json_or_text_and_once_per_id(desk: Desk) -> None:
    """A repeat is told, and changes nothing."""
    desk.park(wait_two)
    assert "noted: run r: signal go" in desk("signal", "r", "go", '{"a": 1}', "--id", "s")[1]
    again = desk("signal", "r", "go", '{"a": 1}', "--id", "s")
    assert (0, True) == (again[0], "signal s was sent before: no change" in again[1])
    assert json.loads(desk("signal", "r", "go", "now", "--json")[1])["is_new"]

    assert [{"a": 1}, "now"] == desk.end()["outcome"]


def test_cancel_ends_a_run(desk: Desk) -> None:
    """As cancelled; whoever waits for it is told with exit code 1."""
    desk.park(wait_two)
    code, told, _ = desk("cancel", "r", "--by", "ann")
    assert (0, True) == (code, "outlive resume r MODULE" in told)

    assert "cancelled" == desk.end()["status"]
    assert (1, "", "outlive: run r was cancelled\n") == desk("resume", "r")


def test_retry_gives_another_try(desk: Desk) -> None:
    """What failed is run again; a run that did not fail is refused."""
    desk.start(fails_at_first)
    assert "failed" == desk.end()["status"]
    Path("works").touch()
    assert 0 == desk("retry", "r", "--by", "ann")[0]

    assert "done" == desk.end()["outcome"]
    code, _, refused = desk("retry", "r")
    assert (2, True) == (code, "run r can't be tried again" in refused)


@pytest.mark.parametrize(
    "words",
    [("answer", "x", "1"), ("signal", "x", "a", "1"), ("cancel", "x"), ("retry", "x")],
)
def test_a_run_that_is_not_there_is_named(desk: Desk, words: tuple[str, ...]) -> None:
    """One line with the remedy."""
    desk.start(ask_number)

    assert (2, "", "outlive: no run has the id 'x'; `outlive runs` lists all runs\n") == (
        desk(*words)
    )


def test_show_tells_of_children_deadline_and_pins(desk: Desk) -> None:
    """What the run waits for, and what it was started with."""
    desk.park(parent)
    desk.drive(lambda header: header.status == "waiting", "kid")
    shown = desk("show", "r")[1]
    data = json.loads(desk("show", "r", "--json")[1])

    assert "waits for 1 child run:\n  kid  flow child, called at 0/call:child#1" in shown
    assert "pins       model=m1" in shown
    assert "deadline   " in shown
    assert [("kid", True, True)] == [
        (each["id"], each["is_started"], each["is_awaited"]) for each in data["children"]
    ]
    assert {"model": "m1"} == data["pins"]
    assert "parent     r" in desk("show", "kid")[1]


def test_runs_that_nobody_drives_are_shown(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """In ``runs`` at once, in ``doctor`` after a second look; what sleeps is not among them."""
    monkeypatch.setattr("outlive.cli.doctor.PATIENCE_SECONDS", 0.01)
    desk.park(wait_two, id="sleeps")
    desk.start(ask_number, id="due")
    _, listed, hint = desk("runs")
    rows = {line.split()[0]: line.split() for line in listed.splitlines()[1:]}
    as_data = json.loads(desk("runs", "--json")[1])
    code, said, _ = desk("doctor")

    driven_by = listed.splitlines()[0].split().index("WORKER")
    assert ("-", "nobody") == (rows["sleeps"][driven_by], rows["due"][driven_by])
    assert "driven by nobody right now: 1 (flow ask_number); `outlive worker MODULE`" in hint
    assert {"sleeps": False, "due": True} == {run["id"]: run["is_unattended"] for run in as_data}
    assert 1 == code
    assert "nobody drives flow ask_number (version 1): 1 due (due)" in said
    assert "the store is sound; some runs need a worker" in said
    forsaken = json.loads(desk("doctor", "--json")[1])["forsaken"]
    assert {"ask_number (version 1)": ["due"]} == forsaken


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:s3@cret@db/x?schema=y", "postgresql://ada:***@db/x?schema=y"),
        ("postgresql://db/x?password=s3cret&schema=y", "postgresql://db/x?password=***&schema=y"),
        ("postgresql://db/x?listen=postgresql://ada:s3cret@z", "postgresql://db/x?listen=***"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
    ],
)
def test_doctor_shows_no_password(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, url: str, shown: str
) -> None:
    """Its output may be pasted anywhere."""
    desk.start(ask_number)
    monkeypatch.setattr("outlive.cli.doctor.PATIENCE_SECONDS", 0.0)
    monkeypatch.setenv("OUTLIVE_STORE", url)

    told = desk("doctor", "--store", desk.url)[1]

    assert f"OUTLIVE_STORE={shown}\n" in told
    assert "cret" not in told


@pytest.mark.parametrize("output", [(), ("--json",)], ids=["text", "json"])
def test_doctor_shows_no_secret(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, output: Sequence[str]
) -> None:
    """Of a key what it is called; no password of an archive."""
    key, older = (new_key(lambda size, fill=fill: bytes([fill]) * size) for fill in (1, 2))
    monkeypatch.setenv("OUTLIVE_KEY", f"{key},{older}")
    desk.start(ask_number)
    monkeypatch.setattr("outlive.cli.doctor.PATIENCE_SECONDS", 0.0)
    rules = "archive=postgresql://db/x?password=s3cret,failed=1d"
    monkeypatch.setenv("OUTLIVE_RETENTION", rules)

    told = desk("doctor", *output)[1]

    ids = MasterKeys.parse(f"{key},{older}", bytes).ids
    assert ",".join(f"(key id {each})" for each in ids) in told
    assert "archive=postgresql://db/x?password=***,failed=1d" in told
    assert not [secret for secret in (key, older, "s3cret") if secret in told]


def test_doctor_shows_no_password_of_the_place_of_blobs() -> None:
    """It is a store's URL like any other."""
    named = _named(Settings(blobs="postgresql://ada:s3cret@db/x"), [])

    assert "postgresql://ada:***@db/x" == named["OUTLIVE_BLOBS"]
    assert "" == named["OUTLIVE_KEY"]


def test_doctor_says_what_is_set_and_what_is_wrong(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3 if the store has a problem."""
    desk.start(ask_number)
    monkeypatch.setenv("OUTLIVE_LEASE_SECONDS", "7")
    monkeypatch.setattr("outlive.cli.doctor.PATIENCE_SECONDS", 0.0)
    assert "OUTLIVE_LEASE_SECONDS=7.0" in desk("doctor")[1]
    database = Path("desk.db")
    content = bytearray(database.read_bytes())
    content[4096 * 2 : 4096 * 2 + 600] = b"x" * 600
    database.write_bytes(bytes(content))
    for newer in Path().glob("desk.db-wal"):
        newer.unlink()

    assert 3 == desk("doctor")[0]


def test_rules_that_are_none_are_named_as_they_were_given(desk: Desk) -> None:
    """On the command line, not in the environment."""
    desk.start(ask_number)

    code, _, why = desk("retain", "--rules", "complete=30d", "--dry-run")

    assert (2, True) == (code, why.startswith("outlive: --rules: 'complete=30d' is not a rule"))


def test_a_fork_changes_one_outcome(desk: Desk) -> None:
    """Of two, none is dropped in silence."""
    desk.park(ask_number)
    desk("answer", "r", "4")
    desk.end()

    code, _, why = desk("fork", "r", "--set", "ask=5", "--set", "ask=6")

    assert 2 == code
    assert "a fork can replace one outcome" in why
    assert 0 == desk("fork", "r", "--set", "ask=5", "--id", "f")[0]
    assert 6 == desk.end("f")["outcome"]


def test_checkpoints_are_named_where_there_is_no_run(desk: Desk) -> None:
    """By the id that show, verify and erase take; what only runs have is refused."""
    runner = DurableRunner(desk.url)
    runner.checkpoint("c1", "plan", {"at": 1})
    runner.finish("c1")
    runner.close()
    desk.park(ask_number)
    name = "outlive/checkpoints/c1"

    assert 0 == desk("show", "c1")[0]
    for command in (("verify",), ("erase", "--yes")):
        code, _, why = desk(*command, "c1")
        assert 2 == code
        assert f"no run has the id 'c1'; its checkpoints are called '{name}'" in why
    assert "no run has the id 'c2'; `outlive runs` lists" in desk("show", "c2")[2]
    code, _, why = desk("diff", name, "r")
    assert 2 == code
    assert f"{name} is not a run and has no steps; `outlive show` shows it" in why
    for command in (("show",), ("verify",), ("erase", "--yes")):
        assert 0 == desk(*command, name)[0]


def test_completion_is_made_from_the_commands(desk: Desk) -> None:
    """Each shell's script names every command and its options; bash completes by it."""
    scripts = {shell: desk("completion", shell)[1] for shell in ("bash", "zsh", "fish")}
    for script in scripts.values():
        for word in ("answer", "question", "resume", "doctor", "status"):
            assert word in script
    bash = shutil.which("bash")
    assert bash is not None
    for typed, wanted_word in (
        (("outlive", "ans"), "answer"),
        (("outlive", "show", "--f"), "--follow"),
    ):
        words = " ".join(typed)
        tried = (
            f"{scripts['bash']}\nCOMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _outlive; "
            'echo "${COMPREPLY[@]}"'
        )
        done = subprocess.run([bash, "-c", tried], capture_output=True, text=True, timeout=20)
        assert wanted_word == done.stdout.strip(), done.stderr


def test_a_timeline_on_a_terminal_has_marks(desk: Desk) -> None:
    """Branches are set in, times are short, and it can be followed."""
    desk.park(ask_all)
    desk("answer", "r", "Ada", "--question", "0.1/ask#1")
    desk("answer", "r", "no")
    desk.end()
    terminal = {**os.environ, "TERM": "dumb", "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}

    for words in (("show", "r"), ("show", "r", "--follow")):
        shown = shown_on_terminal(python("-m", "outlive", *words), terminal)
        assert "│ 0.1" in shown
        assert "? asked" in shown
        assert "● answered" in shown
        assert "■ completed" in shown


def test_times_are_as_exact_as_they_are_interesting() -> None:
    """Seconds at first, days in the end."""
    times = (0, 1234, 61_000, 3_700_000, 90_000_000)

    assert ["0 ms", "5 ms", "1.5 s", "2m", "2d"] == [
        span(each) for each in (-3, 5, 1500, 120_000, 2 * 86_400_000)
    ]
    assert ["+0.000s", "+1.234s", "+1m 01s", "+1h 01m", "+1d 01h"] == [since(at) for at in times]


@pytest.mark.parametrize(
    ("schema", "words", "typed"),
    [
        (None, "anything", "JSON"),
        ({"type": "number"}, "a number", "NUMBER"),
        ({"type": "string", "format": "date"}, "a date like 2026-01-31", "TEXT"),
        ({"type": "string", "contentEncoding": "base64"}, "bytes in base64", "TEXT"),
        ({"enum": ["red", "dark blue"]}, "red or dark blue", "red"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "a text, or null", "TEXT"),
        (
            {
                "$ref": "#/$defs/A",
                "$defs": {"A": {"properties": {"a": {}, "b": {}}, "required": ["a"]}},
            },
            "an object {a, [b]}",
            "JSON",
        ),
        ({"type": "array"}, 'JSON of the schema {"type":"array"}', "JSON"),
    ],
)
def test_schemas_are_told_in_words(
    schema: dict[str, object] | None, words: str, typed: str
) -> None:
    """What people are asked for, and what they might type."""
    assert (words, typed) == (wanted(schema), example(schema))
