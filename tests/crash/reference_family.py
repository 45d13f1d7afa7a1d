"""The reference agent's other half: people, other runs, ending badly, chapters.

Runs that complete, fail and are undone, are cancelled, are overdue, go through chapters; most have
children. ``family_scene.py`` is also the people outside: they send signals and requests, answer
questions, cancel. Whatever they post has an id, so that posting it again is harmless.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import outlive
from outlive.errors import RunFailed, TimedOut
from outlive.testing.audit.auditor import Policy, Receipt
from outlive.testing.ledger import ANSWERS, BREAKS_AFTER, Ledger

SETTLE_SECONDS = 0.05
#: Where a death is certain this does not matter; elsewhere a doubt is settled only after it.
TIMEOUT = os.environ.get("REFERENCE_TIMEOUT", "30s")
LIMITS: dict[str, Any] = {"timeout": TIMEOUT, "settle_after": SETTLE_SECONDS}
POLICIES: dict[str, Policy] = {
    "pay": "once",
    "unpay": "once",
    "hire": "once",
    "dismiss": "once",
    "post_letter": "once",
}
UNDOABLE = frozenset({"pay", "hire"})


def ledger(book: str) -> Ledger:
    return Ledger(book, settle_seconds=SETTLE_SECONDS)


def receipt(name: str, text: str) -> Receipt:
    return Receipt(run_id=outlive.run_id(), effect=name, key=outlive.key(), args=text)


def found(book: str, key: str) -> object:
    done = ledger(book).find(key)
    return outlive.NOT_HAPPENED if done is None else done.args


# ---------------------------------------------------------------- effects


async def unpay(book: str, name: str, outcome: str) -> None:
    """Harmless to repeat: the receiver honours the key."""
    ledger(book).enter(receipt("unpay", f"{name} {outcome}"), honours_key=True)


@outlive.effect(check=found, undo=unpay, **LIMITS)
async def pay(book: str, name: str) -> str:
    await asyncio.sleep(0.002)
    return ledger(book).enter(receipt("pay", name)).args


@outlive.effect(check=found, retry=outlive.Retry(attempts=3, delay="5ms"), **LIMITS)
async def dismiss(book: str, name: str) -> str:
    """An undo with a doubt of its own."""
    manner = BREAKS_AFTER if outlive.attempt() == 1 else ANSWERS
    return (await ledger(book).perform(receipt("dismiss", name), manner)).args


@outlive.effect(doubt="retry", undo=dismiss, retry=outlive.Retry(attempts=3, delay="5ms"), **LIMITS)
async def hire(book: str, name: str) -> str:
    """In doubt at the first attempt, which happened; the receiver honours the key."""
    manner = BREAKS_AFTER if outlive.attempt() == 1 else ANSWERS
    return (await ledger(book).perform(receipt("hire", name), manner, honours_key=True)).args


@outlive.effect(check=found, key="letter:{name}", **LIMITS)
async def post_letter(book: str, name: str) -> str:
    return ledger(book).enter(receipt("post_letter", name)).args


@outlive.step
async def think(text: str) -> str:
    await asyncio.sleep(0.001)
    return text.upper()


# ---------------------------------------------------------------- children


@outlive.flow
async def helper(book: str, name: str) -> str:
    await outlive.sleep(0.02)
    if name.startswith("bad"):
        raise ValueError(name)
    return await pay(book, name)


@outlive.flow
async def endless(book: str, name: str) -> None:
    await pay(book, name)
    await outlive.wait_signal("never")


@outlive.flow
async def listed(item: tuple[str, str]) -> str:
    return await helper.fn(*item)  # type: ignore[no-any-return]


@outlive.step
async def double(number: int) -> int:
    if number == 2:
        raise ValueError("two")
    return number * 2


# ---------------------------------------------------------------- the run that completes


async def talk(book: str) -> list[str]:
    """Signals, a question, an approval, requests."""
    both = await asyncio.gather(outlive.wait_signal("s", int), outlive.wait_signal("s", int))
    seen = [str(each) for each in both]
    seen.append(str(await outlive.ask("How many?", type=int, within="1h")))
    approval = await outlive.approve(post_letter, book, "invitation", within="1h")
    if approval.granted:
        seen.append(await post_letter(book, "invitation"))
    async for request in outlive.requests("message", type=str):
        await request.reply(await think(request.value))
        if request.value == "bye":
            break
    try:
        await outlive.ask("Too late?", within="30ms")
    except TimedOut:
        seen.append("too late")
    return seen


async def have_children(book: str) -> list[str]:
    """Called, failing, spawned, many, and one that is given up."""
    seen = [str(await outlive.call(helper, book, "first"))]
    try:
        await outlive.call(helper, book, "bad one")
    except RunFailed as error:
        seen.append(error.type_name)
    await outlive.spawn(helper, book, "spawned")
    names = [(book, name) for name in ("x", "bad y", "z")]
    seen += [str(each.ok) for each in await outlive.map(listed, names, limit=2)]
    seen += [str(each.value) for each in await outlive.map(double, [1, 2, 3])]
    try:
        async with outlive.timeout(0.2):
            await outlive.call(endless, book, "given up")
    except TimedOut:
        seen.append("given up")
    return seen


@outlive.flow
async def everything(book: str) -> list[str]:
    talked, had = await asyncio.gather(talk(book), have_children(book))
    return [*talked, *had, "new" if outlive.patched("the way it ends") else "old"]


# ---------------------------------------------------------------- runs that end badly


@outlive.flow
async def undone(book: str) -> None:
    await asyncio.gather(pay(book, "a"), hire(book, "b"))
    await outlive.sleep(0.03)
    await pay(book, "c")
    raise ValueError("no good")


@outlive.flow
async def cancelled(book: str) -> None:
    await pay(book, "d")
    await asyncio.gather(outlive.call(endless, book, "e"), outlive.ask("Go on?"))


@outlive.flow(deadline=0.4)
async def overdue(book: str) -> None:
    await pay(book, "f")
    await outlive.call(endless, book, "g")


@outlive.flow
async def chat(book: str, number: int, heard: list[str]) -> None:
    """Two messages a chapter; the third chapter ends badly, and all of them are undone."""
    async for request in outlive.requests("line", type=str):
        heard = [*heard, request.value]
        await request.reply(f"{number} {request.value}")
        if len(heard) == 2 * number:
            break
    await pay(book, f"chapter {number}")
    if number < 3:
        await outlive.carry(book, number + 1, heard)
    raise ValueError(" ".join(heard))


@outlive.step(raises=(FileNotFoundError,))
async def look_up(book: str) -> str:
    """Fails until somebody has seen to it."""
    return Path(book).with_name(MENDED).read_text()


@outlive.flow
async def second_try(book: str) -> list[str]:
    """Fails once; what it did before is not done again."""
    return [await post_letter(book, "greeting"), await look_up(book), await post_letter(book, "x")]


#: The file that is missing at first.
MENDED = "mended.txt"
LINES = tuple("uvwxyz")
ROOTS: dict[str, tuple[outlive.Flow[Any, Any], tuple[Any, ...]]] = {
    "everything": (everything, ()),
    "undone": (undone, ()),
    "cancelled": (cancelled, ()),
    "overdue": (overdue, ()),
    "chat": (chat, (1, [])),
    "second": (second_try, ()),
}
FLOWS = [*(flow for flow, _ in ROOTS.values()), helper, endless, listed]
OUTCOME = [
    *("0", "1", "3", "invitation", "too late"),
    *("first", "ValueError", "True", "False", "True", "2", "None", "6", "given up", "new"),
]
ENDS = {
    "everything": "completed",
    "undone": "failed",
    "cancelled": "cancelled",
    "overdue": "failed",
    "chat": "failed",
    "second": "completed",
}
#: Two children may come behind their parent's time limit, and never begin.
RUNS = range(13, 16)
