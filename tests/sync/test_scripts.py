"""Outlive in plain scripts and notebooks: apps, workers and handles that block."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import outlive as awaiting
from outlive import sync as outlive
from outlive.errors import AppClosed, RunCancelled, RunNotFound, TimedOut
from outlive.model.events import RunCompleted, StepDone
from tests.harness.processes import until
from tests.sync.twins import plain_note

ROOT = Path(__file__).parent.parent.parent


@outlive.step
async def lower(text: str) -> str:
    return text.lower()


@outlive.flow
def hello(name: str) -> str:
    text: Any = lower(name)
    return plain_note(f"hello {text}")


@awaiting.flow
async def hello_async(name: str) -> str:
    return f"hello {await lower(name)}"


@outlive.flow
def counting() -> int:
    return sum(range(int(outlive.ask("How many?", type=int))))


@outlive.flow
def echo() -> int:
    served = 0
    for request in outlive.requests("say", type=str, idle="1h"):
        served += 1
        request.reply(request.value * 2)
        if request.value == "bye":
            break
    return served


@outlive.flow
def endless() -> str:
    return str(outlive.wait_signal("stop", str))


def test_a_script_runs_flows_of_both_kinds(store: str) -> None:
    """The same id again gives the same outcome, and both modules see the same run."""
    assert "HELLO ANN" == outlive.run(hello, "Ann", id="r")
    assert "HELLO ANN" == awaiting.run(hello, "Ann", id="r")
    assert "hello bob" == outlive.run(hello_async, "Bob")
    assert "HELLO ANN" == outlive.get("r").outcome()
    assert ["r"] == [each.head.run_id for each in outlive.find(flow="hello").items]


def test_a_handle_does_all_that_the_async_one_does(store: str) -> None:
    """Questions, answers, requests, signals, events, status, cancel, time limits."""
    asking = outlive.start(counting, id="c")
    question = until(asking.questions, "a question")[0]
    assert "How many?" == question.text
    with pytest.raises(TimedOut):
        asking.outcome(timeout=0.01)
    asking.answer(4, question.id)
    assert 6 == asking.outcome(timeout="30s")
    assert "completed" == asking.status()
    assert RunCompleted is type(list(asking.events())[-1].raw)
    assert asking.read() == [event.raw for event in asking.events()]

    talking = outlive.start(echo, id="e")
    assert ["hihi", "byebye"] == [talking.request("say", text) for text in ("hi", "bye")]
    assert 2 == talking.outcome()

    stopping = outlive.ensure(endless, id="s")
    assert stopping.signal("stop", "now", id="1")
    assert "now" == outlive.ensure(endless, id="s").outcome()

    cancelling = outlive.start(endless, id="x")
    cancelling.cancel()
    with pytest.raises(RunCancelled):
        cancelling.outcome()
    with pytest.raises(RunNotFound):
        outlive.get("nobody")


def test_a_worker_in_the_background_drives_what_was_submitted() -> None:
    """The app is a context manager, and so is its worker."""
    with outlive.open("memory://") as app:
        handles = [app.submit(hello, f"N{number}", id=f"r{number}") for number in range(20)]
        assert "pending" == handles[0].status()
        with app.worker(flows=[hello]):
            assert "HELLO N19" == [each.outcome() for each in handles][-1]
        assert 40 == sum(isinstance(e, StepDone) for each in handles for e in each.read())
    with pytest.raises(AppClosed):
        app.find()
    app.close()


def test_handles_are_used_from_many_threads(store: str) -> None:
    """The app's loop is one; its callers may be many."""
    outcomes: list[str] = []

    def work(number: int) -> None:
        outcomes.append(outlive.start(hello, f"{number}", id=f"t{number}").outcome())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(f"HELLO {number}" for number in range(8)) == sorted(outcomes)


async def test_a_notebook_blocks_its_own_loop(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that computes does that anyway."""
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    asyncio.get_running_loop()

    assert "HELLO ANN" == awaiting.run(hello, "Ann", id="r")
    assert "HELLO ANN" == outlive.run(hello, "Ann", id="r")
    assert "HELLO ANN" == outlive.start(hello, "Ann", id="r").outcome()
    outlive.close()


async def test_an_async_program_drives_plain_flows(store: str) -> None:
    """A flow's kind is nobody else's business."""
    async with awaiting.open(store) as app:
        assert "HELLO ANN" == await (await app.start(hello, "Ann"))


SCRIPT = """
import sys, threading
from outlive import sync as outlive

@outlive.flow
def waits() -> None:
    outlive.sleep("1h")

@outlive.flow
def blocks() -> None:
    threading.Event().wait()

flow = waits if sys.argv[1] == "waits" else blocks
print(outlive.start(flow, id="r").status(), flush=True)
"""


@pytest.mark.parametrize("kind", ["waits", "blocks"])
def test_a_script_ends_though_its_flows_do_not(tmp_path: Path, kind: str) -> None:
    """Nothing that is under way keeps the process; a later one goes on."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, kind],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (0, "") == (ran.returncode, ran.stderr)
    assert ran.stdout.strip() in ("running", "waiting")


def test_both_modules_have_the_same_names() -> None:
    """Whoever reads one knows the other."""
    assert {"gather", "close"} == set(outlive.__all__) - set(awaiting.__all__)
    assert not set(awaiting.__all__) - set(outlive.__all__)
    for name in outlive.__all__:
        assert getattr(outlive, name) is not None
