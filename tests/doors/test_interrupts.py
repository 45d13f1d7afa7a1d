"""Ctrl-C at any place of a plain program: it ends the program, and never hangs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

#: Forks one process for each place, and prints how each ended that met its place.
#: A place is a function, or the number of a line that the main thread runs.
PROGRAM = """
import json, os, signal, sys, time
from outlive import sync as outlive

@outlive.step
def slow() -> None:
    time.sleep(0.1)

@outlive.flow
def waits() -> None:
    slow()

def meet(place: str | int) -> None:
    lines = 0
    def trace(frame, event, arg):
        nonlocal lines
        lines += event == "line"
        if place in (frame.f_code.co_qualname, lines):
            sys.settrace(None)
            os.write(1, b"met ")
            signal.raise_signal(signal.SIGINT)
        return trace
    signal.alarm(60)
    sys.settrace(trace)

def fork(places):
    for place in places:
        if (child := os.fork()) == 0:
            return place
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(f"{code} at {place}", flush=True)

place, does_run = fork(json.loads(sys.argv[1])), len(sys.argv) == 2
if place is not None:
    store = f"sqlite:///{place}.db"
    outlive.run(waits, id="warm", store=store)  # what is imported late is imported
    app = outlive.open(store)
    app.health()
    meet(place)
    if does_run:
        outlive.run(waits, id="r", store=store)
        sys.settrace(None)
"""

IN_RUN = [
    "run",
    "LoopThread.call",
    "LoopThread._open",
    "LoopThread.close",
    "Condition.wait",
    "Event.wait",
    "Future.result",
    "Thread.join",
    "App.close",
    "WeakSet.__init__.<locals>._remove",
]
#: About as many lines are run.
LINES_MAX = 1600
AT_EXIT = ["App.close", "LoopThread.close", "Future.result", "Thread.join", "_python_exit"]


def lost_at(places: list[str] | list[int], folder: Path, *more: str) -> list[str]:
    """How a program ended that got a SIGINT there and did not die of it."""
    words = [sys.executable, "-c", PROGRAM, json.dumps(places), *more]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    ends = done.stdout.splitlines()
    assert len(places) == len(ends), done.stderr
    deaths = tuple(f"met {code} " for code in (-signal.SIGINT, 128 + signal.SIGINT))
    return [end for end in ends if not end.startswith(deaths)]


def test_a_plain_run_never_loses_a_ctrl_c(tmp_path: Path) -> None:
    """Wherever it comes, even where Python itself would drop it or leave a lock locked."""
    assert [] == lost_at(IN_RUN, tmp_path)


def test_the_end_of_a_script_never_loses_a_ctrl_c(tmp_path: Path) -> None:
    """While the apps that it left open are closed, and while threads are joined."""
    assert [] == lost_at(AT_EXIT, tmp_path, "exit")


def test_no_line_loses_a_ctrl_c(tmp_path: Path, full: bool) -> None:
    """One of so many lines that the main thread runs, from ``run`` to its outcome."""
    places = list(range(5, LINES_MAX, 11 if full else 149))
    lost = lost_at(places, tmp_path)
    assert [] == [end for end in lost if end.startswith("met")]
    assert len(lost) < len(places) / 2, "a run has fewer lines than that"
