"""The real command line, in real processes, in a folder of its own with its own store."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness.programs import end_program

SHOP = Path(__file__).with_name("shop.py")
SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Ran:
    """A process that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as data."""
        return json.loads(self.out)


class Cli:
    """``outlive`` as somebody would type it in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "runs.db"
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.environment = kept | {
            "OUTLIVE_STORE": f"sqlite:///{self.database}",
            "OUTLIVE_LEASE_SECONDS": "1",
            "OUTLIVE_POLL_SECONDS": "0.05",
            "OUTLIVE_IDLE_SECONDS": "0.3",
            "OUTLIVE_DRAIN_SECONDS": "0.5",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path.endswith("src")),
            "COLUMNS": "200",
        }
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, *words: str, **environment: str) -> Ran:
        """Run to the end."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def command(self, *words: str) -> list[str]:
        """What to execute."""
        return [sys.executable, "-m", "outlive", *words]

    def start(self, *words: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Run beside the test; ended with it."""
        process = subprocess.Popen(
            [*prefix, *self.command(*words)],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def start_worker(self, *words: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """A worker on the shop that has begun to work."""
        process = self.start("worker", "shop", *words, prefix=prefix)
        assert process.stdout is not None
        assert "worker" in process.stdout.readline()
        return process

    def rows(self) -> list[Any]:
        """Everything that the database holds."""
        db = sqlite3.connect(self.database)
        try:
            tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema")]
            return [
                (table, db.execute(f"SELECT * FROM {table}").fetchall())
                for table in ("meta", "runs", "records", "mail", "nodes", "tombstones")
                if table in tables
            ]
        finally:
            db.close()

    def end(self) -> None:
        """Nothing of ours runs on."""
        for process in self._started:
            end_program(process)


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """The command line in an empty folder that holds the shop."""
    shutil.copy(SHOP, tmp_path / "shop.py")
    made = Cli(tmp_path)
    yield made
    made.end()
