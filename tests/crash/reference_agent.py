"""The reference agent: every kind of step, effect, branch and wait, in one short run.

Each plain step returns a fresh nonce; each effect is given nonces of steps before it and leaves a
receipt in the ledger. The receiver answers, refuses, breaks, hangs and is late, as the effect's
name says. What only a human can settle is settled by ``scenes.py``.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import outlive
from outlive import Retry
from outlive.errors import InDoubt, KeyTaken, StepFailed
from outlive.testing.audit.auditor import Policy, Receipt, fresh_nonce, nonces_in
from outlive.testing.ledger import (
    ANSWERS,
    BREAKS_AFTER,
    BREAKS_BEFORE,
    HANGS_AFTER,
    HANGS_BEFORE,
    REFUSES,
    Ledger,
    Manner,
    ReceiverRefused,
    ReplyLost,
)

LATE = Manner(delay_seconds=0.08)
LATE_AND_BROKEN = Manner(delay_seconds=0.08, then="break")
LIMITS: dict[str, Any] = {"timeout": "300ms", "settle_after": "150ms", "ignore": ("book",)}
SETTLE_SECONDS = 0.15
#: What each search streams.
SEARCHED = ("looking", "reading", "found")
AGAIN = Retry(attempts=3, delay="20ms", factor=1.0, jitter=False)

POLICIES: dict[str, Policy] = {
    "refund": "once",
    "charge": "once",
    "order_late": "once",
    "order_hanging": "once",
    "order_refused": "once",
    "mail": "once",
    "subscribe": "once",
    "report": "once",
    "reserve": "once",
    "hold": "once",
    "letter": "at_most_once",
    "bell": "at_most_once",
    "wire": "at_most_once",
}


def ledger(book: str) -> Ledger:
    return Ledger(book, settle_seconds=SETTLE_SECONDS)


def receipt(name: str, why: str) -> Receipt:
    """What the receiver is asked for; plain steps have no key, so they make one up."""
    key = outlive.key() or f"{name} {why}"
    return Receipt(
        run_id=outlive.run_id(), effect=name, key=key, args=repr(why), nonces=nonces_in(why)
    )


async def ask(book: str, name: str, why: str, manner: Manner, *, honours: bool = False) -> str:
    """Have the receiver do something under this effect's key."""
    done = await ledger(book).perform(receipt(name, why), manner, honours_key=honours)
    return f"{name} {done.key}"


def found(book: str, key: str) -> object:
    """The check of every effect that has one."""
    done = ledger(book).find(key)
    return outlive.NOT_HAPPENED if done is None else f"{done.effect} {done.key}"


async def found_async(book: str, key: str) -> object:
    return found(book, key)


# ---------------------------------------------------------------- steps


@outlive.step
async def think(topic: str) -> str:
    return fresh_nonce(os.urandom)


@outlive.step
def look_up(topic: str) -> str:
    return fresh_nonce(os.urandom)


@outlive.step(timeout="20s")
async def search(topic: str, seconds: float) -> str:
    async with outlive.stream("tokens") as out:
        for word in SEARCHED:
            out.put(word)
            await outlive.publish(word=word)
            await asyncio.sleep(seconds / len(SEARCHED))
    return fresh_nonce(os.urandom)


@outlive.step(retry=AGAIN)
async def flaky(topic: str) -> str:
    async with outlive.stream("tokens") as out:
        out.put(f"attempt {outlive.attempt()}")
    if outlive.attempt() < 3:
        raise OSError("not yet")
    return fresh_nonce(os.urandom)


@outlive.step(raises=(LookupError,))
async def hopeless(topic: str) -> str:
    await asyncio.sleep(0.02)
    raise LookupError(topic)


# ---------------------------------------------------------------- effects


@outlive.effect(check=found, **LIMITS)
async def refund(book: str, why: str) -> str:
    return await ask(book, "refund", why, LATE)


@outlive.effect(check=found_async, **LIMITS)
def charge(book: str, why: str) -> str:
    """A plain function: it runs in a thread."""
    done = ledger(book).enter(receipt("charge", why))
    time.sleep(0.01)
    return f"charge {done.key}"


@outlive.effect(check=found, retry=AGAIN, **LIMITS)
async def order_late(book: str, why: str) -> str:
    manners = (BREAKS_BEFORE, LATE_AND_BROKEN, ANSWERS)
    return await ask(book, "order_late", why, manners[outlive.attempt() - 1])


@outlive.effect(check=found, retry=AGAIN, **{**LIMITS, "timeout": "120ms"})
async def order_hanging(book: str, why: str) -> str:
    manners = (HANGS_BEFORE, HANGS_AFTER, ANSWERS)
    return await ask(book, "order_hanging", why, manners[outlive.attempt() - 1])


@outlive.effect(not_happened=(ReceiverRefused,), check=found, retry=AGAIN, **LIMITS)
async def order_refused(book: str, why: str) -> str:
    if outlive.attempt() == 2:
        raise outlive.NotHappened("the shop is closed")
    manner = REFUSES if outlive.attempt() == 1 else ANSWERS
    return await ask(book, "order_refused", why, manner)


@outlive.effect(key="mail:{order}", doubt="retry", retry=AGAIN, **LIMITS)
async def mail(book: str, order: str, why: str) -> str:
    manner = BREAKS_AFTER if outlive.attempt() == 1 else ANSWERS
    return await ask(book, "mail", why, manner, honours=True)


@outlive.effect(key="subscribe:{order}", check=found, **LIMITS)
async def subscribe(book: str, order: str) -> str:
    """Two runs want it under one key; one does it, both have it."""
    return await ask(book, "subscribe", order, LATE)


@outlive.effect(doubt="retry", retry=AGAIN, **LIMITS)
async def report(book: str, why: str) -> str:
    return await ask(book, "report", why, ANSWERS, honours=True)


@outlive.effect(check=found, **LIMITS)
async def reserve(book: str, why: str) -> str:
    """Still under way when its group is cancelled; it ends well."""
    return await ask(book, "reserve", why, LATE)


@outlive.effect(check=found, **{**LIMITS, "timeout": "120ms"})
async def hold(book: str, why: str) -> str:
    """Still under way when its group is cancelled; it hangs until its limit."""
    return await ask(book, "hold", why, HANGS_AFTER)


@outlive.effect(raises=(ReplyLost,), **LIMITS)
async def letter(book: str, why: str) -> str:
    """Neither key nor check; the human tells the truth."""
    return await ask(book, "letter", why, BREAKS_AFTER)


@outlive.effect(**{**LIMITS, "timeout": "100ms"})
async def bell(book: str, why: str) -> str:
    """Neither key nor check; the human shrugs."""
    return await ask(book, "bell", why, HANGS_AFTER)


@outlive.effect(doubt="fail", **LIMITS)
async def wire(book: str, why: str) -> str:
    """Neither key nor check; the flow is told."""
    return await ask(book, "wire", why, BREAKS_AFTER)


# ---------------------------------------------------------------- the flow


def naive(effect: outlive.Effect[..., str]) -> outlive.Step[..., str]:
    """The same body as those would write it who have only steps that are run again."""
    rules = effect.definition
    return outlive.step(
        rules.fn,
        name=rules.name,
        retry=rules.retry,
        timeout=rules.timeout_seconds,
        ignore=rules.ignore,
        raises=rules.raises,
    )


EFFECTS = (
    *(refund, charge, order_late, order_hanging, order_refused, mail, subscribe),
    *(report, reserve, hold, letter, bell, wire),
)


class Tools:
    """What the agent can do to the world: by effects, or by the naive twin's plain steps."""

    def __init__(self, style: str, book: str) -> None:
        self._book = book
        self._tools: dict[str, Callable[..., Awaitable[str]]] = {
            each.definition.name: each if style == "durable" else naive(each) for each in EFFECTS
        }

    def __call__(self, name: str, *args: str) -> Awaitable[str]:
        return self._tools[name](self._book, *args)


@outlive.flow
async def reference(order: str, book: str, style: str) -> dict[str, list[str]]:
    async with outlive.stream("log") as log:
        log.put("begun")
        return await _reference(order, Tools(style, book), log)


async def _reference(order: str, use: Tools, log: Any) -> dict[str, list[str]]:
    seen: list[str] = []
    plan = await think(f"plan {order}")
    log.put("planned")
    await outlive.publish(stage="planned")
    seen.append(plan)
    parts = await asyncio.gather(
        shop(use, plan), post(use, order, plan), race(seen), relay(use, seen), groups(use, plan)
    )
    await outlive.sleep("40ms")
    told = await asyncio.gather(*(tell(use, plan, name) for name in ("letter", "bell", "wire")))
    last = await think("farewell")
    log.put("done")
    await outlive.publish(stage="done")
    seen.append(last)
    done = await use("report", f"{last} {plan}")
    outcomes = [each for part in parts for each in part]
    return {"seen": seen, "done": [*outcomes, *told, done], "last": [last]}


@outlive.flow
async def neighbour(order: str, book: str, style: str) -> str:
    """Another run that wants something under the same key."""
    await think("neighbour")
    return await Tools(style, book)("subscribe", order)


async def shop(use: Tools, plan: str) -> list[str]:
    """Effects with a check, one after the other and side by side."""
    prices = await look_up("prices")
    first = await use("refund", f"{plan} {prices}")
    rest = await asyncio.gather(
        use("charge", prices),
        use("order_late", plan),
        use("order_hanging", plan),
        use("order_refused", plan),
    )
    return [first, *rest]


async def post(use: Tools, order: str, plan: str) -> list[str]:
    """Keys of the user's own: the same again is the same; other arguments are refused."""
    tried = await flaky("address")
    same: list[str] = []
    same += await asyncio.gather(
        use("mail", order, tried), use("mail", order, tried), use("subscribe", order)
    )
    try:
        await use("mail", order, plan)
    except KeyTaken:
        same.append("taken")
    return same


async def race(seen: list[str]) -> list[str]:
    """The first of two searches wins; a slow one is cut off by a time limit."""
    runners = [asyncio.create_task(search(f"racer {n}", 0.02 * n)) for n in (3, 1, 2)]
    done, late = await asyncio.wait(runners, return_when=asyncio.FIRST_COMPLETED)
    seen += [task.result() for task in runners if task in done]
    for task in late:
        task.cancel()
    try:
        await asyncio.wait_for(search("sloth", 1.5), 0.05)
    except TimeoutError:
        await asyncio.sleep(0.01)
    return [await think("after the race")]


async def relay(use: Tools, seen: list[str]) -> list[str]:
    """Two branches and a queue between them; what one finds the other reports."""
    queue: asyncio.Queue[str | None] = asyncio.Queue()

    async def produce(name: str, seconds: float) -> None:
        for number in range(2):
            nonce = await search(f"{name} {number}", seconds)
            seen.append(nonce)
            await queue.put(nonce)
        await queue.put(None)

    async def hand_on() -> list[str]:
        sent: list[str] = []
        ends = 0
        while ends < 2:
            nonce = await queue.get()
            if nonce is None:
                ends += 1
            else:
                sent.append(await use("report", nonce))
        return sent

    _, _, sent = await asyncio.gather(produce("left", 0.015), produce("right", 0.02), hand_on())
    return sent


async def groups(use: Tools, plan: str) -> list[str]:
    """A group that fails while effects of it are under way."""

    async def do(name: str) -> None:
        await use(name, plan)

    failed: list[str] = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(do("reserve"))
            group.create_task(do("hold"))
            group.create_task(hopeless("needle"))
    except* LookupError:
        failed.append(await think("after the group"))
    return failed or ["the group did not fail"]


async def tell(use: Tools, plan: str, name: str) -> str:
    """Effects with neither key nor check, and whatever becomes of them."""
    try:
        return await use(name, plan)
    except (InDoubt, ReplyLost, TimeoutError, StepFailed) as error:
        return f"{name}: {type(error).__name__}"
