"""A flow with transactional steps, and processes that drive it until they are killed.

Bookings have no key, and nothing in the user's table keeps a second one out.
"""

from __future__ import annotations

import asyncio
import faulthandler
import multiprocessing
import os
import signal
from collections import Counter
from multiprocessing.process import BaseProcess
from typing import Any

import outlive
from outlive.app.app import App
from outlive.app.open import open_app
from outlive.ports import Ports
from outlive.settings import Settings
from tests.harness.places import Place, place_of

QUICK = Settings(lease_seconds=1.0, poll_seconds=0.05, idle_seconds=0.0)
#: What a trip books, and so how often each of these moments comes.
PARTS = ("flight", "room", "car", "table")
CHILD_SECONDS_MAX = 120.0
#: A connection may be lost in any statement of a body.
AGAIN = outlive.Retry(attempts=5, delay="0s")

CHILDREN = multiprocessing.get_context("forkserver")
CHILDREN.set_forkserver_preload(["tests.transactions.booking"])


class Here:
    """What this process was told."""

    place: Place
    #: Stop (SIGSTOP) in the body of this part, once it has written.
    stop_in: str | None = None


def stop_if_told(what: str) -> None:
    if Here.stop_in is not None and what.endswith(Here.stop_in):
        Here.stop_in = None
        os.kill(os.getpid(), signal.SIGSTOP)


@outlive.step(transaction=True, retry=AGAIN)
async def book(connection: Any, what: str) -> str:
    found = connection.execute(Here.place.insert(), (f"{what} {outlive.key()}",))
    if asyncio.iscoroutine(found):
        await found
    stop_if_told(what)
    return f"{what} {os.urandom(4).hex()}"


@outlive.step(transaction=True, retry=AGAIN)
def book_plainly(connection: Any, what: str) -> str:
    connection.execute(Here.place.insert(), (f"{what} {outlive.key()}",))
    stop_if_told(what)
    return f"{what} {os.urandom(4).hex()}"


@outlive.flow
async def trip(name: str) -> list[str]:
    first = await book(f"{name}/flight")
    some = await asyncio.gather(book(f"{name}/room"), book_plainly(f"{name}/car"))
    return [first, *some, await book_plainly(f"{name}/table")]


def play(url: str, name: str, moment: str, number: int, stop_in: str | None) -> None:
    """Drive a trip, and die at the n-th such moment; "" never comes."""
    faulthandler.dump_traceback_later(CHILD_SECONDS_MAX, exit=True)
    Here.place, Here.stop_in = place_of(url, make=False), stop_in
    passed: Counter[str] = Counter()

    def failpoint(reached: str) -> None:
        passed[reached] += 1
        if reached == moment and passed[reached] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    async def main() -> None:
        app = open_app(url, ports=Ports(failpoint=failpoint), settings=QUICK)
        async with app:
            await (await app.start(trip, name, id=name)).outcome()

    asyncio.run(main())


def spawn(place: Place, name: str, moment: str, number: int, stop_in: str = "") -> BaseProcess:
    """A process that does that."""
    child = CHILDREN.Process(target=play, args=(place.url, name, moment, number, stop_in or None))
    child.start()
    return child


async def recover(place: Place, names: list[str]) -> dict[str, list[str]]:
    """Drive on whatever of these was begun, and begin the rest; their outcomes."""
    Here.place, Here.stop_in = place, None
    async with open_app(place.url, settings=QUICK) as app:
        return await _outcomes(app, names)


async def _outcomes(app: App, names: list[str]) -> dict[str, list[str]]:
    handles = [await app.start(trip, name, id=name) for name in names]
    return {handle.id: await handle.outcome() for handle in handles}


def booked(place: Place) -> list[str]:
    """What was, without the keys that nobody has looked at."""
    return sorted(row.partition(" ")[0] for row in place.rows())


def expected(names: list[str]) -> list[str]:
    """What must have been booked: each once."""
    return sorted(f"{name}/{part}" for name in names for part in PARTS)
