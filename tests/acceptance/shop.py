"""A small shop: the flows that the command line is tried with. Saved into the test's folder."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import msgspec

import outlive


@dataclass
class Order:
    """What somebody bought."""

    id: str
    cents: int


class Receipt(msgspec.Struct):
    """What the bank says."""

    order: str
    cents: int


@outlive.step
async def look_up(name: str) -> list[str]:
    """Harmless."""
    return [name, name.upper()]


@outlive.effect(key="refund:{order.id}", doubt="ask")
async def refund(order: Order) -> Receipt:
    """Pays, unless the bank is down, and then nobody knows."""
    if Path("bank-is-down").exists():
        raise RuntimeError("no answer")
    with Path("ledger").open("a") as ledger:
        ledger.write(f"{order.id}\n")
    return Receipt(order.id, order.cents)


@outlive.step
async def press(button: str) -> str:
    """Waits for a file, so that a test decides when it ends."""
    Path(f"{button}.waiting").touch()
    while not Path(button).exists():
        await asyncio.sleep(0.01)
    return button


@outlive.flow
async def greet(name: str = "you") -> str:
    """No step at all."""
    return f"hello {name}"


@outlive.flow
async def buy(order: Order, at: datetime | None = None) -> Receipt:
    """Two branches, then an effect."""
    await asyncio.gather(look_up(order.id), look_up("stock"))
    return await refund(order)


@outlive.flow
async def fail(price: Decimal) -> None:
    """Ends badly."""
    raise ValueError(f"nobody pays {price}")


@outlive.flow
async def nap(seconds: float) -> str:
    """Sleeps."""
    await look_up("pillow")
    await outlive.sleep(seconds)
    return "rested"


@outlive.flow
async def wait_for(button: str) -> str:
    """Is in memory until somebody presses the button."""
    return await press(button)


@outlive.effect(doubt="retry")
async def ring(number: int) -> str:
    """Harmless, but recorded like any effect."""
    return f"ding {number}"


@outlive.flow
async def count(upto: int) -> int:
    """As many steps and effects as asked for."""
    for number in range(upto):
        await look_up(str(number))
        await ring(number)
    return upto


@outlive.flow
async def hoard(kilobytes: int, times: int) -> int:
    """Fills the disk."""
    for _ in range(times):
        await fill(kilobytes)
    return times


@outlive.step
async def fill(kilobytes: int) -> bytes:
    """Much data."""
    return os.urandom(kilobytes * 1024)


@outlive.flow
async def crash() -> None:
    """Takes its process with it."""
    os.abort()


@outlive.flow(version=os.environ.get("SHOP_VERSION", "1"))
async def versioned() -> str:
    """Its version is set from outside."""
    await outlive.sleep(60)
    return "done"
