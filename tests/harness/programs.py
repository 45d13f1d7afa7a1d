"""Programs beside the test: run to their end in bounded time, on a terminal, or killed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
#: Far more than any of them takes, also on a machine that is busy.
RUN_SECONDS = 600.0


def python(*words: object) -> list[str]:
    """What to execute: this interpreter with these words."""
    return [sys.executable, *(str(word) for word in words)]


def run_python(
    *words: object, seconds: float = RUN_SECONDS, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run to the end, where tests can be imported; whoever calls looks at its exit code."""
    return subprocess.run(
        python(*words),
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def told_by_python(*words: object, seconds: float = RUN_SECONDS, **environment: str) -> str:
    """What it printed, once it has ended well."""
    ran = run_python(*words, seconds=seconds, **environment)
    assert 0 == ran.returncode, ran.stderr
    return ran.stdout


def start_python(*words: object, stderr: int | None = None) -> subprocess.Popen[str]:
    """Run beside the test, where tests can be imported."""
    return subprocess.Popen(
        python(*words), cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True
    )


def end_program(process: subprocess.Popen[Any]) -> None:
    """Kill it if it lives, and bury it."""
    if process.poll() is None:
        process.kill()
    process.communicate()


def read_terminal(file: int) -> Iterator[bytes]:
    """Everything that is written to a terminal, until its other end is closed."""
    while True:
        try:
            part = os.read(file, 65536)
        except OSError:  # the other end is closed
            return
        if not part:
            return
        yield part


def shown_on_terminal(
    command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> str:
    """What a command draws where its output is a terminal, once it has ended well."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=theirs)
    os.close(theirs)
    shown = b"".join(read_terminal(ours)).decode()
    os.close(ours)
    assert 0 == process.wait(RUN_SECONDS), shown
    return shown
