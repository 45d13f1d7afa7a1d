"""What simulated flows ask of others: people, other programs, other runs, and the way back.

These are the nodes of a program that wait for mail or for children, and the effects that can be
undone. What a flow heard is part of its outcome (``Story.heard``), so that the judge can tell
whether every signal reached it, once and in order.
"""

from __future__ import annotations

from typing import Any, Protocol

import outlive
from outlive.engine import people
from outlive.engine import verbs as fanout
from outlive.testing.simulation.world import (
    LIMIT_SECONDS,
    SETTLE_SECONDS,
    BankError,
    BankRefused,
    BankRequest,
    current_world,
)

#: Names that signals and requests go by.
SIGNALS, MESSAGE = ("s", "t"), "m"

_RULES: dict[str, Any] = {
    "not_happened": (BankRefused,),
    "raises": (BankError,),
    "timeout": LIMIT_SECONDS,
    "settle_after": SETTLE_SECONDS,
}
_RETRY = outlive.Retry(attempts=3, delay="200ms", factor=2)


class Heard(Protocol):
    """What a story remembers of others."""

    #: Nonces, newest last.
    seen: list[str]
    #: Name and value of every signal and message, in the order of their coming.
    heard: list[list[str]]

    async def tell(self, node: list[Any]) -> Any:
        """Carry out one node."""
        ...


# ---------------------------------------------------------------- effects that can be undone


async def find_payment(key: str) -> Any:
    """Ask the bank by key."""
    return await current_world().find(key)


def _request(effect: str, order: str, note: str, *, honours_key: bool = False) -> BankRequest:
    return BankRequest(
        run_id=outlive.run_id(),
        effect=effect,
        key=outlive.key(),
        order=order,
        note=note,
        honours_key=honours_key,
    )


async def give_back(order: str, key: str, outcome: dict[str, str]) -> None:
    """A plain function: the engine repeats it under its own key, which the bank honours."""
    current_world().check_paid(key, outcome)
    await current_world().pay(_request("give_back", order, "", honours_key=True), dawdles=False)


@outlive.effect(check=find_payment, retry=outlive.Retry(attempts=20, delay="200ms"), **_RULES)
async def call_off(order: str) -> dict[str, str]:
    """An undo that is an effect of its own: the bank can be asked whether it happened."""
    return await current_world().pay(_request("call_off", order, ""), dawdles=False)


@outlive.effect(check=find_payment, undo=give_back, retry=_RETRY, **_RULES)
async def rent(order: str, note: str) -> dict[str, str]:
    """Can be asked about and given back."""
    return await current_world().pay(_request("rent", order, note), dawdles=False)


@outlive.effect(doubt="retry", undo=call_off, retry=_RETRY, **_RULES)
async def hire(order: str, note: str) -> dict[str, str]:
    """The bank honours the key; can be called off."""
    request = _request("hire", order, note, honours_key=True)
    return await current_world().pay(request, dawdles=True)


@outlive.effect(undo=give_back, retry=_RETRY, **_RULES)
async def borrow(order: str, note: str) -> dict[str, str]:
    """Only a human can tell whether it happened; can be given back."""
    return await current_world().pay(_request("borrow", order, note), dawdles=True)


@outlive.effect(check=find_payment, retry=_RETRY, **_RULES)
async def pay_one(item: list[str]) -> dict[str, str]:
    """One of many."""
    order, note = item
    return await current_world().pay(_request("pay_one", order, note), dawdles=False)


UNDONE = (rent, hire, borrow)

# ---------------------------------------------------------------- people and programs


async def signal(story: Heard, name: str, within: float | None) -> str:
    """The next signal of a name."""
    said: str = await people.wait_signal(name, str, within)
    story.heard.append([name, said])
    return said


async def ask(story: Heard, text: str, within: float | None) -> str:
    """A human's answer."""
    said: str = await people.ask(text, type=str, within=within)
    return said


async def approve(story: Heard, order: str, within: float | None) -> Any:
    """A human's word on one effect with these arguments, and then that effect."""
    note = story.seen[-1] if story.seen else "nothing yet"
    approval = await people.approve(rent, order, note, within=within)
    if not approval.granted:
        return ["refused", approval.by]
    paid = await rent(order, note)
    story.seen.append(paid["nonce"])
    return [approval.by, paid]


async def requests(story: Heard, count: int, idle: float | None, node: list[Any]) -> list[str]:
    """Messages, each replied to after some work, until so many came or none for a while."""
    told: list[str] = []
    async for request in people.requests(MESSAGE, type=str, idle=idle):
        story.heard.append([MESSAGE, request.value])
        await story.tell(node)
        await request.reply(f"you said {request.value}")
        told.append(request.value)
        if len(told) == count:
            break
    return told


async def limit(story: Heard, seconds: float, node: list[Any]) -> Any:
    """A time limit that survives restarts."""
    try:
        async with people.timeout(seconds):
            return await story.tell(node)
    except outlive.errors.TimedOut:
        return "timed out"


# ---------------------------------------------------------------- many at once


async def map_effects(story: Heard, orders: list[str], room: int) -> list[Any]:
    """An effect per order, some at a time."""
    note = story.seen[-1] if story.seen else "nothing yet"
    return outcomes(await fanout.map(pay_one, [[order, note] for order in orders], limit=room))


def outcomes(told: list[fanout.Outcome[Any]]) -> list[Any]:
    """What became of each, as something that a journal takes."""
    return [each.value if each.ok else type(each.error).__name__ for each in told]
