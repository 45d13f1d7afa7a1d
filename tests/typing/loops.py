"""What users' editors infer of loops. Never run: mypy in strict mode must accept every line, and
every ``type: ignore`` here marks a mistake that it must find."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import assert_type

from outlive.loop import Arranged, Loop, Snapshot, State, arrange, drive, load, resume, step_once
from outlive.sync import loop as blocking


@dataclass(frozen=True)
class Task:
    """Something to do."""

    tool: str


class Agent(Loop):
    """With a plan of its own type, which is recorded as such."""

    plan: list[Task]

    async def on_planning(self) -> State:
        self.plan = [Task("search")]
        assert_type(self.snapshot(), Snapshot)
        return State.COMPLETE

    async def on_executing(self) -> State:
        return State.OBSERVING

    async def on_observing(self) -> State:
        return State.REFLECTING

    async def on_reflecting(self) -> State:
        return State.COMPLETE


class Stage(Enum):
    """States of its own."""

    BEGUN = 1
    DONE = 2


class Short(Loop):
    """A machine of its own."""

    states = Stage
    moves = {Stage.BEGUN: Stage.DONE}
    keep = "7d"
    version = 2
    upcasters = {1: lambda old: {**old, "results": []}}

    def on_begun(self) -> Stage:
        return Stage.DONE


async def awaited() -> None:
    agent = await drive(Agent("a trip"), "memory://")
    assert_type(agent, Agent)
    assert_type(agent.plan, list[Task])
    assert_type(await resume("memory://", "x", Agent), Agent | None)
    assert_type(await load(loop=Agent), Agent | None)
    await step_once(agent)
    await drive("a trip")  # type: ignore[type-var]  # a loop is wanted, not its request


def plain() -> None:
    assert_type(blocking.drive(Short(), "memory://"), Short)
    assert_type(blocking.resume("memory://", "x", Short), Short | None)
    blocking.step_once(Short())
    tasks = [Task("search")]
    assert_type(arrange(tasks, lambda task: True), Arranged[Task])
