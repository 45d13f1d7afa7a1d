"""What a child process of these tests does: open an app on a shared store, and drive runs.

Children are forked from a server that has everything imported, so they are cheap. What a child
appended, and what of it was refused, goes into a file of its own as it happens.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import outlive
from outlive.app.app import App
from outlive.app.handle import Handle
from outlive.engine.definitions import Flow
from outlive.ports import Ports
from outlive.settings import Settings
from tests.harness.stores import open_witnessed, store_url
from tests.processes import cast
from tests.processes.cast import Position

LEASE_SECONDS = 1.0
CHILD_SECONDS_MAX = 600.0
QUICK = Settings(lease_seconds=LEASE_SECONDS, poll_seconds=0.05, idle_seconds=0.0)


def open_app(folder: Path, settings: Settings = QUICK, url: str = "") -> App:
    """An app of this process on the shared store, or on what it sees of that."""
    ports = Ports(failpoint=cast.me.failpoint)
    store = open_witnessed(folder, url, ports=ports, lease_seconds=settings.lease_seconds)
    return App(store, ports=ports, settings=settings)


def enter(folder: Path, stop_at: Position | None = None) -> None:
    """Every child begins so. One that hangs says where, and ends."""
    cast.me = cast.Process(folder, stop_at)
    path = folder / f"stuck-{os.getpid()}.txt"
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    faulthandler.dump_traceback_later(CHILD_SECONDS_MAX, exit=True, file=log)


def start(folder: Path, run: tuple[str, str, list[Any]], stop_at: Position | None) -> None:
    """Start a run and wait for its outcome, which goes into a file."""
    run_id, flow, args = run
    enter(folder, stop_at)

    async def main() -> object:
        async with open_app(folder) as app:
            return await (await app.start(getattr(cast, flow), *args, id=run_id))

    outcome = asyncio.run(main())
    (folder / f"outcome-{os.getpid()}.json").write_text(json.dumps(outcome))


def work(
    folder: Path, flows: list[str], settings: Settings = QUICK, concurrency: int = 100
) -> None:
    """Be a worker until killed; a failure of the worker is the process's exit code."""
    enter(folder)

    async def main() -> int:
        known: list[Flow[Any, Any]] = [getattr(cast, name) for name in flows]
        async with open_app(folder, settings) as app, app.worker(known, concurrency) as worker:
            (folder / f"ready-{os.getpid()}").touch()
            await worker.wait()
            return 0 if worker.failure is None else worker.failure.exit_code

    raise SystemExit(asyncio.run(main()))


def start_beside(folder: Path, rude: list[tuple[str, str, list[Any]]], turns: int) -> None:
    """One app, a loop per run: what blocks one loop must not keep the others' commits."""
    enter(folder)
    app = open_app(folder)

    async def drive(run_id: str, flow: str, args: list[Any]) -> object:
        try:
            return await (await app.start(getattr(cast, flow), *args, id=run_id))
        finally:
            await app._workers.stop()

    runs = [*rude, ("busy", "busy", [turns])]
    with ThreadPoolExecutor(len(runs)) as threads:
        outcomes = list(threads.map(lambda run: asyncio.run(drive(*run)), runs))
    app.close()
    (folder / f"outcome-{os.getpid()}.json").write_text(json.dumps(outcomes))


def run(folder: Path, run_id: str, flow: str, args: list[Any]) -> None:
    """``outlive.run`` with default settings, as a script would call it; notes when it did."""
    enter(folder)
    url = store_url(folder)
    (folder / f"called-{os.getpid()}").write_text(str(time.time()))
    outcome = outlive.run(getattr(cast, flow), *args, id=run_id, store=url)
    (folder / f"outcome-{os.getpid()}.json").write_text(json.dumps(outcome))


def fork(folder: Path) -> None:
    """Fork while runs are in flight; the child notes what its inherited app says, and ends."""
    enter(folder)

    async def main() -> object:
        async with open_app(folder) as app:
            parked = await app.start(cast.napping, "checked", id="parked")
            going = await app.start(cast.holding, 1, id="going")
            await asyncio.sleep(0.05)
            child = os.fork()
            if child == 0:
                try_inherited(folder, app, going)
            assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            (folder / "go").touch()
            return [await parked, await going]

    (folder / f"outcome-{os.getpid()}.json").write_text(json.dumps(asyncio.run(main())))


def try_inherited(folder: Path, app: App, handle: Handle) -> None:
    """In the child: every verb must refuse at once."""
    signal.alarm(20)  # faulthandler, too, is the parent's
    said: dict[str, str] = {}

    async def attempt(name: str, verb: Coroutine[Any, Any, object]) -> None:
        try:
            await asyncio.wait_for(verb, 5)
        except Exception as error:
            said[name] = type(error).__name__

    async def main() -> None:
        await attempt("start", app.start(cast.holding, 2, id="child"))
        await attempt("submit", app.submit(cast.holding, 2, id="child"))
        await attempt("find", app.find())
        await attempt("get", app.get("going"))
        await attempt("nudge", app.nudge("going", "child"))
        await attempt("resolve", app.resolve("going", "0/gate#1", "fail"))
        await attempt("status", handle.status())
        await attempt("outcome", handle.outcome())
        await attempt("aclose", app.aclose())

    try:
        asyncio.run(main())
        (folder / "said.json").write_text(json.dumps(said))
    finally:
        os._exit(0)
