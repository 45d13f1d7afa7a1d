"""Where code runs: in a branch of a flow, in a step's body, or outside any run.

One context variable decides what a call of a step means. Step ids come from the place: branch,
name, and the ordinal of that name in the branch. A branch's id is its parent's plus its ordinal
among the parent's tasks, so ids depend on the structure of the code and on nothing else.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol

from outlive.errors import InsideStep, NotInRun


class Driven(Protocol):
    """What a branch knows of the run that it belongs to."""

    run_id: str

    async def perform(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do a step or effect: from the journal, or for the first time."""
        ...

    async def signal(self, branch: Branch, name: str) -> Any:
        """The next signal of that name, as its event."""
        ...

    async def question(self, asked: Any, hint: Any) -> tuple[Any, Any]:
        """A human's answer, and its event."""
        ...

    async def child(
        self, branch: Branch, flow: Any, bound: dict[str, Any], *, awaited: bool
    ) -> Any:
        """A run of its own: its outcome, or its id."""
        ...

    def reply(self, signal_id: str, value: object) -> None:
        """Answer a request."""
        ...

    def refuse(self, signal_id: str, why: Exception) -> None:
        """A request can't be read: whoever sent it is told."""
        ...

    async def sleep(self, branch: Branch, seconds: float) -> None:
        """Wait, durably."""
        ...

    def now_ms(self) -> int:
        """The run's time: that of the last delivered event, in ms since 1970."""
        ...

    def chance(self, place: str) -> bytes:
        """Sixteen random bytes that belong to this place."""
        ...


class Branch:
    """One line of execution in a flow, and the numbers it gave out."""

    __slots__ = ("_block", "_ordinals", "_tasks", "drive", "id")

    def __init__(self, drive: Driven, branch_id: str) -> None:
        self.drive = drive
        self.id = branch_id
        self._ordinals: dict[str, int] = {}
        self._tasks = 0
        self._block = (0, 0, 0)

    def next_id(self, name: str) -> str:
        """The id of the next step of that name here."""
        ordinals = self._ordinals
        number = ordinals[name] = ordinals.get(name, 0) + 1
        return f"{self.id}/{name}#{number}"

    def child(self, number: int | None = None) -> Branch:
        """The branch of a task made here."""
        if number is None:
            self._tasks += 1
            number = self._tasks
        return Branch(self.drive, f"{self.id}.{number}")

    def block(self, owner: int, *, size: int, uses: int) -> int:
        """The first of ``size`` numbers set aside for one owner, who asks ``uses`` times."""
        known, first, left = self._block
        if known != owner or not left:
            first, left = self._tasks + 1, uses
            self._tasks += size
        self._block = (owner, first, left - 1)
        return first


class RunStopped(BaseException):
    """Raised by every durable call of a run that left memory; never seen by a living flow."""


class Body:
    """The inside of a step: nothing is recorded here, and nothing durable may begin."""

    __slots__ = ("attempt", "key", "run_id", "step")

    def __init__(self, run_id: str, step: str, attempt: int, key: str) -> None:
        self.run_id, self.step, self.attempt, self.key = run_id, step, attempt, key


place: ContextVar[Branch | Body | None] = ContextVar("outlive_place", default=None)


def branch_for(name: str) -> Branch:
    """The branch that this call belongs to; refuses calls from a body or from outside."""
    here = place.get()
    if type(here) is Branch:
        return here
    if type(here) is Body:
        raise InsideStep(name, here.step)
    raise NotInRun(name)
