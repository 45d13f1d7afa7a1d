"""Long-lived children that start at the same instant, again and again, for one run each time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import outlive
import outlive.app.handle
import outlive.app.open
from outlive.app.app import App
from tests.harness.stores import open_witnessed, store_url
from tests.processes import cast, players


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """One race, for one racer."""

    run_id: str
    flow: str
    args: tuple[Any, ...]
    #: How this racer goes for the run.
    way: str
    #: time.monotonic(), the same for all processes of a machine.
    start_at: float


def race(folder: Path, line: Connection) -> None:
    """Run each heat that comes over the line; answer with the outcome."""
    os.environ.update(
        OUTLIVE_LEASE_SECONDS="1", OUTLIVE_POLL_SECONDS="0.05", OUTLIVE_IDLE_SECONDS="0"
    )
    outlive.app.handle.HANDLE_POLL_SECONDS = 0.05
    outlive.app.open.open_store = partial(open_witnessed, folder)  # type: ignore[assignment]
    while (heat := line.recv()) is not None:
        players.enter(folder)
        while time.monotonic() < heat.start_at:
            pass
        try:
            line.send(WAYS[heat.way](folder, heat))
        except Exception as error:
            line.send(repr(error))


def by_run(folder: Path, heat: Heat) -> object:
    """As a script does it: nothing but a blocking call."""
    url = store_url(folder)
    return outlive.run(getattr(cast, heat.flow), *heat.args, id=heat.run_id, store=url)


def by_start(folder: Path, heat: Heat) -> object:
    """As an async program does it."""

    async def main() -> object:
        async with players.open_app(folder) as app:
            return await (await app.start(getattr(cast, heat.flow), *heat.args, id=heat.run_id))

    return asyncio.run(main())


def by_worker(folder: Path, heat: Heat) -> object:
    """As a web app with a worker beside it does it."""

    async def main() -> object:
        flow = getattr(cast, heat.flow)
        async with players.open_app(folder) as app, app.worker([flow]):
            return await outcome_of(app, heat)

    async def outcome_of(app: App, heat: Heat) -> object:
        handle = await app.submit(getattr(cast, heat.flow), *heat.args, id=heat.run_id)
        return await handle.outcome()

    return asyncio.run(main())


WAYS: dict[str, Callable[[Path, Heat], object]] = {
    "run": by_run,
    "start": by_start,
    "worker": by_worker,
}
