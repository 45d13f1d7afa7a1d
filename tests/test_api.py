"""What users can see: the names of the package, their reference, and the command line's help."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import re
import types
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

import outlive
import outlive.cli
from outlive.model.kinds import KINDS
from outlive.model.run import Status
from outlive.settings import Settings

ROOT = Path(__file__).parent.parent
#: Public modules; those with a blocking twin of the verbs and such join when they are there.
MODULES = [
    name
    for name in (
        "outlive",
        "outlive.errors",
        "outlive.testing",
        "outlive.sync",
        "outlive.checkpoints",
        "outlive.loop",
        "outlive.jobs",
        "outlive.jobs.masumi",
        "outlive.web",
    )
    if importlib.util.find_spec(name)
]
#: Names that users rely on; taking one away breaks their programs.
RELIED_ON = {
    "flow", "step", "effect", "register", "Retry", "NotHappened", "NOT_HAPPENED", "UNKNOWN",
    "run", "start", "submit", "ensure", "get", "find", "open", "sleep", "timeout", "wait_signal",
    "ask", "approve", "requests", "call", "spawn", "map", "carry", "patched", "Approval", "Outcome",
    "Request", "Question", "schedule", "unschedule", "schedules", "pause_schedule",
    "resume_schedule", "fire_schedule", "fired_at", "Schedule", "Queue", "Rate",
    "in_flow", "replaying", "place", "do", "on_host", "EffectOptions", "StepOptions",
    "usage", "Usage",
    "key", "run_id", "attempt", "now", "random", "uuid", "errors",
}  # fmt: skip
COMMANDS = (
    "demo", "run", "runs", "show", "resume", "resolve", "worker", "verify", "answer", "signal",
    "cancel", "retry", "doctor", "completion", "schedules", "queues", "set-queue",
)  # fmt: skip
#: Verbs of a handle.
HANDLE = ("cancel", "signal", "questions", "answer", "request", "events", "status", "outcome")


def visible(module: types.ModuleType) -> set[str]:
    """What a user sees. Submodules that are not meant show only because something imported them."""
    meant = set(getattr(module, "__all__", ()))
    return {
        name
        for name in dir(module)
        if not name.startswith("_")
        and name != "annotations"
        and (name in meant or not isinstance(getattr(module, name), types.ModuleType))
    }


def reference() -> str:
    return "\n".join(path.read_text() for path in sorted(ROOT.glob("docs/reference/*.md")))


def reference_writer() -> types.ModuleType:
    """The script that writes what of the reference follows from the code."""
    path = ROOT / "scripts" / "write_reference.py"
    spec = importlib.util.spec_from_file_location("write_reference", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(*arguments: str) -> tuple[int, str]:
    """The command line's exit code and output."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), pytest.raises(SystemExit) as ended:
        raise SystemExit(outlive.cli.main(list(arguments)))
    code = ended.value.code
    return code if isinstance(code, int) else 0 if code is None else 1, output.getvalue()


def listed_commands() -> set[str]:
    """The commands that ``outlive --help`` offers."""
    _, text = call("--help")
    found = re.search(r"\{([a-z,-]+)\}", text)
    return set(found[1].split(",")) if found else set()


@pytest.mark.parametrize("name", MODULES)
def test_all_is_what_is_visible(name: str) -> None:
    """``__all__`` names everything that a user sees, and nothing else."""
    module = importlib.import_module(name)

    assert sorted(visible(module)) == sorted(getattr(module, "__all__", visible(module)))


def test_names_that_users_rely_on_are_there() -> None:
    """No release takes a name away without saying so here."""
    assert set() == RELIED_ON - set(outlive.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    """A name that is not documented is not public."""
    text = reference()
    module = importlib.import_module(name)

    missing = [
        n for n in sorted(visible(module)) if not re.search(rf"`[^`\n]*\b{n}\b[^`\n]*`", text)
    ]
    assert [] == missing


def test_the_reference_is_up_to_date() -> None:
    """Tables that follow from the code say what the code says; `make reference` writes them."""
    assert [] == [path.name for path in reference_writer().stale()]


@pytest.mark.parametrize("name", ["App", "Handle"])
def test_every_verb_is_in_the_reference(name: str) -> None:
    """What an app or a handle can is documented, each verb with a docstring of its own."""
    text = reference()
    cls = getattr(outlive, name)
    verbs = [verb for verb in dir(cls) if not verb.startswith("_") and callable(getattr(cls, verb))]

    assert [] == [verb for verb in verbs if not getattr(cls, verb).__doc__]
    assert [] == [verb for verb in verbs if f"`{verb}(" not in text]


def test_every_event_status_and_setting_is_in_the_reference() -> None:
    """Whatever people meet in a journal, a list of runs or the environment is explained."""
    wanted = [kind.__name__ for kind in KINDS] + list(get_args(Status))
    wanted += [f"OUTLIVE_{field.name.upper()}" for field in fields(Settings)]
    text = reference()

    assert [] == [name for name in wanted if f"| `{name}` |" not in text]


def test_no_row_of_the_reference_is_empty() -> None:
    """Each name comes with what it means."""
    rows = [line for line in reference().splitlines() if re.fullmatch(r"\| `[^|]+` \| +\|", line)]

    assert [] == rows


def test_a_handle_can_what_users_rely_on() -> None:
    """Each verb is there, and says what it does."""
    assert [] == [name for name in HANDLE if not getattr(outlive.Handle, name).__doc__]


def test_every_public_callable_has_a_docstring() -> None:
    """``help(outlive.x)`` says something for every x."""
    silent = [
        f"outlive.{name}"
        for name in outlive.__all__
        if callable(public := getattr(outlive, name)) and not (public.__doc__ or "").strip()
    ]

    assert [] == silent


def test_the_command_line_offers_its_commands() -> None:
    """``outlive --help`` lists every command."""
    assert set() == set(COMMANDS) - listed_commands()


def test_every_command_has_help() -> None:
    """``outlive COMMAND --help`` ends well, says what the command does, and is documented."""
    text = reference()
    for command in sorted(listed_commands()):
        code, shown = call(command, "--help")
        sentences = [line for line in shown.splitlines() if re.search(r"\w+ \w+ \w+", line)]

        assert 0 == code, command
        assert len(sentences) >= 2, f"outlive {command} --help says too little"
        assert f"## `outlive {command}" in text, f"outlive {command} is not in docs/reference"
        options = set(re.findall(r"^  +(--[a-z-]+)", shown, re.MULTILINE)) - {"--help"}
        assert [] == [option for option in options if option not in text], command


def test_a_wrong_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command ends with exit code 2 and no traceback."""
    code, _ = call("no-such-command")

    assert 2 == code
    assert "Traceback" not in capsys.readouterr().err
