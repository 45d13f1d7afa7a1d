"""A program in a folder of its own, as its author runs it; edited, broken, killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.examples.conftest import Desk
from tests.programs.model_server import ModelServer

PROGRAMS = ("agent.py", "batch.py", "claims.py", "talk.py", "trip.py")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An ordinary way to fail: what is changed before, and what a person sees then."""

    name: str
    #: (old text, new text) in the program.
    edits: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    #: How the model's server behaves; only the agent has one.
    server: str = "well"
    exit_code: int = 1
    #: All of these are printed, on one of the two streams.
    sees: tuple[str, ...]
    #: Of the run afterwards; empty if there is none.
    status: str = "failed"

    def __str__(self) -> str:
        return self.name


class Shell(Desk):
    """The author's folder, with an editor."""

    def edit(self, name: str, *edits: tuple[str, str]) -> None:
        """Replace a text, which must be there, by another."""
        path = self.folder / name
        text = path.read_text()
        for old, new in edits:
            assert old in text, old
            text = text.replace(old, new)
        path.write_text(text)

    def show(self, run_id: str) -> dict[str, Any]:
        """All that ``outlive show`` knows."""
        shown: dict[str, Any] = json.loads(self("outlive", "show", run_id, "--json"))
        return shown

    def status(self, run_id: str) -> str:
        return str(self.show(run_id)["status"])


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A folder with the five programs, and a shell in it."""
    folder = tmp_path / "shell"
    folder.mkdir()
    for name in PROGRAMS:
        shutil.copy(Path(__file__).parent / name, folder)
    for name in [name for name in os.environ if name.startswith(("OUTLIVE_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("OUTLIVE_POLL_SECONDS", "0.05")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # an edit within a second is seen
    shell = Shell(folder)
    try:
        yield shell
    finally:
        shell.close()


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A server that speaks the chat API, named in the environment."""
    with ModelServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-right")
        yield server


@pytest.fixture
def small_disk(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of three quarters of a megabyte, which has the store."""
    folder = shell.folder / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=768k", "tmpfs", folder], check=True)
    monkeypatch.setenv("OUTLIVE_STORE", f"sqlite:///{folder}/runs.db")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
