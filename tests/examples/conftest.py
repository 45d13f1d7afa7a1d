"""An example in a folder of its own, used as its reader would: commands, kills, another try."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.processes import until
from tests.harness.programs import end_program

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SECONDS_MAX = 60


class Program:
    """A process that goes on until it ends or is killed."""

    def __init__(self, folder: Path, number: int, words: tuple[str, ...]) -> None:
        self._said = folder / f"said-{number}.txt"
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                words, cwd=folder, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT
            )

    def said(self) -> str:
        return self._said.read_text()

    def says(self, text: str) -> str:
        """Everything that it has said, once this is among it."""
        until(lambda: text in self.said() or self.process.poll() is not None, text)
        assert text in self.said(), self.said()
        return self.said()

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def kill(self) -> None:
        """With SIGKILL, in the middle of whatever it does."""
        assert self.process.poll() is None, f"it has ended by itself: {self.said()}"
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self, code: int = 0) -> str:
        """What it said, once it has ended with this code."""
        assert code == self.process.wait(SECONDS_MAX), self.said()
        return self.said()


class Desk:
    """Where a reader tries an example."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs: list[Program] = []

    def __call__(self, *words: str, code: int = 0) -> str:
        """What a command says, which ends with this code."""
        ran = subprocess.run(
            words, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=SECONDS_MAX,
        )  # fmt: skip
        assert code == ran.returncode, ran.stdout
        return ran.stdout

    def start(self, *words: str) -> Program:
        """A command that goes on beside the test."""
        self._programs.append(Program(self.folder, len(self._programs), words))
        return self._programs[-1]

    def lines(self, name: str) -> list[Any]:
        """What the pretend outside wrote down."""
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        """No process of ours lives on."""
        for program in self._programs:
            end_program(program.process)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A folder with all examples, and a shell in it."""
    folder = tmp_path / "desk"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    bin_folder = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    for name in [name for name in os.environ if name.startswith(("OUTLIVE_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    desk = Desk(folder)
    try:
        yield desk
    finally:
        desk.close()
