"""Flows for tests with real processes, and the receiver that their effects call.

A process that is told to (``stop_at``) stops itself with SIGSTOP at one of four places of the flow
``paying``, once: that makes it a zombie as soon as somebody else takes its run over.

The receiver keeps what it promises: it refuses a request that is older than its time limit, so a
request that a zombie sends after its pause does nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import outlive
from outlive.testing.audit.auditor import Policy, Receipt, fresh_nonce, nonces_in
from outlive.testing.ledger import Ledger, ReceiverRefused

Position = Literal["before intent", "after intent", "before effect", "after effect"]
POSITIONS: tuple[Position, ...] = (
    "before intent",
    "after intent",
    "before effect",
    "after effect",
)

TIMEOUT_SECONDS = 4.0
SETTLE_SECONDS = 0.3
#: A request that is older than this is refused by the receiver. Less than the time limit, which
#: counts from the intent: a body begins when its intent is durable, and can't know how late.
REQUEST_SECONDS = 2.5
#: For an effect that waits for the test: that must be quicker.
WIRE_SECONDS = 12.0

ONCE = (
    "pay_keyed",
    "pay_checked",
    "pay_slowly",
    "pay_in_thread",
    "pay_rudely",
    "wire_keyed",
    "wire_checked",
)
POLICIES: dict[str, Policy] = {**dict.fromkeys(ONCE, "once"), "pay_blindly": "at_most_once"}


@dataclass(slots=True)
class Process:
    """What this process was told at its birth."""

    folder: Path = Path()
    stop_at: Position | None = None

    def ledger(self, run_id: str | None = None) -> Ledger:
        """The receiver's book of one run (default: the one that calls); few lines each."""
        path = self.folder / f"{run_id or outlive.run_id()}.ledger"
        return Ledger(path, settle_seconds=SETTLE_SECONDS)

    def pass_by(self, position: Position) -> None:
        """Stop here, if this is the place; once."""
        if self.stop_at == position:
            self.stop_at = None
            os.kill(os.getpid(), signal.SIGSTOP)

    def failpoint(self, moment: str) -> None:
        if moment == "effect.before":
            self.pass_by("after intent")


#: A child of the forkserver is told by its play, one that the command line runs by a variable.
me = Process(Path(os.environ.get("CAST_FOLDER", ".")))


def request(effect: str, note: str) -> Receipt:
    return Receipt(
        run_id=outlive.run_id(), effect=effect, key=outlive.key(), nonces=nonces_in(note)
    )


async def send(effect: str, note: str, *, honours_key: bool) -> str:
    """Ask the receiver for something; it refuses what is too old."""
    sent_at = time.monotonic()
    me.pass_by("before effect")
    if time.monotonic() > sent_at + REQUEST_SECONDS:
        raise ReceiverRefused("this request is too old")
    done = me.ledger().enter(request(effect, note), honours_key=honours_key)
    me.pass_by("after effect")
    return done.key


def find(key: str) -> object:
    done = me.ledger().find(key)
    return outlive.NOT_HAPPENED if done is None else done.key


LIMITS = {"timeout": TIMEOUT_SECONDS, "settle_after": SETTLE_SECONDS}


@outlive.effect(doubt="retry", **LIMITS)
async def pay_keyed(note: str) -> str:
    return await send("pay_keyed", note, honours_key=True)


@outlive.effect(check=find, **LIMITS)
async def pay_checked(note: str) -> str:
    return await send("pay_checked", note, honours_key=False)


@outlive.effect(**LIMITS)
async def pay_blindly(note: str) -> str:
    return await send("pay_blindly", note, honours_key=False)


EFFECTS = {"keyed": pay_keyed, "checked": pay_checked, "blind": pay_blindly}


@outlive.step
async def think(number: int) -> str:
    return f"{number} {fresh_nonce(os.urandom)}"


@outlive.step
async def linger(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return fresh_nonce(os.urandom)


@outlive.flow
async def paying(kind: str) -> list[str]:
    """A step, an effect of that kind, and a step behind it."""
    note = await think(1)
    me.pass_by("before intent")
    paid = await EFFECTS[kind](note)
    return [note, paid, await think(2)]


# ---------------------------------------------------------------- longer than the lease


@outlive.effect(check=find, timeout=30.0, settle_after=SETTLE_SECONDS)
async def pay_slowly(note: str, seconds: float) -> str:
    """Takes its time, politely."""
    await asyncio.sleep(seconds)
    return me.ledger().enter(request("pay_slowly", note)).key


@outlive.effect(check=find, timeout=30.0, settle_after=SETTLE_SECONDS)
def pay_in_thread(note: str, seconds: float) -> str:
    """Takes its time in a thread."""
    time.sleep(seconds)
    return me.ledger().enter(request("pay_in_thread", note)).key


@outlive.effect(check=find, timeout=30.0, settle_after=SETTLE_SECONDS)
async def pay_rudely(note: str, seconds: float) -> str:
    """Takes its time and blocks the loop that it runs on."""
    time.sleep(seconds)
    return me.ledger().enter(request("pay_rudely", note)).key


@outlive.flow
async def patient(effect: str, seconds: float) -> list[str]:
    """An effect that is longer than a lease."""
    note = await think(1)
    pay = {"slowly": pay_slowly, "in_thread": pay_in_thread, "rudely": pay_rudely}[effect]
    return [note, await pay(note, seconds)]


@outlive.flow
async def rude(seconds: float) -> list[str]:
    """Blocks its loop in flow code, between a step and an effect."""
    note = await think(1)
    time.sleep(seconds)
    return [note, await pay_checked(note)]


@outlive.flow
async def busy(turns: int) -> int:
    """Many small steps and effects."""
    for turn in range(turns):
        await pay_checked(await think(turn))
        await linger(0.05)
    return turns


@outlive.flow
async def napping(kind: str) -> list[str]:
    """Leaves memory twice: whoever is quickest wakes it."""
    note = await think(1)
    await outlive.sleep(0.03)
    paid = await EFFECTS[kind](note)
    await outlive.sleep(0.03)
    return [note, paid, await think(2)]


# ---------------------------------------------------------------- in flight until told


def may_go() -> bool:
    """The test made the file that everybody waits for."""
    return (me.folder / "go").exists()


@outlive.step
async def tick() -> bool:
    """A little while; whether it is enough."""
    await asyncio.sleep(0.1)
    return may_go()


@outlive.flow
async def ticking(number: int) -> list[str]:
    """In flight, with an outcome every 100 ms, until the test lets it go on."""
    note = await think(number)
    while not await tick():
        pass
    return [note, await pay_checked(note)]


@outlive.step
async def gate() -> bool:
    while not may_go():
        await asyncio.sleep(0.02)
    return True


@outlive.flow
async def holding(number: int) -> list[str]:
    """One step is done, the next waits for the test."""
    note = await think(number)
    await gate()
    return [note, await pay_checked(note)]


@outlive.effect(doubt="retry", timeout=WIRE_SECONDS, settle_after=SETTLE_SECONDS)
async def wire_keyed(note: str) -> str:
    return await wire("wire_keyed", note, honours_key=True)


@outlive.effect(check=find, timeout=WIRE_SECONDS, settle_after=SETTLE_SECONDS)
async def wire_checked(note: str) -> str:
    return await wire("wire_checked", note, honours_key=False)


async def wire(effect: str, note: str, *, honours_key: bool) -> str:
    """Begins, and ends when the test says so."""
    (me.folder / f"wiring-{os.getpid()}-{outlive.run_id()}").touch()
    while not may_go():
        await asyncio.sleep(0.02)
    return me.ledger().enter(request(effect, note), honours_key=honours_key).key


@outlive.flow
async def wiring(kind: str) -> list[str]:
    """An effect that is under way until the test lets it end."""
    note = await think(1)
    paid = await (wire_keyed if kind == "keyed" else wire_checked)(note)
    return [note, paid, await think(2)]


# ---------------------------------------------------------------- poison


@outlive.flow
async def poison() -> str:
    """Kills whoever drives it, until it is cured."""
    if not (me.folder / "cure").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return "cured"


# ---------------------------------------------------------------- much to write


@outlive.step
async def ramble(kilobytes: int) -> str:
    return os.urandom(kilobytes * 512).hex()


@outlive.flow
async def talkative(turns: int, kilobytes: int) -> int:
    """Steps whose outcomes fill a disk."""
    for turn in range(turns):
        await ramble(kilobytes)
        await pay_checked(await think(turn))
    return turns


# ---------------------------------------------------------------- in a storm


@outlive.step
async def look() -> bool:
    """Whether the storm is over."""
    await asyncio.sleep(0.02)
    return may_go()


@outlive.flow
async def stormy(kind: str) -> list[str]:
    """Branches, an effect and a sleep, again and again until the storm is over."""
    paid: list[str] = []
    while True:
        note, is_over = await asyncio.gather(think(len(paid)), look())
        paid.append(await EFFECTS[kind](note))
        if is_over:
            return paid
        await outlive.sleep(0.05)
