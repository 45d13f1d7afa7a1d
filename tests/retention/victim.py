"""A process that clears a store, or forks a run, and is killed at a named moment.

python -m tests.retention.victim FILE ARCHIVE WHAT MOMENT NUMBER
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from outlive import Retention
from outlive.app.app import App
from outlive.ports import Ports
from outlive.stores.sqlite.store import SQLiteStore
from tests.harness.clocks import ShiftedClock


def main(path: str, archive: str, what: str, moment: str, number: str) -> None:
    left = int(number)

    def failpoint(name: str) -> None:
        nonlocal left
        left -= name == moment
        if name == moment and not left:
            os.kill(os.getpid(), signal.SIGKILL)

    calendar = ShiftedClock()
    calendar.pass_days(20)
    ports = Ports(clock=calendar, failpoint=failpoint)

    async def work() -> None:
        async with App(SQLiteStore(path, ports=ports), ports=ports, drive=False) as app:
            if what == "retain":
                await app.retain(rules(archive))
            else:
                await app.fork("shop-0", at=1, id="fork")

    asyncio.run(work())


def rules(archive: str) -> Retention:
    """What may go."""
    return Retention(completed="10d", cancelled="10d", ttl="15d", archive=archive)


if __name__ == "__main__":
    main(*sys.argv[1:])
