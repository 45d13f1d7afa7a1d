"""A folder with a store, and worker processes that are hired, told to stop, and looked after."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from collections.abc import Iterable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from outlive.app.app import App
from outlive.stores.types import Query, Reading
from tests.harness.processes import CHILDREN, SharedFolder, end_child, pid_of, until
from tests.harness.stores import open_shared
from tests.workers import deploy
from tests.workers.player import play

MODULE = "tests.workers.deploy"
QUICK = {
    "OUTLIVE_LEASE_SECONDS": "2",
    "OUTLIVE_POLL_SECONDS": "0.05",
    "OUTLIVE_IDLE_SECONDS": "0",
    "OUTLIVE_DRAIN_SECONDS": "10",
}


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
        return pid_of(self.process)

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


class Yard(SharedFolder):
    """The test's side."""

    policies = deploy.POLICIES

    def __init__(self, folder: Path, url: str | None = None) -> None:
        super().__init__(folder)
        if url is not None:
            self.move_to(url)
        self.commands: list[Command] = []
        deploy.FOLDER = folder

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
            end_child(command.process)
        super().close()

    # what there is

    def submit(self, *runs: tuple[str, Any, tuple[Any, ...]]) -> None:
        """Hand in runs: id, flow, arguments."""

        async def hand_in() -> None:
            async with App(open_shared(self.url), drive=False) as app:
                await asyncio.gather(*(app.submit(f, *args, id=run) for run, f, args in runs))

        asyncio.run(hand_in())

    def reading(self, run_id: str) -> Reading:
        reading = super().reading(run_id)
        assert reading is not None, f"there is no run {run_id}"
        return reading

    def claimers(self, run_id: str) -> list[str]:
        return [claim.worker for claim in self.claims(run_id)]

    def statuses(self, flow: str) -> Counter[str]:
        """How many runs of a flow stand where."""
        return Counter(found.header.status for found in self.find(Query(flow=flow)))

    def bodies(self) -> Counter[str]:
        """How often each body was begun."""
        path = self.folder / "bodies"
        return Counter(path.read_text().splitlines() if path.exists() else ())

    def asleep_with_mail(self) -> list[str]:
        """Runs that nobody drives though something was posted to them."""
        return [
            each.head.run_id
            for each in self.find()
            if each.head.worker is None and each.head.posted != each.head.consumed
        ]
