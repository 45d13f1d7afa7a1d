"""Runs that use everything that waits, with the people outside, and how each may end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import outlive
from outlive.engine import people
from outlive.engine import verbs as fanout
from outlive.errors import RunFailed, TimedOut
from outlive.model.events import (
    EffectDone,
    EffectIntended,
    Parked,
    QuestionAsked,
    Replied,
    SignalReceived,
)
from tests.engine import chapters
from tests.harness.theatre import Theatre
from tests.harness.world import note, pay, world

Tick = Callable[[Theatre], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run and its surroundings."""

    flow: outlive.Flow[Any, Any]
    args: tuple[Any, ...] = ()
    #: What people do: called again and again, so everything that it posts has an id.
    tick: Tick
    #: How the run may end, in words.
    ends: Sequence[Any]
    #: What is left of the effects in the end, by name.
    left: Sequence[Sequence[str]] = ((),)

    @property
    def name(self) -> str:
        return self.flow.name


async def nobody(theatre: Theatre) -> None:
    """Nobody does anything."""


# ---------------------------------------------------------------- waits


@outlive.flow
async def signalled() -> list[str]:
    async def one(name: str) -> str:
        return f"{name}={await people.wait_signal('s', str, within='1h')}"

    got = list(await asyncio.gather(one("a"), one("b")))
    got.append(await note("between"))
    got.append(str(await people.wait_signal("t", str)))
    await outlive.sleep(0.3)
    got.append(str(await people.wait_signal("s", str)))
    return got


async def send_signals(theatre: Theatre) -> None:
    got = len(await theatre.events("r", SignalReceived))
    await theatre.signal("r", "t", "kept", id="t")
    for number in range(min(3, got + 1)):
        await theatre.signal("r", "s", f"{number}", id=f"s{number}")


@outlive.flow
async def questioned() -> list[str]:
    number: int = await people.ask("How many?", type=int, within="1d")
    seen = [str(number)]
    for name in ("rent", "fine"):
        approval = await people.approve(pay, name)
        seen.append(f"{name} {approval.granted} {approval.by}")
        if approval.granted:
            await pay(name)
    try:
        await people.ask("Anybody?", within=0.4)
    except TimedOut:
        seen.append("nobody")
    return seen


async def answer_questions(theatre: Theatre) -> None:
    answers = {
        "0/ask#1": b"3",
        "0.1/ask#1": b"true",
        "0/approve#1": b"true",
        "0/approve#2": b'{"granted": false}',
    }
    for question in (await theatre.fold("r")).questions:
        if question in answers:
            await theatre.answer("r", question, answers[question], by="ann")


@outlive.flow
async def desk() -> int:
    served = 0
    async for request in people.requests("message", type=str, idle="10s"):
        served += 1
        receipt = await pay(request.value)
        await request.reply(f"{served} {receipt}")
        if request.value == "last":
            break
    return served


async def send_requests(theatre: Theatre) -> None:
    replied = len(await theatre.events("r", Replied))
    for number, value in enumerate(["one", "two", "last"][: replied + 2]):
        await theatre.signal("r", "message", value, id=f"q{number}")


@outlive.flow
async def mistaken() -> list[str]:
    """What it is sent is of another type at first, before it waits as while it does."""
    got = [await note("first")]
    async for request in people.requests("message", type=str):
        await request.reply("yes")
        break
    both = asyncio.gather(people.ask("Sure?", type=bool), people.wait_signal("s", str))
    got += [str(each) for each in await both]
    return [*got, str(await people.wait_signal("s", str, within="1h"))]


async def send_mistakes(theatre: Theatre) -> None:
    for number, value in enumerate([0, 1, "a", 2][: 1 + len(await theatre.events("r"))]):
        await theatre.signal("r", "s", value, id=f"s{number}")
    if await theatre.events("r", Replied):
        await answer_questions(theatre)
    await theatre.signal("r", "message", "well?", id="m")
    if len(await theatre.events("r", Replied)) == 4:
        await theatre.signal("r", "s", "b", id="s4")


@outlive.flow
async def limited() -> list[str]:
    seen = []
    try:
        async with people.timeout(20):
            try:
                async with people.timeout(0.3):
                    await people.wait_signal("never")
            except TimedOut:
                seen.append(await note("inner"))
            await outlive.sleep(100)
    except TimedOut:
        seen.append(await note("outer"))
    async with people.timeout(5):
        await outlive.sleep(0.2)
    return seen


# ---------------------------------------------------------------- ends


@outlive.flow
async def cancelled() -> None:
    await pay("a")
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(pay("b"))
            group.create_task(people.ask("Well?"))
    finally:
        await note("cleaning up")


async def cancel_it(theatre: Theatre) -> None:
    if await theatre.events("r", QuestionAsked):
        await theatre.cancel("r")


@outlive.flow
async def swallowed() -> list[str]:
    seen = []
    for _ in range(2):
        try:
            await people.wait_signal("s", str)
        except asyncio.CancelledError:
            seen.append(await pay("after a cancel"))
    return [*seen, str(await people.wait_signal("s", str))]


async def cancel_twice(theatre: Theatre) -> None:
    done = len(await theatre.events("r", EffectDone))
    if await theatre.events("r", Parked):
        for number in range(min(2, done + 1)):
            await theatre.cancel("r", by=f"{number}")
    if done == 2:
        await theatre.signal("r", "s", "at last", id="s")


@outlive.flow(deadline=1.0)
async def overdue() -> None:
    await pay("a")
    await asyncio.gather(pay("b"), outlive.sleep(0.2))
    await people.wait_signal("never")


@outlive.flow
async def undone() -> None:
    await asyncio.gather(pay("a"), pay("b"))
    await outlive.sleep(0.2)
    await pay("c")
    raise ValueError("no good")


# ---------------------------------------------------------------- other runs


@outlive.flow
async def leaf(name: str) -> str:
    await outlive.sleep(0.2)
    if name.startswith("bad"):
        raise ValueError(name)
    return f"leaf {await pay(name)}"


@outlive.flow
async def waiting_leaf(name: str) -> str:
    await pay(name)
    return str(await people.wait_signal("never", str))


@outlive.flow
async def calling() -> list[str]:
    seen = [str(await fanout.call(leaf, "one"))]
    try:
        await fanout.call(leaf, "bad two")
    except RunFailed as error:
        seen.append(error.type_name)
    spawned = await fanout.spawn(leaf, "three", id="alone")
    seen.append(spawned)
    return seen


@outlive.flow
async def family() -> list[str]:
    return list(await asyncio.gather(fanout.call(calling), fanout.call(leaf, "four")))


@outlive.flow
async def orphaning() -> str:
    try:
        async with people.timeout(0.5):
            await fanout.call(waiting_leaf, "child")
    except TimedOut:
        pass
    await outlive.sleep(0.2)
    return await note("done")


@outlive.flow
async def abandoned() -> None:
    await asyncio.gather(fanout.call(waiting_leaf, "one"), fanout.call(waiting_leaf, "two"))


async def cancel_parent(theatre: Theatre) -> None:
    for child in (await theatre.fold("r")).children.values():
        if await theatre.events(child.child_id, EffectDone):
            await theatre.cancel("r")


@outlive.flow
async def racing() -> str:
    """The first of three wins; the others are called off."""
    racers = [
        asyncio.create_task(people.wait_signal("s", str)),
        asyncio.create_task(fanout.call(waiting_leaf, "racer")),
        asyncio.create_task(outlive.sleep("1d")),
    ]
    done, rest = await asyncio.wait(racers, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await asyncio.wait(rest)
    return str(next(iter(done)).result())


async def signal_late(theatre: Theatre) -> None:
    for child in (await theatre.fold("r")).children.values():
        if await theatre.events(child.child_id, EffectIntended):
            await theatre.signal("r", "s", "the signal", id="s")


@outlive.step
async def check_item(item: int) -> int:
    world.ran.append(f"item {item}")
    if item % 3 == 2:
        raise ValueError(item)
    return item * 10


@outlive.flow
async def mapping() -> list[str]:
    steps = await fanout.map(check_item, range(5), limit=2)
    flows = await fanout.map(leaf, ["x", "bad y", "z"], limit=2)
    effects = await fanout.map(pay, ["p", "q"])
    return [
        str(each.value) if each.ok else type(each.error).__name__
        for each in (*steps, *flows, *effects)
    ]


MAPPED = ["0", "10", "ValueError", "30", "40", "leaf x", "RunFailed", "leaf z", "p", "q"]

SCENARIOS = [
    Scenario(
        flow=signalled,
        tick=send_signals,
        ends=[["a=0", "b=1", "BETWEEN", "kept", "2"]],
    ),
    Scenario(
        flow=questioned,
        tick=answer_questions,
        ends=[["3", "rent True ann", "fine False ann", "nobody"]],
        left=[["rent"]],
    ),
    Scenario(flow=desk, tick=send_requests, ends=[3], left=[["last", "one", "two"]]),
    Scenario(flow=mistaken, tick=send_mistakes, ends=[["FIRST", "True", "a", "b"]]),
    Scenario(flow=limited, tick=nobody, ends=[["INNER", "OUTER"], ["OUTER"]]),
    Scenario(flow=cancelled, tick=cancel_it, ends=["cancelled"]),
    Scenario(
        flow=swallowed,
        tick=cancel_twice,
        ends=[["after a cancel", "after a cancel", "at last"]],
        left=[["after a cancel", "after a cancel"]],
    ),
    Scenario(flow=overdue, tick=nobody, ends=["failed TimedOut"]),
    Scenario(flow=undone, tick=nobody, ends=["failed ValueError"]),
    Scenario(
        flow=calling,
        tick=nobody,
        ends=[["leaf one", "ValueError", "alone"]],
        left=[["one", "three"]],
    ),
    Scenario(
        flow=family,
        tick=nobody,
        ends=[[["leaf one", "ValueError", "alone"], "leaf four"]],
        left=[["four", "one", "three"]],
    ),
    Scenario(flow=orphaning, tick=nobody, ends=["DONE"]),
    Scenario(flow=abandoned, tick=cancel_parent, ends=["cancelled"]),
    Scenario(flow=racing, tick=signal_late, ends=["the signal"]),
    Scenario(flow=mapping, tick=nobody, ends=[MAPPED], left=[["p", "q", "x", "z"]]),
    Scenario(
        flow=chapters.chatting,
        args=([], chapters.MESSAGES),
        tick=chapters.talk,
        ends=[[str(number) for number in range(chapters.MESSAGES)]],
        left=[["chapter 2", "chapter 4", "chapter 5"]],
    ),
    Scenario(
        flow=chapters.failing_late, args=(0,), tick=nobody, ends=["failed ValueError"], left=[[]]
    ),
    Scenario(
        flow=chapters.never_ending,
        args=(0,),
        tick=chapters.cancel_early,
        ends=["cancelled"],
        left=[[]],
    ),
    Scenario(flow=chapters.parenting, args=(0,), tick=chapters.send_word, ends=["WHISPER 2 hi"]),
]
