"""Loops that the tests drive: an agent, its plain twin, a machine of its own, a long count."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, ClassVar

import outlive
from outlive.loop import Loop, State
from outlive.model.retry import Duration


@outlive.step
async def think(request: str) -> list[str]:
    """A pretend model: a word is a thing to do."""
    return request.split()


@outlive.effect(key="send:{what}", doubt="retry")
async def send(what: str) -> str:
    return f"{what} sent under {outlive.key()}"


@outlive.step
async def look_up(what: str) -> str:
    return f"{what} found"


class Agent(Loop):
    """Plans, does one thing after another, observes, and reflects; gone at its end."""

    keep: ClassVar[Duration | None] = 0

    async def on_planning(self) -> State:
        self.plan = await think(self.request)
        return State.EXECUTING

    async def on_executing(self) -> State:
        self.heard = await (send if self.current.startswith("!") else look_up)(self.current)
        return State.OBSERVING

    async def on_observing(self) -> State:
        self.results.append(self.heard)
        self.cursor += 1
        return State.REFLECTING

    async def on_reflecting(self) -> State:
        if "fail" in self.results[-1]:
            return State.FAILED
        return State.COMPLETE if self.current is None else State.EXECUTING


class Kept(Agent):
    """The same, looked at after its end."""

    keep = None


class Clerk(Loop):
    """A loop in plain code: nothing is awaited."""

    def on_planning(self) -> State:
        self.plan = self.request.split()
        return State.EXECUTING

    def on_executing(self) -> State:
        self.heard = self.use(self.current)
        return State.OBSERVING

    def on_observing(self) -> State:
        self.results.append(self.heard)
        self.cursor += 1
        return State.REFLECTING

    def on_reflecting(self) -> State:
        return State.COMPLETE if self.current is None else State.EXECUTING

    def use(self, what: str) -> Any:
        """Outside a run only steps can be called."""
        return send(what) if what.startswith("!") else look(what)


class KeptClerk(Clerk):
    """The same, looked at after its end."""

    keep = None


@outlive.step
def look(what: str) -> str:
    return f"{what} found"


class Stage(Enum):
    """States of a machine of its own."""

    BUILD = auto()
    TEST = auto()
    SHIP = auto()
    DONE = auto()


class Release(Loop):
    """Builds and tests until it is well, then ships."""

    states = Stage
    moves = {
        Stage.BUILD: Stage.TEST,
        Stage.TEST: (Stage.BUILD, Stage.SHIP),
        Stage.SHIP: (Stage.DONE,),
    }
    working = (Stage.SHIP,)
    keep = None

    async def on_build(self) -> Stage:
        self.results.append(f"build {len(self.results) + 1}")
        return Stage.TEST

    async def on_test(self) -> Stage:
        return Stage.SHIP if len(self.results) >= self.request else Stage.BUILD

    async def on_ship(self) -> Stage:
        self.results.append(await send(f"release of {self.results[-1]}"))
        return Stage.DONE
