"""The world outside: an unreliable model and an unreliable bank.

Every request of a body goes through its process: a paused or dead process asks nothing and hears
nothing; but the bank completes its requests, whoever died meanwhile. The bank keeps one promise:
it finishes or refuses a request within ``SETTLE_SECONDS``. It writes a receipt for everything that
it did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import outlive
from outlive.testing.audit.auditor import Receipt, fresh_nonce, nonces_in
from outlive.testing.simulation.loop import Nature, SimCrash, SimLoop

#: Within this time the bank is done with a request, one way or the other.
SETTLE_SECONDS = 2.0
#: The time limit of an effect's attempt.
LIMIT_SECONDS = 3.0
#: The time limit of a step's attempt.
THINK_SECONDS = 2.0


class BankRefused(Exception):
    """Declared to mean that nothing happened."""


class BankError(Exception):
    """Says nothing about what happened."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProcessContext:
    """The simulated process that a body runs in."""

    name: str
    loop: SimLoop
    world: World
    #: The id under which its worker holds leases.
    worker_id: Callable[[], str]


#: The process that the running code belongs to.
here: ContextVar[ProcessContext] = ContextVar("outlive_sim_process")

#: The bank's behaviour for one request.
Manner: TypeAlias = Literal[
    "pays", "refuses", "breaks_before", "breaks_after", "breaks_and_pays_late", "hangs", "slow"
]
_MANNERS: tuple[Manner, ...] = get_args(Manner)
#: The weight of each behaviour.
_WEIGHTS = (8, 1, 1, 1, 1, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BankRequest:
    """A request of an effect's body to the bank."""

    run_id: str
    effect: str
    key: str
    order: str
    note: str
    honours_key: bool


class World:
    """The model and the bank of one simulation."""

    def __init__(self, nature: Nature) -> None:
        self._nature = nature
        self.receipts: list[Receipt] = []
        self._paid: dict[str, dict[str, str]] = {}
        #: By key, until when something may still come of what was asked.
        self._busy_until: dict[str, float] = {}
        self._dawdling: list[tuple[str, ProcessContext]] = []
        #: Called when an effect's body begins.
        self.on_begin: Callable[[ProcessContext, BankRequest], None] = lambda process, request: None
        self.calm = False
        #: Errors that bodies found, in words.
        self.broken: list[str] = []
        #: The model's memory; it hands out the object itself.
        self.memory: list[str] = ["remembered"]

    # the model

    async def think(self, how: str) -> dict[str, str]:
        """A fresh thought, after a while; or an error, or nothing for too long."""
        process = _living()
        rng = self._nature.rng
        seconds = self._nature.mostly_short(1.2)
        if how == "slow" and not self.calm and rng.random() < 0.4:
            seconds = THINK_SECONDS * 2
        await asyncio.sleep(seconds)
        self._fail_at_times(how)
        return {"nonce": fresh_nonce(self._nature.entropy), "by": process.name}

    def think_plainly(self, how: str) -> dict[str, str]:
        """The same from a plain function."""
        process = _living()
        self._fail_at_times(how)
        return {"nonce": fresh_nonce(self._nature.entropy), "by": process.name}

    def _fail_at_times(self, how: str) -> None:
        if how == "flaky" and not self.calm and self._nature.chance(0.5):
            raise ConnectionError("the model is overloaded")
        if how == "hopeless":
            raise LookupError(f"nothing found, {fresh_nonce(self._nature.entropy)}")

    # the bank

    async def pay(self, request: BankRequest, *, dawdles: bool) -> dict[str, str]:
        """Ask the bank to do something once, and wait for its answer."""
        process = _living()
        self.on_begin(process, request)
        if dawdles:
            await self._dawdle(process, request.key)
        manner = self._manner()
        answer = process.loop.create_future()
        self._send(process, request, manner, answer)
        paid: dict[str, str] = await answer
        return paid

    async def _dawdle(self, process: ProcessContext, key: str) -> None:
        """Take some time before asking; a pause may come in between."""
        self._dawdling.append((key, process))
        try:
            await asyncio.sleep(self._nature.mostly_short(0.5))
        finally:
            self._dawdling.remove((key, process))

    def pay_plainly(self, request: BankRequest) -> dict[str, str]:
        """The same from a plain function, whose caller can't be cut off."""
        process = _living()
        self.on_begin(process, request)
        manner = self._manner()
        if manner == "refuses":
            raise BankRefused("not today")
        if manner in ("breaks_before", "breaks_and_pays_late"):
            if manner == "breaks_and_pays_late":
                self._pay_later(request, None, process)
            raise BankError("the line broke")
        paid = self._book(request)
        if manner in ("breaks_after", "hangs"):
            raise BankError("the line broke")
        return paid

    def _manner(self) -> Manner:
        if self.calm:
            return "pays"
        manner: Manner = self._nature.rng.choices(_MANNERS, _WEIGHTS)[0]
        return manner

    def _send(
        self,
        process: ProcessContext,
        request: BankRequest,
        manner: Manner,
        answer: asyncio.Future[Any],
    ) -> None:
        nature = self._nature
        if manner in ("refuses", "breaks_before"):
            error = BankRefused("not today") if manner == "refuses" else BankError("the line broke")
            process.loop.call_later(nature.mostly_short(0.5), _settle, answer, error)
            return
        self._pay_later(request, answer if manner in ("pays", "slow") else None, process)
        if manner in ("breaks_after", "breaks_and_pays_late"):
            error = BankError("the line broke")
            process.loop.call_later(nature.mostly_short(0.5), _settle, answer, error)

    def _pay_later(
        self, request: BankRequest, answer: asyncio.Future[Any] | None, process: ProcessContext
    ) -> None:
        """Do what was asked within the promised time, whether or not the caller still waits."""
        nature = self._nature
        seconds = 0.98 * SETTLE_SECONDS * nature.rng.random() ** 2

        def book() -> None:
            paid = self._book(request)
            if answer is not None:
                delay = nature.rng.choice((0.05, 0.3, LIMIT_SECONDS)) * nature.rng.random()
                process.loop.call_later(delay, _settle, answer, paid)

        until = nature.now + SETTLE_SECONDS
        self._busy_until[request.key] = max(until, self._busy_until.get(request.key, 0.0))
        nature.after(seconds, book)

    def _book(self, request: BankRequest) -> dict[str, str]:
        known = self._paid.get(request.key)
        if known is not None and request.honours_key:
            return known
        paid = {"order": request.order, "nonce": fresh_nonce(self._nature.entropy)}
        self._paid.setdefault(request.key, paid)
        receipt = Receipt(
            run_id=request.run_id,
            effect=request.effect,
            key=request.key,
            args=request.order,
            nonces=nonces_in(request.note),
            at=round(self._nature.now * 1000),
        )
        self.receipts.append(receipt)
        return paid

    # asking the bank

    async def find(self, key: str) -> Any:
        """Answer a check: the current truth, or "unknown"."""
        process = _living()
        nature = self._nature
        heard = process.loop.create_future()

        def look() -> None:
            said: Any = self._paid.get(key, outlive.NOT_HAPPENED)
            if not self.calm and nature.chance(0.15):
                said = nature.rng.choice((outlive.UNKNOWN, ConnectionError("the line broke")))
            process.loop.call_later(nature.mostly_short(0.5), _settle, heard, said)

        nature.after(nature.mostly_short(0.3), look)
        return await heard

    def find_plainly(self, key: str) -> Any:
        """The same from a plain function."""
        _living()
        if not self.calm and self._nature.chance(0.15):
            return outlive.UNKNOWN
        return self._paid.get(key, outlive.NOT_HAPPENED)

    def paid(self, key: str) -> dict[str, str] | None:
        """The payment in the bank's book, for a careful person."""
        return self._paid.get(key)

    def check_paid(self, key: str, outcome: dict[str, str]) -> None:
        """An undo is about something that happened, and knows what came of it."""
        if self._paid.get(key) != outcome:
            self.broken.append(
                f"key {key}: undone as {outcome}, the bank has {self._paid.get(key)}"
            )

    def is_quiet(self, key: str) -> bool:
        """Nothing more can come of what the bank was asked under this key."""
        if any(who == key and not process.loop.is_dead for who, process in self._dawdling):
            return False
        return self._nature.now > self._busy_until.get(key, 0.0)


def _living() -> ProcessContext:
    process = here.get()
    if process.loop.is_dead:
        raise SimCrash
    return process


def _settle(answer: asyncio.Future[Any], said: Any) -> None:
    if answer.done():
        return
    if isinstance(said, Exception):
        answer.set_exception(said)
    else:
        answer.set_result(said)


def current_world() -> World:
    """The world that the running body belongs to."""
    return here.get().world
