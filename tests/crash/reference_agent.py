"""The reference agent: every kind of step, effect, branch and wait, in one short run.

Each plain step returns a fresh nonce; each effect is given nonces of steps before it and leaves a
receipt in the ledger. The receiver answers, refuses, breaks, hangs and is late, as the effect's
name says. A human settles what only a human can: truthfully for letters, with a shrug for bells.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence

import outlive
from outlive import Retry
from outlive.errors import InDoubt, KeyTaken, StepNotInDoubt
from outlive.model.events import EffectDone, EffectIntended
from outlive.testing.auditor import Policy, Receipt, audit_order, fresh_nonce, nonces_in
from outlive.testing.crash_child import Stage
from outlive.testing.crash_evidence import Evidence
from outlive.testing.ledger import (
    ANSWERS,
    BREAKS_AFTER,
    BREAKS_BEFORE,
    HANGS_AFTER,
    HANGS_BEFORE,
    REFUSES,
    Ledger,
    Manner,
    Refused,
    ReplyLost,
)

RUN_ID = "reference"
LATE = Manner(delay_seconds=0.08)
LATE_AND_BROKEN = Manner(delay_seconds=0.08, then="break")
LIMITS = {"timeout": "300ms", "settle_after": "150ms", "ignore": ("book",)}
SETTLE_SECONDS = 0.15
AGAIN = Retry(attempts=3, delay="20ms", factor=1.0, jitter=False)

POLICIES: dict[str, Policy] = {
    "refund": "once",
    "charge": "once",
    "order_late": "once",
    "order_hanging": "once",
    "order_refused": "once",
    "mail": "once",
    "report": "once",
    "reserve": "once",
    "hold": "once",
    "letter": "at_most_once",
    "bell": "at_most_once",
    "wire": "at_most_once",
}


def ledger(book: str) -> Ledger:
    return Ledger(book, settle_seconds=SETTLE_SECONDS)


async def ask(book: str, name: str, args: object, manner: Manner, *, honours: bool = False) -> str:
    """Have the receiver do something under this effect's key."""
    text = repr(args)
    request = Receipt(
        run_id=outlive.run_id(), effect=name, key=outlive.key(), args=text, nonces=nonces_in(text)
    )
    done = await ledger(book).perform(request, manner, honours_key=honours)
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


@outlive.step(timeout="2s")
async def search(topic: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return fresh_nonce(os.urandom)


@outlive.step(retry=AGAIN)
async def flaky(topic: str) -> str:
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
    text = repr(why)
    key = outlive.key()
    receipt = Receipt(
        run_id=outlive.run_id(), effect="charge", key=key, args=text, nonces=nonces_in(text)
    )
    ledger(book).enter(receipt)
    time.sleep(0.01)
    return f"charge {key}"


@outlive.effect(check=found, retry=AGAIN, **LIMITS)
async def order_late(book: str, why: str) -> str:
    manners = (BREAKS_BEFORE, LATE_AND_BROKEN, ANSWERS)
    return await ask(book, "order_late", why, manners[outlive.attempt() - 1])


@outlive.effect(check=found, retry=AGAIN, **{**LIMITS, "timeout": "120ms"})
async def order_hanging(book: str, why: str) -> str:
    manners = (HANGS_BEFORE, HANGS_AFTER, ANSWERS)
    return await ask(book, "order_hanging", why, manners[outlive.attempt() - 1])


@outlive.effect(not_happened=(Refused,), check=found, retry=AGAIN, **LIMITS)
async def order_refused(book: str, why: str) -> str:
    if outlive.attempt() == 2:
        raise outlive.NotHappened("the shop is closed")
    manner = REFUSES if outlive.attempt() == 1 else ANSWERS
    return await ask(book, "order_refused", why, manner)


@outlive.effect(key="mail:{order}", doubt="retry", retry=AGAIN, **LIMITS)
async def mail(book: str, order: str, why: str) -> str:
    manner = BREAKS_AFTER if outlive.attempt() == 1 else ANSWERS
    return await ask(book, "mail", why, manner, honours=True)


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


@outlive.flow
async def reference(order: str, book: str) -> dict[str, list[str]]:
    seen: list[str] = []
    plan = await think(f"plan {order}")
    seen.append(plan)
    parts = await asyncio.gather(
        shop(book, plan), post(book, order, plan), race(seen), relay(book, seen), groups(book, plan)
    )
    await outlive.sleep("40ms")
    told = await asyncio.gather(*(tell(book, plan, name) for name in ("letter", "bell", "wire")))
    last = await think("farewell")
    seen.append(last)
    done = await report(book, f"{last} {plan}")
    outcomes = [each for part in parts for each in part]
    return {"seen": seen, "done": [*outcomes, *told, done], "last": [last]}


async def shop(book: str, plan: str) -> list[str]:
    """Effects with a check, one after the other and side by side."""
    found_first = await look_up("prices")
    first = await refund(book, f"{plan} {found_first}")
    rest = await asyncio.gather(
        charge(book, found_first),
        order_late(book, plan),
        order_hanging(book, plan),
        order_refused(book, plan),
    )
    return [first, *rest]


async def post(book: str, order: str, plan: str) -> list[str]:
    """A key of the user's own: the same again is the same; other arguments are refused."""
    tried = await flaky("address")
    same = await asyncio.gather(
        mail(book, order, tried), mail(book, order, tried), return_exceptions=True
    )
    try:
        await mail(book, order, plan)
    except KeyTaken:
        same.append("taken")
    return [str(each) for each in same]


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


async def relay(book: str, seen: list[str]) -> list[str]:
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
                sent.append(await report(book, nonce))
        return sent

    _, _, sent = await asyncio.gather(produce("left", 0.015), produce("right", 0.02), hand_on())
    return sent


async def groups(book: str, plan: str) -> list[str]:
    """A group that fails while effects of it are under way."""
    failed: list[str] = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(reserve(book, plan))
            group.create_task(hold(book, plan))
            group.create_task(hopeless("needle"))
    except* LookupError:
        failed.append(await think("after the group"))
    return failed or ["the group did not fail"]


async def tell(book: str, plan: str, name: str) -> str:
    """Effects with neither key nor check, and whatever becomes of them."""
    effects = {"letter": letter, "bell": bell, "wire": wire}
    try:
        return await effects[name](book, plan)
    except (InDoubt, ReplyLost, TimeoutError, outlive.errors.StepFailed) as error:
        return f"{name}: {type(error).__name__}"


# ---------------------------------------------------------------- the scene


async def scene(stage: Stage) -> None:
    """Start the run or go on with it, with a human beside it."""
    book = str(stage.folder / "ledger.jsonl")
    handle = await stage.app.start(reference, "7", book, id=RUN_ID)
    human = asyncio.create_task(be_human(stage, ledger(book)))
    try:
        await handle.outcome()
    finally:
        human.cancel()


async def be_human(stage: Stage, book: Ledger) -> None:
    """Look now and then whether the run asks, and answer what it asks."""
    handle = await stage.app.get(RUN_ID)
    while True:
        await asyncio.sleep(0.05)
        for step, effect in (await handle.run()).effects.items():
            if effect.asks:
                await answer(stage, book, step, effect.intent.key)


async def answer(stage: Stage, book: Ledger, step: str, key: str) -> None:
    await asyncio.sleep(SETTLE_SECONDS)
    try:
        if "bell" in step:
            await stage.app.resolve(RUN_ID, step, "fail")
        elif (done := book.find(key)) is not None:
            value = f'"{done.effect} {done.key}"'.encode()
            await stage.app.resolve(RUN_ID, step, "happened", value)
        else:
            await stage.app.resolve(RUN_ID, step, "not_happened")
    except StepNotInDoubt:
        pass  # somebody, perhaps an earlier self, was faster


# ---------------------------------------------------------------- what must hold beyond the audit


def check_outcome(evidence: Evidence) -> Sequence[str]:
    """The run ended well, saw its branches in the journal's order, and each effect came off."""
    events = evidence.journals[RUN_ID]
    value = reference.value_codec.decode(getattr(events[-1], "value", b"\xc0"))
    if not isinstance(value, dict):
        return [f"the run ended with {events[-1]!r}"]
    broken = audit_order(events, value["seen"])
    intended = {event.key for event in events if isinstance(event, EffectIntended)}
    done = {event.step for event in events if isinstance(event, EffectDone)}
    if len(intended) < 14 or len(done) < 12:
        broken.append(f"only {len(intended)} effects were intended and {len(done)} done")
    return broken
