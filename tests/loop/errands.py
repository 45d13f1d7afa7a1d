"""An agent on errands, for crash tests: it plans, pays, fetches, reflects, and writes a letter.

Its twin is the same in plain code. What it does leaves receipts in a ledger; what it thinks are
nonces, so that nobody can act on a thought that was lost.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import outlive
from outlive.errors import RunIdTaken
from outlive.loop import Loop, State, arrange, drive, load
from outlive.testing.audit.auditor import Policy, fresh_nonce
from outlive.testing.crash.child import Stage
from outlive.testing.crash.lab import Evidence
from tests.crash.reference_agent import AGAIN, LATE, ask, found
from tests.crash.scenes import book_of

RUN_ID = "errands"
#: Room for a busy machine: an effect that takes longer is in doubt.
LIMITS: dict[str, Any] = {
    "timeout": "2s",
    "settle_after": "150ms",
    "ignore": ("book",),
    "retry": AGAIN,
}
POLICIES: dict[str, Policy] = {"pay": "once", "fetch": "once", "write": "once"}
#: Things to do, and how the loop must have ended.
REQUEST = ["write", "think", "fetch", "pay", "think"]
SEQ = 1 + 3 * len(REQUEST)


@outlive.step
async def think(topic: str) -> str:
    return fresh_nonce(os.urandom)


@outlive.effect(check=found, **LIMITS)
async def fetch(book: str, why: str) -> str:
    """Its key is derived from its place."""
    return await ask(book, "fetch", why, LATE)


@outlive.effect(key="pay:{name}", check=found, **LIMITS)
async def pay(book: str, name: str, why: str) -> str:
    """Its key is declared."""
    return await ask(book, "pay", why, LATE)


@outlive.effect(doubt="retry", **LIMITS)
async def write(book: str, why: str) -> str:
    """The receiver honours the key."""
    return await ask(book, "write", why, LATE, honours=True)


TOOLS: dict[str, Any] = {"think": think, "fetch": fetch, "pay": pay, "write": write}


class Errands(Loop):
    """Everything is looked at in the order in which a crash is cheapest."""

    keep = None

    async def on_planning(self) -> State:
        self.context["thought"] = await think("plan")
        self.plan = arrange(self.request, lambda name: TOOLS[name]).plan
        return State.EXECUTING

    async def on_executing(self) -> State:
        self.heard = await TOOLS[self.current](**self.asked())
        return State.OBSERVING

    async def on_observing(self) -> State:
        self.results.append([self.current, self.heard, await think("observe")])
        self.cursor += 1
        return State.REFLECTING

    async def on_reflecting(self) -> State:
        self.context["thought"] = await think("reflect")
        return State.COMPLETE if self.current is None else State.EXECUTING

    def asked(self) -> dict[str, str]:
        """The arguments of the tool at hand."""
        if self.current == "think":
            return {"topic": "execute"}
        why = self.context["thought"]
        book = {"book": self.context["book"]}
        return {**book, "why": why, **({"name": self.id} if self.current == "pay" else {})}


class PlainErrands(Loop):
    """The same, and nothing is awaited."""

    keep = None
    asked = Errands.asked

    def on_planning(self) -> State:
        self.context["thought"] = called(think, "plan")
        self.plan = arrange(self.request, lambda name: TOOLS[name]).plan
        return State.EXECUTING

    def on_executing(self) -> State:
        self.heard = TOOLS[self.current](**self.asked())  # type: ignore[misc]  # borrowed
        return State.OBSERVING

    def on_observing(self) -> State:
        self.results.append([self.current, self.heard, called(think, "observe")])
        self.cursor += 1
        return State.REFLECTING

    def on_reflecting(self) -> State:
        self.context["thought"] = called(think, "reflect")
        return State.COMPLETE if self.current is None else State.EXECUTING


def called(step: Any, *args: Any) -> Any:
    """In plain code an async step is called like any other; type checkers do not know."""
    return step(*args)


class Fleeting(Errands):
    """Gone as soon as it is over."""

    keep = 0


def begun(kind: type[Loop], stage: Stage) -> Loop:
    return kind(REQUEST, id=RUN_ID, context={"book": book_of(stage)})


async def agent(stage: Stage) -> None:
    """Driven to its end, by whoever comes."""
    check_end(await drive(begun(Errands, stage), stage.app))


async def plain(stage: Stage) -> None:
    """The same in plain code."""
    check_end(await drive(begun(PlainErrands, stage), stage.app))


async def under_worker(stage: Stage) -> None:
    """Handed in, and driven by a worker."""
    loop = begun(Errands, stage)
    async with stage.app.worker([Errands.flow]):
        handle = await stage.app.submit(Errands.flow, loop.request, context=loop.context, id=RUN_ID)
        await handle.outcome()
        ended = await load(stage.app, RUN_ID, Errands)
        assert ended is not None
        check_end(ended)


async def fleeting(stage: Stage) -> None:
    """It is over, and nothing of it is left but what it did; or somebody saw it before."""
    try:
        check_end(await drive(begun(Fleeting, stage), stage.app))
    except RunIdTaken:
        assert await load(stage.app, RUN_ID, Fleeting) is None


def check_end(loop: Loop) -> None:
    """As it ends when nobody disturbs it."""
    plan = ["think", "think", "write", "fetch", "pay"]
    assert (State.COMPLETE, SEQ, len(plan)) == (loop.state, loop.seq, loop.cursor)
    assert plan == loop.plan == [name for name, *_ in loop.results]


def check(evidence: Evidence) -> Sequence[str]:
    """Each tool once; a loop that is not kept has left nothing."""
    done = sorted(each.effect for each in evidence.receipts)
    broken = [] if done == ["fetch", "pay", "write"] else [f"it did {done}"]
    keys = {each.effect: each.key for each in evidence.receipts}
    if keys.get("pay") != f"pay:{RUN_ID}":
        broken.append(f"it paid under {keys.get('pay')}")
    return broken


def check_gone(evidence: Evidence) -> Sequence[str]:
    """Nothing but its key is there."""
    runs = [run for run in evidence.journals if not run.startswith("key/")]
    return [*check(evidence), *(f"run {run} is left" for run in runs)]
