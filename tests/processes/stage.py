"""A folder, the child processes that share it, and what the test may ask of both afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeAlias

from outlive.app.app import App
from outlive.journal.record import unpack
from outlive.testing.ledger import Ledger
from tests.harness.processes import CHILDREN, ROOT, SharedFolder, end_child, until
from tests.harness.stores import open_shared
from tests.processes import cast

QUICK_ENVIRONMENT = {
    "OUTLIVE_LEASE_SECONDS": "1",
    "OUTLIVE_POLL_SECONDS": "0.05",
    "OUTLIVE_IDLE_SECONDS": "0",
}

#: run, last seq, epoch, lease, done, when
Append: TypeAlias = tuple[str, int, int, str, bool, float]


class Stage(SharedFolder):
    """The test's side."""

    policies = cast.POLICIES

    def __init__(self, folder: Path, database: Path | None = None) -> None:
        super().__init__(folder)
        self.database = database or folder / "journal.db"
        self.children: list[BaseProcess] = []
        self.commands: list[subprocess.Popen[str]] = []

    # children

    def spawn(self, play: Callable[..., None], *args: object) -> BaseProcess:
        """A child that plays this, in this folder."""
        child = CHILDREN.Process(target=play, args=(self.folder, *args))
        child.start()
        self.children.append(child)
        return child

    def spawn_worker(self, play: Callable[..., None], *args: object) -> BaseProcess:
        """The same, once it says that it is ready."""
        child = self.spawn(play, *args)
        ready = self.folder / f"ready-{child.pid}"
        until(lambda: ready.exists() or not child.is_alive(), "the worker to be ready")
        return child

    def command(self, *words: str, under: Sequence[str] = ()) -> subprocess.Popen[str]:
        """The real command line on the shared file, perhaps with a fault under it."""
        store = ("--store", self.url)
        command = subprocess.Popen(
            [*under, sys.executable, "-m", "tests.processes.witnessed", *words, *store],
            cwd=ROOT,
            env={**os.environ, "CAST_FOLDER": str(self.folder), **QUICK_ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.commands.append(command)
        return command

    def close(self) -> None:
        """Nobody of ours lives on."""
        for command in self.commands:
            if command.poll() is None:
                os.killpg(command.pid, signal.SIGKILL)
            command.communicate()
        self.commands.clear()
        for child in self.children:
            end_child(child)
        self.children.clear()
        super().close()

    # what there is

    @property
    def url(self) -> str:
        """Where the journals are."""
        url = super().url
        return f"sqlite:///{self.database}" if url.startswith("sqlite:") else url

    def ledger(self, run_id: str) -> Ledger:
        """What the receiver wrote down of a run."""
        return cast.Process(self.folder).ledger(run_id)

    def open_app(self) -> App:
        """An app of the test itself, which drives nothing."""
        return App(open_shared(self.url), drive=False)

    def appends(self, child: BaseProcess) -> list[Append]:
        """What a child committed."""
        path = self.folder / f"appends-{child.pid}.jsonl"
        return read_appends(path.read_text()) if path.exists() else []

    def acknowledged(self) -> dict[str, int]:
        """By run, the last seq that any process here was told is durable."""
        found: dict[str, int] = {}
        for path in self.folder.glob("appends-*.jsonl"):
            for run_id, last, _, _, done, _ in read_appends(path.read_text()):
                if done:
                    found[run_id] = max(last, found.get(run_id, 0))
        return found

    def outcome(self, child: BaseProcess) -> Any:
        return json.loads((self.folder / f"outcome-{child.pid}.json").read_text())

    # verdicts

    def stale_appends(self, run_id: str) -> int:
        """Records of an epoch that was over when they were appended."""
        reading = self.reading(run_id)
        assert reading is not None, f"there is no run {run_id}"
        link, epoch, seq, stale = bytes(16), 0, 1, 0
        for record in reading.records:
            envelope = unpack(run_id, link, record.body, record.seq)
            link, stale = envelope.link, stale + (envelope.epoch < epoch)
            epoch = max(epoch, envelope.epoch)
            seq = record.seq
        assert seq <= reading.head.seq
        return stale


def submit(stage: Stage, flow: str, count: int, *more: object) -> list[str]:
    """Runs ``r0``, ``r1``, ... of a flow whose first argument is their number."""

    async def main() -> list[str]:
        async with stage.open_app() as app:
            starting = (app.submit(getattr(cast, flow), n, *more, id=f"r{n}") for n in range(count))
            return [handle.id for handle in await asyncio.gather(*starting)]

    return asyncio.run(main())


def read_appends(text: str) -> list[Append]:
    """Every whole line that a process wrote before it ended."""
    return [tuple(json.loads(line)) for line in text.split("\n")[:-1]]
