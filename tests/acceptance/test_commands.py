"""Each command in a real process, for people and for programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import SECONDS_MAX, Cli
from tests.harness.programs import shown_on_terminal

ORDER = '{"order": {"id": "7", "cents": 1999}}'


def doubt(cli: Cli, run_id: str = "d") -> None:
    """Leave a run in doubt about its refund."""
    cli("run", "shop:greet", "--id", "other")
    (cli.folder / "bank-is-down").touch()
    driven = cli.start("run", "shop:buy", "--id", run_id, "--input", ORDER)
    assert driven.stderr is not None
    assert "in doubt" in driven.stderr.readline()
    driven.kill()
    driven.wait()
    (cli.folder / "bank-is-down").unlink()


def test_run_prints_the_outcome(cli: Cli) -> None:
    """A text as it is; the new run's id goes beside it."""
    ran = cli("run", "shop:greet", "--input", '["Ada"]')

    assert (0, "hello Ada\n") == (ran.code, ran.out)
    assert ran.err.startswith("run ")


def test_run_goes_on_by_id(cli: Cli) -> None:
    """The same id is the same run: nothing happens twice."""
    ran = [cli("run", "shop:buy", "--id", "a", "--input", ORDER) for _ in range(2)]

    assert [(0, '{"order":"7","cents":1999}\n', "")] * 2 == [(r.code, r.out, r.err) for r in ran]
    assert "7\n" == (cli.folder / "ledger").read_text()


def test_run_as_json(cli: Cli) -> None:
    """Id, flow, status and outcome are there, and more."""
    shown = cli("run", "shop:buy", "--id", "a", "--input", ORDER, "--json").json

    assert ("a", "buy", "completed") == (shown["id"], shown["flow"], shown["status"])
    assert ({"order": "7", "cents": 1999}, None) == (shown["outcome"], shown["error"])


def test_a_failed_run_is_exit_code_1(cli: Cli) -> None:
    """With one line that says why, and the same again when asked again."""
    for _ in range(2):
        ran = cli("run", "shop:fail", "--id", "f", "--input", '["1.50"]', "--json")

        assert (1, "failed") == (ran.code, ran.json["status"])
        assert {"type": "ValueError", "message": "nobody pays 1.50"} == ran.json["error"]
        assert "outlive: run f failed: ValueError: nobody pays 1.50\n" == ran.err


def test_the_command_is_installed(cli: Cli) -> None:
    """``outlive`` is the same as ``python -m outlive``, and finds modules in this folder, too."""
    command = Path(sys.executable).with_name("outlive")
    done = subprocess.run(
        [command, "run", "shop:greet"],
        cwd=cli.folder, env=cli.environment, capture_output=True, text=True, timeout=SECONDS_MAX,
    )  # fmt: skip

    assert (0, "hello you\n") == (done.returncode, done.stdout)


def test_options_may_stand_before_the_command(cli: Cli) -> None:
    """``--store`` is for every command, wherever it stands."""
    ran = cli("--store", "sqlite:///other.db", "run", "shop:greet", "--id", "x")

    assert 0 == ran.code
    assert ["x"] == [
        run["id"] for run in cli("runs", "--json", "--store", "sqlite:///other.db").json
    ]
    assert not cli.database.exists()


def test_runs_lists_runs(cli: Cli) -> None:
    """One line each, in columns, the newest last; keys are no runs."""
    cli("run", "shop:buy", "--id", "a", "--input", ORDER)
    cli("run", "shop:fail", "--id", "b c", "--input", "[2]")

    text = cli("runs").out.splitlines()
    data = cli("runs", "--json").json

    assert ["RUN", "FLOW", "STATUS", "AGE", "TOOK", "SEQ", "WORKER", "REASON"] == text[0].split()
    assert ["a", "buy", "completed"] == text[1].split()[:3]
    assert text[2].endswith("-       ValueError: nobody pays 2")
    assert [("a", "buy", "completed"), ("b c", "fail", "failed")] == [
        (run["id"], run["flow"], run["status"]) for run in data
    ]
    assert len(text) == 3


def test_runs_can_be_narrowed(cli: Cli) -> None:
    """By status, flow, tag and number."""
    for name in ("a", "b", "c"):
        cli("run", "shop:greet", "--id", name)
    cli("run", "shop:fail", "--id", "f", "--input", "[2]")

    def listed(*words: str) -> list[str]:
        return [run["id"] for run in cli("runs", "--json", *words).json]

    assert ["f"] == listed("--status", "failed")
    assert ["f"] == listed("--flow", "fail")
    assert [] == listed("--tag", "team=red")
    assert ["c", "f"] == listed("--limit", "2")
    assert "the newest 2" in cli("runs", "--limit", "2").err


def test_show_tells_what_happened(cli: Cli) -> None:
    """A row per event with branch, step, attempt and values, without the flow's code."""
    cli("run", "shop:buy", "--id", "a", "--input", ORDER)
    (cli.folder / "shop.py").unlink()

    ran = cli("show", "a")
    lines = ran.out.splitlines()

    assert 0 == ran.code
    assert "run a" == lines[0]
    assert any('Order(id="7", cents=1999)' in line for line in lines[1:6])
    table = [line.split() for line in lines[lines.index("") + 1 :]]
    assert ["SEQ", "TIME", "BRANCH", "STEP", "WHAT", "TRY", "TOOK", "DETAIL"] == table[0]
    assert [str(number) for number in range(1, len(table))] == [row[0] for row in table[1:]]
    assert ["0.1", "look_up#1", "done"] == table[3][2:5]
    assert any("intended" in row and "refund:7" in row for row in table)
    assert "\x1b" not in ran.out


def test_show_as_json(cli: Cli) -> None:
    """The same as data: arguments, outcome, timeline."""
    cli("run", "shop:buy", "--id", "a", "--input", ORDER)

    shown = cli("show", "a", "--json").json

    assert ("a", "completed", []) == (shown["id"], shown["status"], shown["doubts"])
    assert {"order": {"id": "7", "cents": 1999}, "at": None} == shown["args"]
    assert {"order": "7", "cents": 1999} == shown["outcome"]
    assert list(range(1, shown["seq"] + 1)) == [row["seq"] for row in shown["timeline"]]
    assert "started" == shown["timeline"][0]["what"]
    (done,) = [
        row for row in shown["timeline"] if (row["step"], row["what"]) == ("refund#1", "done")
    ]
    assert (1, "0") == (done["attempt"], done["branch"])
    assert done["duration_ms"] >= 0


def test_show_can_follow(cli: Cli) -> None:
    """Each event as it becomes durable, until the run ends; one JSON object per line."""
    driven = cli.start("run", "shop:wait_for", "--id", "w", "--input", '["b"]')
    while not (cli.folder / "b.waiting").exists():
        assert None is driven.poll()
    text = cli.start("show", "w", "--follow")
    data = cli.start("show", "w", "--follow", "--json")
    assert text.stdout is not None
    assert data.stdout is not None
    first = [text.stdout.readline().split()[:3], json.loads(data.stdout.readline())["what"]]
    (cli.folder / "b").touch()
    rest = [text.stdout.read(), data.stdout.read()]

    assert [["1", "+0.000", "started"], "started"] == first
    assert (0, 0) == (text.wait(SECONDS_MAX), data.wait(SECONDS_MAX))
    assert "completed" in rest[0].splitlines()[-1]
    assert [2, 3, 4] == [json.loads(line)["seq"] for line in rest[1].splitlines()]


def test_output_on_a_terminal_is_a_drawn_table(cli: Cli) -> None:
    """Only there: colours and lines, and nothing of a run's own text steers the terminal."""
    cli(
        "run",
        "shop:greet",
        "--id",
        "\x1b[31mred",
        "--input",
        '["\x1b[31mAda"]'.replace("\x1b", "\\u001b"),
    )
    environment = cli.environment | {"TERM": "xterm"}

    shown = shown_on_terminal(cli.command("runs"), environment, cli.folder)

    assert "─" in shown
    assert "\\x1b[31mred" in shown
    assert "\x1b[31mred" not in shown


def test_resume_waits_for_a_sleeping_run(cli: Cli) -> None:
    """It says until when, and prints the outcome at the end."""
    sleeper = cli.start("run", "shop:nap", "--id", "n", "--input", "[1.5]")
    assert sleeper.stderr is not None
    assert "run n sleeps until" in sleeper.stderr.readline()
    sleeper.kill()
    sleeper.wait()

    ran = cli("resume", "n", "shop")

    assert (0, "rested\n") == (ran.code, ran.out)


def test_resume_of_an_ended_run_needs_no_code(cli: Cli) -> None:
    """It prints how the run ended."""
    cli("run", "shop:buy", "--id", "a", "--input", ORDER)
    cli("run", "shop:fail", "--id", "f", "--input", "[2]")

    assert (0, '{"order":"7","cents":1999}\n') == ((ran := cli("resume", "a")).code, ran.out)
    assert (1, "outlive: run f failed: ValueError: nobody pays 2\n") == (
        (ran := cli("resume", "f")).code,
        ran.err,
    )


def test_a_doubt_is_shown_resolved_and_gone_on_with(cli: Cli) -> None:
    """``show`` names it and the remedy, ``resolve`` settles it, ``resume`` ends the run."""
    doubt(cli)
    stuck = cli("resume", "d", "shop")
    shown = cli("show", "d")
    data = cli("show", "d", "--json").json
    told = cli("resolve", "d", "0/refund#1", "--happened", '{"order": "7", "cents": 5}')
    ran = cli("resume", "d", "shop")

    assert 1 == stuck.code
    assert "outlive resolve d '0/refund#1' --happened JSON" in stuck.err
    assert "in doubt: effect 0/refund#1, attempt 1, key refund:7" in shown.out
    assert "RuntimeError: no answer" in shown.out
    assert [("0/refund#1", "refund:7", True)] == [
        (each["step"], each["key"], each["asks"]) for each in data["doubts"]
    ]
    assert 0 == told.code
    assert "outlive resume d MODULE" in told.out
    assert (0, '{"order":"7","cents":5}\n') == (ran.code, ran.out)
    assert not (cli.folder / "ledger").exists()
    ends = [
        row for row in cli("show", "d", "--json").json["timeline"] if row["what"] == "completed"
    ]
    assert 1 == len(ends)


@pytest.mark.parametrize(
    ("word", "code", "ledger"), [("--not-happened", 0, "7\n"), ("--fail", 1, None)]
)
def test_what_a_human_says_counts(cli: Cli, word: str, code: int, ledger: str | None) -> None:
    """Not happened: it is tried again. Fail: the flow is told, and nothing is tried."""
    doubt(cli)
    told = cli("resolve", "d", "refund", word, "--json")
    ran = cli("resume", "d", "shop")

    assert (0, "0/refund#1") == (told.code, told.json["step"])
    assert code == ran.code
    path = cli.folder / "ledger"
    assert ledger == (path.read_text() if path.exists() else None)


def test_an_answer_of_the_wrong_type_is_refused_and_can_be_given_again(cli: Cli) -> None:
    """A slip of the pen neither settles the doubt nor stops whoever drives the run."""
    doubt(cli)
    cli("resolve", "d", "refund", "--happened", '{"order": "7", "cents": "many"}')
    stuck = cli("resume", "d", "shop")
    shown = cli("show", "d")
    cli("resolve", "d", "refund", "--happened", '{"order": "7", "cents": 6}')
    ran = cli("resume", "d", "shop")

    assert (1, True) == (stuck.code, "in doubt" in stuck.err)
    assert "refused: $: this JSON is no" in shown.out
    assert (0, '{"order":"7","cents":6}\n') == (ran.code, ran.out)


def test_run_waits_while_a_human_answers(cli: Cli) -> None:
    """It says what it waits for, and goes on by itself when that is done."""
    (cli.folder / "bank-is-down").touch()
    driven = cli.start("run", "shop:buy", "--id", "d", "--input", ORDER)
    assert driven.stderr is not None
    assert "is in doubt" in driven.stderr.readline()
    told = cli("resolve", "d", "refund", "--happened", '{"order": "7", "cents": 7}')
    out, _ = driven.communicate(timeout=SECONDS_MAX)

    assert 0 == told.code
    assert (0, '{"order":"7","cents":7}\n') == (driven.returncode, out)


def test_output_to_nobody_is_no_error(cli: Cli) -> None:
    """A reader that goes away early is not answered with a traceback."""
    cli("run", "shop:count", "--id", "c", "--input", "[300]")
    process = cli.start("show", "c", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.wait(SECONDS_MAX)

    assert "" == process.stderr.read()
    process.stdout = None
