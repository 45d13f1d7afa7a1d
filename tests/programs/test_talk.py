"""The chat agent: its worker killed in the middle of a thought, and failing in ordinary ways."""

from __future__ import annotations

import signal

import pytest

from tests.examples.conftest import Program
from tests.programs.conftest import Failure, Shell

SAY = ("python", "talk.py", "ada")


def work(shell: Shell) -> Program:
    """A worker that is ready."""
    worker = shell.start("outlive", "worker", "talk")
    worker.says("worker")
    return worker


def test_it_goes_on_after_a_kill(shell: Shell) -> None:
    """Killed while it thinks: who waits gets a reply from the next worker, with all remembered."""
    shell.edit("talk.py", ('timeout="8s"', 'timeout="40s"'))
    worker = work(shell)
    assert "friendly: 1 messages, the first was hello\n" == shell(*SAY, "hello")
    asked = shell.start(*SAY, "still there?")
    worker.says("thinking about still there?")
    worker.kill()

    work(shell)
    assert "friendly: 2 messages, the first was hello\n" == asked.end()
    shell("outlive", "signal", "talk-ada", "mood", "grim")
    assert "grim: 3 messages, the first was hello\n" == shell(*SAY, "and now?")
    assert "grim: 4 messages, the first was hello\n" == shell(*SAY, "bye")
    assert "completed" == shell.status("talk-ada")


FAILURES = [
    Failure(
        name="a thought that fails",
        edits=(("    await asyncio.sleep(MODEL_SECONDS)", '    raise LookupError("no idea")'),),
        sees=("NoReply: run talk-ada ended (failed: LookupError: no idea) without a reply",),
    ),
    Failure(
        name="a message of another type",
        edits=(('request("message", text,', 'request("message", len(text),'),),
        sees=("RequestRefused", "int was sent, the flow waits for str"),
        status="waiting",
    ),
    Failure(
        name="a name that the flow does not listen to",
        edits=(('request("message"', 'request("mesage"'), ('timeout="8s"', 'timeout="4s"')),
        sees=("talk-ada (flow talk) waits for signal message or mood", "TimedOut"),
        status="waiting",
    ),
    Failure(
        name="a reply that is never given",
        edits=(
            ("await message.reply(await think(said, mood))", "await think(said, mood)"),
            ('timeout="8s"', 'timeout="4s"'),
        ),
        sees=("talk-ada (flow talk) waits for signal", "did not reply to request ada: hello"),
        status="waiting",
    ),
    Failure(
        name="a reply that can't be sent",
        edits=(("reply(await think(said, mood))", "reply(open(__file__))"),),
        sees=("NoReply", "_io.TextIOWrapper can't be recorded"),
    ),
    Failure(
        name="a reply that is not awaited",
        edits=(
            ("await message.reply(await think(said, mood))", "message.reply('so')"),
            ('message.value == "bye"', "message.value"),
        ),
        sees=("NoReply", "request.reply was called and never awaited"),
    ),
    Failure(
        name="a flow that reads a file",
        edits=(("said.append", "await asyncio.to_thread(open, __file__)\n        said.append"),),
        sees=("NoReply", "IoInFlow", "@outlive.step"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES, ids=str)
def test_a_failure_is_told(shell: Shell, failure: Failure) -> None:
    """To the person who wrote the message, and in the worker's log."""
    shell.edit("talk.py", *failure.edits)
    worker = work(shell)

    said = shell.start(*SAY, "hello").end(1)

    assert [] == [text for text in failure.sees if text not in said], said
    status = shell.status("talk-ada")
    assert failure.status == status or (failure.status, status) == ("waiting", "running")
    if failure.status == "failed":
        assert "run talk-ada (flow talk) failed" in worker.says("failed: ")


def test_without_a_worker_the_sender_is_told(shell: Shell) -> None:
    """That nobody drives the run, and what does."""
    said = shell.start(*SAY, "hello").end(1)

    assert "talk-ada (flow talk) could be driven, and no living worker takes it" in said
    assert "`outlive worker MODULE`" in said
    assert "TimedOut" in said


def test_after_the_end_a_message_is_refused(shell: Shell) -> None:
    work(shell)
    shell(*SAY, "bye")

    said = shell.start(*SAY, "one more").end(1)
    assert "RunEnded" in said
    assert "talk-ada" in said


def test_changed_code_is_told_to_both_sides(shell: Shell) -> None:
    """The worker logs it, and so does whoever waits for a reply."""
    shell.edit("talk.py", ('timeout="8s"', 'timeout="5s"'))
    worker = work(shell)
    shell(*SAY, "hello")
    worker.kill()
    shell.edit("talk.py", ("await think(said, mood)", "await think(said[:1], mood.upper())"))
    worker = work(shell)

    said = shell.start(*SAY, "still there?").end(1)
    assert "run talk-ada (flow talk) can't go on: mismatch: " in worker.says(
        "outlive show talk-ada"
    )
    assert "mismatch: " in said
    assert "outlive show talk-ada" in said


def test_control_c_ends_the_worker_in_order(shell: Shell) -> None:
    """It finishes the thought first, and says so; the reply arrives."""
    worker = work(shell)
    asked = shell.start(*SAY, "hello")
    worker.says("thinking about hello")
    worker.process.send_signal(signal.SIGINT)

    said = worker.end(0)
    assert "stop" in said or "drain" in said
    work(shell)
    assert "friendly: 1 messages, the first was hello\n" == asked.end()


def test_a_worker_with_the_wrong_key_says_so(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, with the name of the variable."""
    monkeypatch.setenv("OUTLIVE_KEY", shell("outlive", "key").strip())
    worker = work(shell)
    shell(*SAY, "hello")
    worker.kill()
    monkeypatch.setenv("OUTLIVE_KEY", shell("outlive", "key").strip())

    said = shell("outlive", "worker", "talk", code=3)
    assert 1 == said.count("\n"), said
    assert "this store is sealed with key" in said
    assert "set OUTLIVE_KEY to the key that it was written with" in said


def test_a_signal_with_another_name_is_seen(shell: Shell) -> None:
    """It is kept; whoever looks at the run sees what it waits for."""
    work(shell)
    shell(*SAY, "hello")
    shell("outlive", "signal", "talk-ada", "moood", "grim")

    assert "friendly: 2 messages, the first was hello\n" == shell(*SAY, "and now?")
    assert "moood" in shell("outlive", "show", "talk-ada")
