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
from outlive.testing.auditor import Receipt, fresh_nonce, nonces_in
from outlive.testing.ledger import Ledger, Refused

Position = Literal["before intent", "after intent", "before effect", "after effect"]
POSITIONS: tuple[Position, ...] = (
    "before intent",
    "after intent",
    "before effect",
    "after effect",
)

TIMEOUT_SECONDS = 3.0
SETTLE_SECONDS = 0.3

POLICIES = {"pay_keyed": "once", "pay_checked": "once", "pay_blindly": "at_most_once"}


@dataclass(slots=True)
class Process:
    """What this process was told at its birth."""

    folder: Path = Path()
    stop_at: Position | None = None

    def ledger(self) -> Ledger:
        return Ledger(self.folder / "ledger.jsonl", settle_seconds=SETTLE_SECONDS)

    def pass_by(self, position: Position) -> None:
        """Stop here, if this is the place; once."""
        if self.stop_at == position:
            self.stop_at = None
            os.kill(os.getpid(), signal.SIGSTOP)

    def failpoint(self, moment: str) -> None:
        if moment == "effect.before":
            self.pass_by("after intent")


me = Process()


def request(effect: str, note: str) -> Receipt:
    return Receipt(
        run_id=outlive.run_id(), effect=effect, key=outlive.key(), nonces=nonces_in(note)
    )


async def send(effect: str, note: str, *, honours_key: bool) -> str:
    """Ask the receiver for something; it refuses what is too old."""
    sent_at = time.monotonic()
    me.pass_by("before effect")
    if time.monotonic() > sent_at + TIMEOUT_SECONDS:
        raise Refused("this request is too old")
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


@outlive.flow
async def paying(kind: str) -> list[str]:
    """A step, an effect of that kind, and a step behind it."""
    note = await think(1)
    me.pass_by("before intent")
    paid = await EFFECTS[kind](note)
    return [note, paid, await think(2)]


@outlive.step
async def linger(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return fresh_nonce(os.urandom)
