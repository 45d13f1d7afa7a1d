"""Flows for workers that are restarted, as two versions of one program would have them.

Which version a process runs is said by its environment, as a deployment does.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from pathlib import Path
from typing import Any

import outlive
from outlive.testing.audit.auditor import Policy, Receipt, fresh_nonce, nonces_in
from outlive.testing.ledger import Ledger

VERSION = os.environ.get("DEPLOY_VERSION", "1")
ACCEPTS = tuple(filter(None, os.environ.get("DEPLOY_ACCEPTS", "").split(",")))
FOLDER = Path(os.environ.get("DEPLOY_FOLDER", "."))

TURNS = 6
SETTLE_SECONDS = 0.3
POLICIES: dict[str, Policy] = dict.fromkeys(("pay", "pay_long", "pay_in_thread"), "once")


def ledger(run_id: str) -> Ledger:
    return Ledger(FOLDER / f"{run_id}.ledger", settle_seconds=SETTLE_SECONDS)


def tally(what: str) -> None:
    """Note that a body was begun: repeats can be counted."""
    line = f"{outlive.run_id()} {what}\n".encode()
    file = os.open(FOLDER / "bodies", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, line)
    os.close(file)


def enter(effect: str, note: str) -> str:
    receipt = Receipt(
        run_id=outlive.run_id(), effect=effect, key=outlive.key(), nonces=nonces_in(note)
    )
    return ledger(outlive.run_id()).enter(receipt).key


def find(key: str) -> object:
    done = ledger(outlive.run_id()).find(key)
    return outlive.NOT_HAPPENED if done is None else done.key


@outlive.step
async def think(turn: int) -> str:
    tally(f"think {turn}")
    await asyncio.sleep(0.05)
    return f"{turn} {fresh_nonce(os.urandom)}"


@outlive.effect(key="pay/{order}/{turn}", check=find, timeout=20, settle_after=SETTLE_SECONDS)
async def pay(order: int, turn: int, note: str) -> str:
    await asyncio.sleep(0.02)
    return enter("pay", note)


async def _order(number: int) -> list[str]:
    """Steps side by side, keyed effects, short sleeps; what is new comes behind all else."""
    paid = []
    for turn in range(TURNS):
        notes = await asyncio.gather(think(turn), think(turn + 100))
        paid.append(await pay(number, turn, " ".join(notes)))
        await outlive.sleep(0.2)
    if VERSION == "2":
        paid.append(await think(1000))
    return paid


def order_of(version: str, accepts: tuple[str, ...] = ()) -> outlive.Flow[Any, Any]:
    """The flow as this version of the program has it."""
    made: outlive.Flow[Any, Any] = outlive.flow(name="order", version=version, accepts=accepts)(
        _order
    )
    return made


order = order_of(VERSION, ACCEPTS)


# ---------------------------------------------------------------- long ones


def may_go() -> bool:
    return (FOLDER / "go").exists()


@outlive.step
async def linger(seconds: float) -> str:
    tally("linger")
    until = time.monotonic() + seconds
    while time.monotonic() < until and not may_go():
        await asyncio.sleep(0.02)
    return fresh_nonce(os.urandom)


@outlive.flow
async def lingering(seconds: float) -> list[str]:
    """A long step, and another behind it."""
    note = await linger(seconds)
    return [note, await think(1)]


@outlive.flow
async def ticking() -> int:
    """One short step after the other until the test lets it go."""
    turn = 0
    while not may_go():
        await think(turn)
        turn += 1
    return turn


@outlive.effect(check=find, timeout=30, settle_after=SETTLE_SECONDS)
async def pay_long(note: str) -> str:
    tally("pay_long")
    while not may_go():
        await asyncio.sleep(0.02)
    return enter("pay_long", note)


@outlive.effect(timeout=30, settle_after=SETTLE_SECONDS)
async def pay_blindly(note: str) -> str:
    tally("pay_blindly")
    while not may_go():
        await asyncio.sleep(0.02)
    return enter("pay_blindly", note)


@outlive.effect(check=find, timeout=3, settle_after=SETTLE_SECONDS)
def pay_in_thread(note: str) -> str:
    tally("pay_in_thread")
    until = time.monotonic() + 60
    while not may_go() and time.monotonic() < until:
        time.sleep(0.02)
    return enter("pay_in_thread", note)


EFFECTS = {"long": pay_long, "blind": pay_blindly, "thread": pay_in_thread}


@outlive.flow
async def paying(kind: str) -> str:
    """An effect that takes until the test lets it go."""
    return await EFFECTS[kind](await think(1))


# ---------------------------------------------------------------- poison


@outlive.flow
async def poison() -> str:
    """Takes its worker's process down by a real crash, until it is cured."""
    if not (FOLDER / "cure").exists():
        ctypes.string_at(0)
    return "cured"


@outlive.flow
async def healthy(number: int) -> list[str]:
    """A few steps and an effect."""
    notes = [await think(turn) for turn in range(3)]
    return [await pay(number, 0, " ".join(notes))]
