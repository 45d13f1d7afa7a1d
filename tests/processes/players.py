"""What a child process of these tests does: open an app on a shared SQLite file, and drive runs.

Children are forked from a server that has everything imported, so they are cheap. What a child
appended, and what of it was refused, goes into a file of its own as it happens.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outlive.app import App
from outlive.engine.definitions import Flow
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.store import Conflict, Entry
from outlive.stores.sqlite import SQLiteStore
from tests.processes import cast
from tests.processes.cast import Position

LEASE_SECONDS = 1.0
QUICK = Settings(lease_seconds=LEASE_SECONDS, poll_seconds=0.05, idle_seconds=0.0)


class WitnessedStore(SQLiteStore):
    """Writes down how each of its commits was answered, as soon as it was."""

    def __init__(self, folder: Path, *, ports: Ports, lease_seconds: float) -> None:
        super().__init__(folder / "journal.db", ports=ports, lease_seconds=lease_seconds)
        path = folder / f"appends-{os.getpid()}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def commit(self, batch: Sequence[Entry]) -> Sequence[Conflict | None]:
        answers = await super().commit(batch)
        told = [
            [e.run_id, e.last, e.epoch, e.lease, answer is None, time.time()]
            for e, answer in zip(batch, answers, strict=True)
        ]
        os.write(self._file, "".join(f"{json.dumps(each)}\n" for each in told).encode())
        return answers


def open_app(folder: Path, settings: Settings = QUICK) -> App:
    """An app of this process on the shared file."""
    ports = Ports(failpoint=cast.me.failpoint)
    store = WitnessedStore(folder, ports=ports, lease_seconds=settings.lease_seconds)
    return App(store, ports=ports, settings=settings)


def start(folder: Path, run: tuple[str, str, list[Any]], stop_at: Position | None) -> None:
    """Start a run and wait for its outcome, which goes into a file."""
    run_id, flow, args = run
    cast.me = cast.Process(folder, stop_at)

    async def main() -> object:
        async with open_app(folder) as app:
            return await (await app.start(getattr(cast, flow), *args, id=run_id))

    outcome = asyncio.run(main())
    (folder / f"outcome-{os.getpid()}.json").write_text(json.dumps(outcome))


def work(folder: Path, flows: list[str], settings: Settings = QUICK, concurrency: int = 100) -> None:
    """Be a worker until killed; a failure of the worker is the process's exit code."""
    cast.me = cast.Process(folder)

    async def main() -> int:
        known: list[Flow[Any, Any]] = [getattr(cast, name) for name in flows]
        async with open_app(folder, settings) as app, app.worker(known, concurrency) as worker:
            (folder / f"ready-{os.getpid()}").touch()
            await worker.wait()
            return 0 if worker.failure is None else worker.failure.exit_code

    raise SystemExit(asyncio.run(main()))
