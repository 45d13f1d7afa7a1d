"""A folder with a store, and worker processes that are hired, told to stop, and looked after."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from outlive.app import App
from outlive.journal.immediate import run_immediate
from outlive.journal.reader import read_events
from outlive.journal.restored import read_whole
from outlive.model.events import Claimed, Event
from outlive.store import Query, Reading
from outlive.testing.auditor import Receipt, audit
from outlive.testing.ledger import Ledger
from tests.processes.stores import Shared, open_shared
from tests.workers import deploy
from tests.workers.player import play

MODULE = "tests.workers.deploy"
QUICK = {
    "OUTLIVE_LEASE_SECONDS": "2",
    "OUTLIVE_POLL_SECONDS": "0.05",
    "OUTLIVE_IDLE_SECONDS": "0",
    "OUTLIVE_DRAIN_SECONDS": "10",
}

#: Forked from a server that has all but the deployed module imported: a child costs some 10 ms.
CHILDREN = multiprocessing.get_context("forkserver")
CHILDREN.set_forkserver_preload(["outlive.cli", "outlive.app", "outlive.testing.ledger"])


class Command:
    """A process that runs one command."""

    def __init__(self, yard: Yard, words: Iterable[str], **environment: str) -> None:
        self._folder = yard.folder
        given = {**QUICK, "DEPLOY_FOLDER": str(yard.folder), **environment}
        self.version = given.get("DEPLOY_VERSION", "1")
        self.accepts = {self.version, *given.get("DEPLOY_ACCEPTS", "").split(",")}
        words = [*words, "--store", yard.url]
        self.process: BaseProcess = CHILDREN.Process(target=play, args=(yard.folder, given, words))
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None, "it was started"
        return self.process.pid

    def said(self, name: str) -> str:
        path = self._folder / f"{self.pid}.{name}"
        return path.read_text() if path.exists() else ""

    @property
    def worker_id(self) -> str | None:
        found = re.match(r"worker (\w+) drives", self.said("out"))
        return None if found is None else found[1]

    def tell(self, number: signal.Signals = signal.SIGTERM) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = 30.0) -> int | None:
        self.process.join(seconds)
        return self.process.exitcode

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive()


class Yard:
    """The test's side."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder = folder
        self.database = folder / "journal.db"
        self.url = url or f"sqlite:///{self.database}"
        self.commands: list[Command] = []
        deploy.FOLDER = folder
        self._store: Shared | None = None

    def command(self, *words: str, **environment: str) -> Command:
        self.commands.append(Command(self, words, **environment))
        return self.commands[-1]

    def hire(self, *words: str, module: str = MODULE, **environment: str) -> Command:
        """A worker."""
        return self.command("worker", module, *words, **environment)

    def hire_ready(self, *words: str, module: str = MODULE, **environment: str) -> Command:
        """The same, once it looks for work."""
        worker = self.hire(*words, module=module, **environment)
        until(lambda: worker.worker_id is not None or not worker.is_alive, "the worker")
        return worker

    def close(self) -> None:
        """Nobody of ours lives on."""
        for command in self.commands:
            if command.is_alive:
                command.tell(signal.SIGKILL)
            command.process.join()
            command.process.close()
        if self._store is not None:
            run_immediate(self._store.close())

    # what there is

    @property
    def store(self) -> Shared:
        if self._store is None:
            self._store = open_shared(self.url)
        return self._store

    def submit(self, *runs: tuple[str, Any, tuple[Any, ...]]) -> None:
        """Hand in runs: id, flow, arguments."""

        async def hand_in() -> None:
            async with App(open_shared(self.url), drive=False) as app:
                await asyncio.gather(*(app.submit(f, *args, id=run) for run, f, args in runs))

        asyncio.run(hand_in())

    def reading(self, run_id: str) -> Reading:
        reading = run_immediate(read_whole(self.store, run_id))
        assert reading is not None, f"there is no run {run_id}"
        return reading

    def events(self, run_id: str, *kinds: type[Any]) -> list[Any]:
        events: list[Event] = read_events(self.reading(run_id))
        return [event for event in events if not kinds or isinstance(event, kinds)]

    def status(self, run_id: str) -> str:
        return self.reading(run_id).header.status

    def claimers(self, run_id: str) -> list[str]:
        return [claim.worker for claim in self.events(run_id, Claimed)]

    def statuses(self, flow: str) -> Counter[str]:
        """How many runs of a flow stand where."""
        counts: Counter[str] = Counter()
        after: str | None = None
        while True:
            page = run_immediate(self.store.find(Query(flow=flow), after, 1000))
            counts.update(found.header.status for found in page.items)
            after = page.next
            if after is None:
                return counts

    def bodies(self) -> Counter[str]:
        """How often each body was begun."""
        path = self.folder / "bodies"
        return Counter(path.read_text().splitlines() if path.exists() else ())

    def receipts(self) -> list[Receipt]:
        return [each for path in self.folder.glob("*.ledger") for each in Ledger(path).receipts()]

    def audit(self) -> list[str]:
        """Every broken promise, over all runs and the ledgers."""
        found = run_immediate(self.store.find(Query(), None, 1000)).items
        journals = {each.head.run_id: self.events(each.head.run_id) for each in found}
        return audit(journals, self.receipts(), policies=deploy.POLICIES, events_min=3)

    def asleep_with_mail(self) -> list[str]:
        """Runs that nobody drives though something was posted to them."""
        found = run_immediate(self.store.find(Query(), None, 1000)).items
        return [
            each.head.run_id
            for each in found
            if each.head.worker is None and each.head.posted != each.head.consumed
        ]


def until(condition: Callable[[], object], what: str, *, seconds: float = 60.0) -> float:
    """Look until it is so; return how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return time.monotonic() - began
