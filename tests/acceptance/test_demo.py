"""The demo, as a visitor runs it: it holds for any seed, and it could fail."""

from __future__ import annotations

import ast
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive.cli.demo import agent, agent_plain, show
from outlive.cli.demo.show import failures, incoherences
from outlive.cli.demo.story import BETWEEN, IN_CALL, KILLS_MIN, Moment, Tally, plan_kills
from tests.harness.programs import read_terminal

pytestmark = pytest.mark.alone("processes")

ENTRY = "import sys; from outlive.cli import main; sys.exit(main(sys.argv[1:]))"
ROW = re.compile(r"^\W*([a-z][a-z ]+?) +\W+ +([\d.]+|-) +\W+ +([\d.]+|-)", re.M)
SEED = re.compile(r"seed (\d+)")
KILLED = re.compile(r"(with Outlive|plain Python) +✗ SIGKILL (\d+) +(.+)")
DEMO_SECONDS_MAX = 120
AGENT_LINES_MAX = 80

#: The durable agent, with its refund repeated blindly when in doubt.
RETRYING = """
import outlive
from outlive.cli.demo import agent
agent.refund = outlive.effect(key="refund:{order}", doubt="retry")(agent.refund.plain)
print(outlive.run(agent.support, agent.TICKET, id=agent.TICKET_ID))
"""

Figures = dict[str, tuple[float | None, float | None]]


def figures_of(output: str) -> Figures:
    """The rows of the table: name to (with Outlive, plain)."""

    def number(text: str) -> float | None:
        return None if text == "-" else float(text)

    return {name: (number(ours), number(plain)) for name, ours, plain in ROW.findall(output)}


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demo makes its folder."""
    return tmp_path_factory.mktemp("d")


def start(place: Path, *arguments: str) -> subprocess.Popen[str]:
    """The demo in a process of its own that makes its folder in ``place``."""
    command = [sys.executable, "-W", "error", "-c", ENTRY, "demo", *arguments]
    environment = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": source_folder()}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=hear_interrupts,
    )  # fmt: skip


def hear_interrupts() -> None:
    """Whoever is started in the background ignores them, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def source_folder() -> str:
    return str(Path(outlive.__file__).parent.parent)


def processes_in(place: Path) -> list[str]:
    """Every process that was started for a demo in ``place``: they inherit its environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={place}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended meanwhile, or is somebody else's
    return found


def assert_nothing_is_left(place: Path) -> None:
    assert [] == processes_in(place)
    assert [] == list(place.iterdir())


def assert_as_promised(shown: Figures) -> None:
    """What the table must say for any seed."""
    kills, plain_kills = shown["kills"]
    made, plain_made = shown["model calls made"]
    run, plain_run = shown["steps run"]
    replayed, saved = shown["steps replayed"][0], shown["model calls saved"][0]
    assert kills == plain_kills
    assert kills is not None
    assert kills >= KILLS_MIN
    assert 1 == shown["refunds at the bank"][0]
    assert 1 == shown["mails sent"][0]
    assert (shown["refunds at the bank"][1] or 0) > 1
    assert made is not None
    assert plain_made is not None
    assert run is not None
    assert plain_run is not None
    assert 8 <= made < plain_made
    assert 10 <= run < plain_run
    assert replayed is not None
    assert saved is not None
    assert 0 < saved <= replayed


@pytest.mark.parametrize("seed", [1, 7, 1042])
def test_the_demo_holds(seed: int, place: Path, figure: Callable[[str, object], None]) -> None:
    """Killed at the moments of a seed, the agent refunds and writes once; its twin does not."""
    began = time.monotonic()
    demo = start(place, "--fast", "--seed", str(seed))
    output, _ = demo.communicate(timeout=DEMO_SECONDS_MAX)
    figure(f"demo --fast --seed {seed}, s", f"{time.monotonic() - began:.1f}")
    shown = figures_of(output)
    moments = [kill.moment.value for kill in plan_kills(seed)]
    died = KILLED.findall(output)

    assert 0 == demo.returncode, output
    assert_as_promised(shown)
    assert moments == [moment for side, _, moment in died if side == "with Outlive"]
    assert moments == [moment for side, _, moment in died if side == "plain Python"]
    assert_nothing_is_left(place)


def test_the_demo_on_a_terminal(place: Path) -> None:
    """On a terminal it draws on a screen of its own, leaves it, and shows table and verdict."""
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    environment |= {"TMPDIR": str(place), "PYTHONPATH": source_folder()}
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", ENTRY, "demo", "--fast"]
    demo = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    output = b"".join(read_terminal(ours)).decode()
    os.close(ours)
    live, _, after = output.partition("\x1b[?1049l")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", after)

    assert 0 == demo.wait(DEMO_SECONDS_MAX), text
    assert "\x1b[?1049h" in live
    assert "EffectDoubted" in live
    assert_as_promised(figures_of(text))
    assert f"outlive demo --seed {SEED.findall(text + live)[0]}" in text
    assert_nothing_is_left(place)


def test_interrupted_it_ends_all_it_started(place: Path) -> None:
    """After Ctrl-C no process and no folder of the demo is left."""
    demo = start(place)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "SIGKILL 1" in line:
            break
    demo.send_signal(signal.SIGINT)
    rest, _ = demo.communicate(timeout=DEMO_SECONDS_MAX)

    assert 130 == demo.returncode, rest
    assert "Traceback" not in rest
    assert_nothing_is_left(place)


def test_an_effect_that_is_repeated_blindly_is_found_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a bank that does not deduplicate, retrying in doubt pays twice, and the demo fails."""
    monkeypatch.setattr(show, "DURABLE", (sys.executable, "-c", RETRYING))

    code = show.run_show(["--fast", "--seed", "1"])
    output = capsys.readouterr().out

    assert 1 == code, output
    assert (figures_of(output)["refunds at the bank"][0] or 0) > 1
    assert "not as promised" in output


def tally(**figures: Any) -> Tally:
    """How a side went; seven kills if nothing else is said."""
    known = {"title": "", "shows": "", "style": "", "kills_planned": 7, "kills": 7}
    return Tally(**{**known, **figures})


@pytest.mark.parametrize(
    ("ours", "plain"),
    [
        ({"refunds": 0}, {}),
        ({"refunds": 2}, {}),
        ({"mails": 0}, {}),
        ({"mails": 2}, {}),
        ({"kills": 6}, {}),
        ({"kills": 5, "kills_planned": 5}, {}),
        ({"faults": ["the outcome is wrong"]}, {}),
        ({}, {"refunds": 1}),
        ({}, {"kills": 6}),
        ({}, {"faults": ["it did not end"]}),
    ],
)
def test_the_verdict_is_strict(ours: dict[str, Any], plain: dict[str, Any]) -> None:
    """One figure that is not as promised is enough to fail."""
    good, twin = {"refunds": 1, "mails": 1}, {"refunds": 2, "mails": 2}

    assert [] == failures(tally(**good), tally(**twin))
    assert failures(tally(**{**good, **ours}), tally(**{**twin, **plain}))


@pytest.mark.parametrize(
    ("outcome", "reason", "letter"),
    [
        ("Closed: refund B-1, letter P-1 ~00000f", "lost ~000001", "paid B-1 ~000002"),
        ("Closed: refund B-1, letter P-1 ~000003", "lost ~00000f", "paid B-1 ~000002"),
        ("Closed: refund B-1, letter P-1 ~000003", "lost ~000001", "paid B-1 ~00000f"),
        ("Closed: refund B-1, letter P-1 ~000003", "lost ~000001", "paid B-2 ~000002"),
        ("Closed: refund B-2, letter P-1 ~000003", "lost ~000001", "paid B-1 ~000002"),
        ("Closed: refund B-1, letter P-2 ~000003", "lost ~000001", "paid B-1 ~000002"),
        ("", "lost ~000001", "paid B-1 ~000002"),
    ],
)
def test_a_wrong_outcome_is_noticed(outcome: str, reason: str, letter: str) -> None:
    """What was said must be in the journal, and speak of the refund that the bank made."""
    journal = {"~000001", "~000002", "~000003"}
    told = ("Closed: refund B-1, letter P-1 ~000003", "lost ~000001", "paid B-1 ~000002")

    def found(outcome: str, reason: str, letter: str) -> list[str]:
        refunds = [{"number": "B-1", "reason": reason}]
        return incoherences(outcome, refunds, [{"number": "P-1", "letter": letter}], journal)

    assert [] == found(*told)
    assert found(outcome, reason, letter)


def test_every_seed_kills_enough() -> None:
    """Any seed gives six to eight kills, the bank's among them, in calls and between them."""
    for seed in range(2000):
        moments = [kill.moment for kill in plan_kills(seed)]

        assert KILLS_MIN <= len(moments) <= KILLS_MIN + 2
        assert len(set(moments)) == len(moments)
        assert Moment.REFUND_MADE in moments
        assert set(moments) & set(IN_CALL.values())
        assert set(moments) & set(BETWEEN)
        assert plan_kills(seed) == plan_kills(seed)


def flow_body(text: str) -> str:
    """What ``support`` does."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "support":
            return "\n".join(ast.unparse(line) for line in node.body)
    raise AssertionError("there is no support flow")


def test_the_agents_are_twins() -> None:
    """The durable agent is the plain one with decorators, keys and checks: readable at a glance."""
    durable, plain = (Path(str(module.__file__)).read_text() for module in (agent, agent_plain))
    flows = [flow_body(text) for text in (durable, plain)]
    only_plain = set(plain.splitlines()) - set(durable.splitlines())

    assert flows[0] == flows[1]
    assert max(len(text.splitlines()) for text in (durable, plain)) <= AGENT_LINES_MAX
    assert len(only_plain) <= 5, only_plain
