"""A folder, the child processes that share it, and what the test may ask of both afterwards."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeAlias

from outlive.app import App
from outlive.journal.immediate import run_immediate
from outlive.journal.reader import read_events
from outlive.journal.record import unpack
from outlive.journal.restored import read_whole
from outlive.model.events import Claimed, Event
from outlive.store import Query, Reading
from outlive.testing.auditor import Receipt, audit
from outlive.testing.ledger import Ledger
from tests.processes import cast
from tests.processes.stores import Shared, open_shared, store_url

ROOT = Path(__file__).parent.parent.parent
QUICK_ENVIRONMENT = {
    "OUTLIVE_LEASE_SECONDS": "1",
    "OUTLIVE_POLL_SECONDS": "0.05",
    "OUTLIVE_IDLE_SECONDS": "0",
}

#: run, last seq, epoch, lease, done, when
Append: TypeAlias = tuple[str, int, int, str, bool, float]

#: Forked from a server that has imported everything: a child costs some 10 ms.
CHILDREN = multiprocessing.get_context("forkserver")
CHILDREN.set_forkserver_preload(["tests.processes.players", "outlive"])


class Stage:
    """The test's side."""

    def __init__(self, folder: Path, database: Path | None = None) -> None:
        self.folder = folder
        self.database = database or folder / "journal.db"
        self.children: list[BaseProcess] = []
        self.commands: list[subprocess.Popen[str]] = []
        self._store: Shared | None = None

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
            if child.is_alive():
                os.kill(pid(child), signal.SIGKILL)
            child.join()
            child.close()
        self.children.clear()
        if self._store is not None:
            run_immediate(self._store.close())

    # what there is

    @property
    def url(self) -> str:
        """Where the journals are."""
        url = store_url(self.folder)
        return f"sqlite:///{self.database}" if url.startswith("sqlite:") else url

    def move_to(self, url: str) -> None:
        """Keep the journals there, for everybody who comes after this."""
        (self.folder / "store.url").write_text(url)

    @property
    def store(self) -> Shared:
        """The shared store, as a reader sees it."""
        if self._store is None:
            self._store = open_shared(self.url)
        return self._store

    def ledger(self, run_id: str) -> Ledger:
        """What the receiver wrote down of a run."""
        return cast.Process(self.folder).ledger(run_id)

    def receipts(self) -> list[Receipt]:
        """All that happened."""
        return [each for path in self.folder.glob("*.ledger") for each in Ledger(path).receipts()]

    def open_app(self) -> App:
        """An app of the test itself, which drives nothing."""
        return App(open_shared(self.url), drive=False)

    def reading(self, run_id: str) -> Reading | None:
        return run_immediate(read_whole(self.store, run_id))

    def events(self, run_id: str) -> list[Event]:
        reading = self.reading(run_id)
        return [] if reading is None else read_events(reading)

    def status(self, run_id: str) -> str:
        reading = self.reading(run_id)
        return "" if reading is None else reading.header.status

    def claims(self, run_id: str) -> list[Claimed]:
        return [event for event in self.events(run_id) if isinstance(event, Claimed)]

    def run_ids(self, prefix: str = "") -> list[str]:
        found: list[str] = []
        after: str | None = None
        while True:
            page = run_immediate(self.store.find(Query(prefix=prefix), after, 1000))
            found += [each.head.run_id for each in page.items]
            after = page.next
            if after is None:
                return found

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

    def audit(self, *, events_min: int = 3) -> list[str]:
        """Every broken promise, over all runs and the ledger."""
        journals = {run_id: self.events(run_id) for run_id in self.run_ids()}
        return audit(
            journals,
            self.receipts(),
            policies=cast.POLICIES,
            acknowledged=self.acknowledged(),
            events_min=events_min,
        )


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


def pid(child: BaseProcess) -> int:
    assert child.pid is not None, "it was not started"
    return child.pid


def state_of(child: BaseProcess) -> str:
    """The kernel's letter for it: T is stopped."""
    return Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2][0]


def until(condition: Callable[[], bool], what: str, *, seconds: float = 60.0) -> float:
    """Look until it is so; return how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return time.monotonic() - began
