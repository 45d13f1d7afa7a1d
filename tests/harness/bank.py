"""A bank that does what a script says, can be held up, and can be asked about it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import outlive
from outlive.errors import InDoubt
from tests.harness.theatre import Theatre


@dataclass
class Receipt:
    number: int
    paid_to: str


class Bank:
    """Does what the script says at each call; answers checks from its own ledger."""

    def __init__(self, scene: Theatre, *script: str) -> None:
        self.scene = scene
        self.script = list(script)
        self.ledger: dict[str, Receipt] = {}
        #: Keys and amounts of what was ordered, in this order, once each.
        self.paid: list[tuple[str, int]] = []
        self.calls: list[int] = []
        #: Cleared: orders wait until it is set again.
        self.gate = asyncio.Event()
        self.gate.set()
        self.checks: list[int] = []
        self.unsure = False
        self.never = asyncio.Event()

    async def pay(self) -> Receipt:
        self.calls.append(self.scene.clock.now_ms())
        act = self.script.pop(0) if self.script else "pays"
        if act in ("pays", "pays and breaks", "pays and hangs"):
            assert outlive.key() not in self.ledger, "paid twice"
            self.ledger[outlive.key()] = Receipt(len(self.calls), "bob")
        if act.endswith("hangs"):
            await self.never.wait()
        if act.endswith("breaks"):
            raise OSError("connection lost")
        return self.ledger[outlive.key()]

    async def order(self, cents: int) -> str:
        """Pay an amount; whoever asks twice under one key pays twice, and it is seen."""
        self.calls.append(self.scene.clock.now_ms())
        await self.gate.wait()
        self.paid.append((outlive.key(), cents))
        return f"receipt {len(self.paid)}"

    def ordering(self, key: Any, **options: Any) -> outlive.Flow[..., Any]:
        """A flow that pays an amount under this key."""

        @outlive.effect(key=key, **options)
        async def pay(order: str, cents: int) -> str:
            return await self.order(cents)

        @outlive.flow
        async def paying(order: str, cents: int) -> str:
            return str(await pay(order, cents))

        return paying

    def find(self, key: str) -> Any:
        self.checks.append(self.scene.clock.now_ms())
        if self.unsure:
            return outlive.UNKNOWN
        return self.ledger.get(key, outlive.NOT_HAPPENED)

    def flow(self, **options: Any) -> outlive.Flow[[], Any]:
        @outlive.effect(**options)
        async def pay() -> Receipt:
            return await self.pay()

        @outlive.flow
        async def paying() -> Any:
            try:
                receipt = await pay()
            except (OSError, InDoubt, outlive.errors.TimedOut) as error:
                return [type(error).__name__, str(error)]
            return [type(receipt).__name__, receipt.number, receipt.paid_to]

        return paying


async def crash_in_body(scene: Theatre, bank: Bank, flow: outlive.Flow[[], Any]) -> None:
    """Start a run and kill its process while the effect's body hangs."""
    app = scene.open()
    await app.start(flow, id="r")
    await scene.until(lambda: bank.calls)
    scene.kill(app)


def seconds_after(times: list[int], index: int, begin: int) -> float:
    return (times[index] - begin) / 1000
