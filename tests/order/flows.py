"""Flows in which order matters: each returns what it saw, in the order in which it saw it."""

from __future__ import annotations

import asyncio
from typing import Any

import outlive
from tests.order.bodies import (
    fail,
    fetch,
    fetch_plain,
    refuse,
    risk,
    send,
    stubborn,
    third_time,
)

Seen = list[Any]


@outlive.flow
async def gathered() -> Seen:
    seen: Seen = []

    async def branch(name: str) -> str:
        got = await fetch(name)
        seen.append(got)
        again = await fetch_plain(f"{name}2")
        seen.append(again)
        return again

    return [seen, await asyncio.gather(*(branch(name) for name in "abc"))]


@outlive.flow
async def gathered_steps() -> Seen:
    """Steps given to gather directly, and effects among them."""
    return list(await asyncio.gather(fetch("a"), send("b"), fetch("c"), send("d"), fetch("a")))


@outlive.flow
async def nested() -> Seen:
    seen: Seen = []

    async def leaf(name: str) -> None:
        seen.append(await fetch(name))

    async def twig(name: str) -> None:
        await asyncio.gather(leaf(f"{name}1"), leaf(f"{name}2"))
        seen.append(name)

    await asyncio.gather(twig("a"), twig("b"), leaf("c"))
    return seen


@outlive.flow
async def grouped() -> Seen:
    seen: Seen = []

    async def branch(name: str) -> None:
        seen.append(await fetch(name))
        seen.append(await send(name))

    async with asyncio.TaskGroup() as group:
        for name in "ab":
            group.create_task(branch(name))
        seen.append(await fetch("own"))
    return seen


@outlive.flow
async def failing_group() -> Seen:
    """One branch fails: the others are cancelled, effects only when their attempt is over."""
    seen: Seen = []

    async def branch(name: str) -> None:
        try:
            seen.append(await fetch(name))
            seen.append(await send(name))
            seen.append(await fetch(f"{name} after"))
        except asyncio.CancelledError:
            seen.append(f"cancelled {name}")
            raise

    async def breaking() -> None:
        await fetch("x")
        await fail("y")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(branch("a"))
            group.create_task(breaking())
            group.create_task(branch("b"))
            group.create_task(branch("c"))
    except* ValueError as errors:
        seen.append([str(error) for error in errors.exceptions])
    return seen


@outlive.flow
async def tasks() -> Seen:
    """Tasks awaited in another order than made; one is left behind."""
    seen: Seen = []

    async def branch(name: str) -> str:
        got = await fetch(name)
        seen.append(got)
        return got

    first, second, third = (asyncio.create_task(branch(name)) for name in "abc")
    third.add_done_callback(lambda _: seen.append("third"))
    seen.append(await second)
    seen.append(await first)
    left_behind = asyncio.create_task(stubborn("z"))
    seen.append(await third)
    return [*seen, left_behind.done()]


@outlive.flow
async def first_completed() -> Seen:
    seen: Seen = []
    pending = {asyncio.create_task(fetch(name)) for name in "abcd"}
    while len(pending) > 1:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        seen.append([task.result() for task in done])
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)
    return [*seen, await fetch("end")]


@outlive.flow
async def completed() -> Seen:
    return [await each for each in asyncio.as_completed([fetch(name) for name in "abcde"])]


@outlive.flow
async def completed_branches() -> Seen:
    """as_completed over coroutines that make two steps each, twice in one flow."""

    async def branch(name: str) -> str:
        return await fetch(name) + await fetch_plain(f"{name}2")

    first = [await each for each in asyncio.as_completed([branch("a"), branch("b"), branch("c")])]
    again = [await each for each in asyncio.as_completed((branch("d"), branch("e")))]
    return [first, again]


@outlive.flow
async def waited_for() -> Seen:
    """Time limits that are sometimes met; timed-out steps that end late all the same."""
    seen: Seen = []
    for name in ("a", "b", "c"):
        try:
            seen.append(await asyncio.wait_for(stubborn(name), 0.003))
        except TimeoutError:
            seen.append(f"{name} timed out")
        seen.append(await fetch(f"{name} after"))
    return seen


@outlive.flow
async def limited() -> Seen:
    """A time limit over several branches, one of them an effect."""
    seen: Seen = []

    async def branch(name: str) -> None:
        seen.append(await fetch(name))
        seen.append(await send(name))

    try:
        async with asyncio.timeout(0.006):
            await asyncio.gather(branch("a"), branch("b"))
    except TimeoutError:
        seen.append("timed out")
    return [*seen, await fetch("end")]


@outlive.flow
async def sleeping() -> Seen:
    """Sleeps race with steps and with each other."""
    seen: Seen = []

    async def sleeper(seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append(seconds)

    async def durable() -> None:
        await outlive.sleep(0.004)
        seen.append("durable")

    async def working(name: str) -> None:
        seen.append(await fetch(name))

    await asyncio.gather(
        sleeper(0.005), sleeper(0.001), working("a"), durable(), sleeper(0.003), working("b")
    )
    return seen


@outlive.flow
async def queued() -> Seen:
    """Two makers, two takers, one queue."""
    seen: Seen = []
    queue: asyncio.Queue[str | None] = asyncio.Queue(maxsize=2)

    async def make(names: str) -> None:
        for name in names:
            await queue.put(await fetch(name))

    async def take(taker: int) -> None:
        while (name := await queue.get()) is not None:
            seen.append([taker, name, await fetch(f"{name} taken")])

    takers = [asyncio.create_task(take(number)) for number in (1, 2)]
    await asyncio.gather(make("ab"), make("cd"))
    for _ in takers:
        await queue.put(None)
    await asyncio.gather(*takers)
    return seen


@outlive.flow
async def locked() -> Seen:
    """A lock, a semaphore and an event between branches."""
    seen: Seen = []
    lock, two, open_now = asyncio.Lock(), asyncio.Semaphore(2), asyncio.Event()

    async def branch(name: str) -> None:
        async with two:
            await fetch(name)
        async with lock:
            seen.append([name, await fetch(f"{name} inside")])
        await open_now.wait()
        seen.append(name)

    async def opener() -> None:
        await fetch("key")
        seen.append("open")
        open_now.set()

    await asyncio.gather(branch("a"), opener(), branch("b"), branch("c"))
    return seen


@outlive.flow
async def retried() -> Seen:
    """Back-offs, refused effects and faults among other branches."""
    seen: Seen = []

    async def refused(name: str) -> None:
        try:
            await refuse(name)
        except ConnectionError as error:
            seen.append(f"refused {error}")

    async def patient(name: str) -> None:
        seen.append(await third_time(name))

    async def steady(name: str) -> None:
        for number in range(3):
            seen.append(await fetch(f"{name}{number}"))

    await asyncio.gather(patient("p"), refused("r"), steady("s"))
    return seen


@outlive.flow
async def risked() -> Seen:
    """Doubts that are settled while other branches go on, and while they are cancelled."""
    seen: Seen = []

    async def branch(name: str) -> None:
        try:
            seen.append(await risk(name))
        except OSError as error:
            seen.append(f"lost {error}")
        except asyncio.CancelledError:
            seen.append(f"cancelled {name}")
            raise

    async def breaking() -> None:
        await fetch("x")
        await fetch("y")
        await fail("z")

    await asyncio.gather(branch("a"), branch("b"))
    try:
        async with asyncio.TaskGroup() as group:
            for name in "cde":
                group.create_task(branch(name))
            group.create_task(breaking())
    except* ValueError:
        seen.append("failed")
    return seen


@outlive.flow
async def drawn() -> Seen:
    """Chance, names and time of the run, in branches."""

    async def branch(name: str) -> list[Any]:
        before = outlive.random()
        await fetch(name)
        return [before, str(outlive.uuid()), outlive.now().isoformat()]

    return [*await asyncio.gather(branch("a"), branch("b")), outlive.random()]


@outlive.flow
async def generated() -> Seen:
    """An asynchronous generator that makes steps, left in the middle; a shielded step."""
    seen: Seen = []

    async def numbers() -> Any:
        for number in range(5):
            yield await fetch(str(number))

    async def left() -> None:
        source = numbers()
        async for number in source:
            seen.append(number)
            if number == "2":
                break
        await source.aclose()

    async def shielded() -> None:
        task = asyncio.create_task(fetch("kept"))
        try:
            await asyncio.wait_for(asyncio.shield(task), 0.002)
        except TimeoutError:
            seen.append("too slow")
        seen.append(await task)

    await asyncio.gather(left(), shielded())
    return seen
