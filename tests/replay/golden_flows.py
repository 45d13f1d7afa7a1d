"""The flows whose journals are kept. Never change one: add another, and write its journal.

Each touches something whose ids or order could depend on the Python version, on the host's loop
or on memory addresses. Bodies take a random while; effects are found again in a ledger.
"""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Any

import outlive

LEDGER: dict[str, str] = {}
CHANCE = Random()


def pause() -> float:
    return CHANCE.choice((0.0, 0.001, 0.002, 0.003))


@outlive.step
async def fetch(name: str) -> str:
    await asyncio.sleep(pause())
    return name.upper()


@outlive.step
def fetch_plain(name: str, sizes: dict[str, int]) -> list[Any]:
    time.sleep(pause())
    return [name, sizes]


@outlive.step(raises=(LookupError,))
async def fail(name: str) -> None:
    await asyncio.sleep(pause())
    raise LookupError(name)


@outlive.step(retry=outlive.Retry(attempts=3, delay=0.001))
async def third_time(name: str) -> str:
    if outlive.attempt() < 3:
        raise ConnectionError(name)
    return f"{name} at {outlive.attempt()}"


def find(key: str) -> Any:
    return LEDGER.get(key, outlive.NOT_HAPPENED)


@outlive.effect(check=find, settle_after=0, retry=outlive.Retry(attempts=2, delay=0.001))
async def send(name: str) -> str:
    await asyncio.sleep(pause())
    fate = CHANCE.random()
    if fate < 0.2:
        raise OSError("lost before")
    LEDGER[outlive.key()] = f"sent {name}"
    if fate < 0.4:
        raise OSError("lost after")
    return LEDGER[outlive.key()]


async def try_to_send(name: str) -> str:
    try:
        return await send(name)
    except OSError as error:
        return f"{name}: {error}"


@outlive.flow
async def golden_gather() -> Any:
    seen: list[str] = []

    async def branch(name: str) -> Any:
        seen.append(await fetch(name))
        return await fetch_plain(name, {"b": 2, "a": 1})

    return [await asyncio.gather(*(branch(name) for name in "abc"), fetch("d")), seen]


@outlive.flow
async def golden_group() -> Any:
    """A failing group: its set of tasks decides who is cancelled first."""
    seen: list[Any] = []

    async def branch(name: str) -> None:
        try:
            seen.append(await fetch(name))
            seen.append(await try_to_send(name))
            seen.append(await fetch(f"{name}2"))
        except asyncio.CancelledError:
            seen.append(f"{name} cancelled")
            raise

    try:
        async with asyncio.TaskGroup() as group:
            for name in "abcdefgh":
                group.create_task(branch(name))
            await fetch("own")
            await fail("group")
    except* LookupError as errors:
        seen.append([str(error) for error in errors.exceptions])
    return seen


@outlive.flow
async def golden_first_completed() -> Any:
    seen: list[Any] = []
    pending = {asyncio.create_task(fetch(name)) for name in "abcdef"}
    while len(pending) > 2:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        seen.append([task.result() for task in done])
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)
    return seen


@outlive.flow
async def golden_as_completed() -> Any:
    """Made from a set in 3.11 and 3.12, by a class in 3.13."""

    async def branch(name: str) -> str:
        return await fetch(name) + await fetch(f"{name}2")

    first = [await each for each in asyncio.as_completed([fetch(name) for name in "abcde"])]
    second = [await each for each in asyncio.as_completed([branch(name) for name in "xyz"])]
    return [first, second]


@outlive.flow
async def golden_wait_for() -> Any:
    """A task of its own in 3.11, none later: ids and timers inside it must not move."""

    async def inner(name: str) -> Any:
        await asyncio.sleep(0.001)
        both = await asyncio.gather(fetch(name), fetch(f"{name}2"))
        await asyncio.wait_for(fetch(f"{name}3"), 5)
        return both

    seen: list[Any] = []
    for name, limit in (("a", 0.003), ("b", 5), ("c", 0.002), ("d", 0)):
        try:
            seen.append(await asyncio.wait_for(inner(name), limit))
        except TimeoutError:
            seen.append(f"{name} timed out")
        seen.append(await fetch(f"{name} after"))
    return seen


@outlive.flow
async def golden_limits() -> Any:
    seen: list[Any] = []

    async def branch(name: str) -> None:
        seen.append(await fetch(name))
        seen.append(await try_to_send(name))

    for limit in (0.003, 5):
        try:
            async with asyncio.timeout(limit), asyncio.TaskGroup() as group:
                group.create_task(branch("a"))
                group.create_task(branch("b"))
                async with asyncio.timeout(None):
                    await fetch("own")
        except TimeoutError:
            seen.append("timed out")
    return seen


@outlive.flow
async def golden_queue() -> Any:
    seen: list[Any] = []
    queue: asyncio.Queue[Any] = asyncio.Queue(1)
    lock, opened = asyncio.Lock(), asyncio.Event()

    async def make(names: str) -> None:
        for name in names:
            await queue.put(await fetch(name))
        async with lock:
            seen.append(await fetch(f"{names} made"))
        opened.set()

    async def take(taker: int) -> None:
        await opened.wait()
        while (name := await queue.get()) is not None:
            seen.append([taker, await fetch(f"{name} taken")])

    takers = [asyncio.create_task(take(number)) for number in (1, 2)]
    opener = asyncio.create_task(fetch("open"))
    opener.add_done_callback(lambda _: opened.set())
    await asyncio.gather(make("ab"), make("cd"))
    await queue.put(None)
    await queue.put(None)
    await asyncio.gather(*takers)
    return seen


@outlive.flow
async def golden_sleep() -> Any:
    seen: list[Any] = []

    async def sleeper(seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append(seconds)

    await asyncio.gather(sleeper(0.004), sleeper(0.002), outlive.sleep(0.003), third_time("p"))
    drawn = [outlive.random(), str(outlive.uuid()), outlive.now().isoformat()]
    await outlive.sleep(0.002)
    return [seen, drawn, outlive.now().isoformat()]


@outlive.flow
async def golden_left_behind() -> Any:
    """A generator left in the middle, a shielded step, tasks that nobody waits for."""

    async def numbers() -> Any:
        for number in range(9):
            yield await fetch(str(number))

    seen: list[Any] = []
    source = numbers()
    async for number in source:
        seen.append(number)
        if number == "2":
            break
    await source.aclose()
    task = asyncio.create_task(fetch("kept"))
    try:
        await asyncio.wait_for(asyncio.shield(task), 0.001)
    except TimeoutError:
        seen.append("too slow")
    left = [asyncio.create_task(fetch(f"left {number}")) for number in range(3)]
    seen.append(await task)
    return [seen, len(left)]


@outlive.flow
async def golden_failure() -> Any:
    await asyncio.gather(fetch("a"), try_to_send("b"))
    await fail("for good")


GOLDEN = [
    golden_gather,
    golden_group,
    golden_first_completed,
    golden_as_completed,
    golden_wait_for,
    golden_limits,
    golden_queue,
    golden_sleep,
    golden_left_behind,
    golden_failure,
]
