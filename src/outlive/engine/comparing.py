"""Where code and journal meet: what was recorded must be what the code asks for.

The first difference is kept, and nothing of the flow runs after it: the run stays where it is, and
says what both sides have.
"""

from __future__ import annotations

from typing import Any, Protocol

from outlive.engine.flowloop import FlowLoop
from outlive.engine.ops import Op
from outlive.engine.replay import (
    Replay,
    both_sides,
    describe,
    difference,
    is_plainly_same,
    mismatch,
    outcome_of,
)
from outlive.engine.waiting import Waiting
from outlive.errors import InsideStep, OutliveError, ValueRefused
from outlive.model.events import Event


class Compared(Protocol):
    """What a comparison asks of the drive."""

    run_id: str
    waiting: Waiting
    loop: FlowLoop

    def asked(self) -> list[str]:
        """What the code asks for, by id."""
        ...


class Comparing:
    """The comparison of one run's code with its journal."""

    def __init__(self, drive: Compared, replay: Replay) -> None:
        self._drive, self._replay = drive, replay
        #: The first difference.
        self.misfit: OutliveError | None = None

    def refuse(self, error: OutliveError) -> None:
        """Code and journal do not fit, for this reason."""
        self.misfit = self.misfit or error

    def differs(self, event: Event, asked: str = "", recorded: str = "", sides: str = "") -> None:
        """The journal has this event where the code asks for something else."""
        wanted, seq = [asked] if asked else self._drive.asked(), self._replay.seq_of(event)
        recorded = recorded or describe(event)
        self.refuse(mismatch(self._drive.run_id, seq, recorded, wanted, sides))

    def is_inherited(self, event: Event) -> bool:
        """It stands in what a fork shares with another run."""
        return self._replay.is_inherited(event)

    def find(self, event: Event, step: str) -> Op | None:
        """The op that an event is about; the code must have asked for it by now."""
        op = self._drive.waiting.find(step)
        if op is None:
            self.differs(event)
        elif not self.fits(op, event):
            return None
        return op

    def fits(self, op: Op, event: Event) -> bool:
        """The call is the one in the journal; if not, the run can't go on here."""
        if is_plainly_same(op, event):
            return True
        asked = difference(op, event)
        if asked:
            self.differs(event, asked, sides=both_sides(op, event))
        return not asked

    def outcome(self, op: Op, event: Event) -> tuple[Any, BaseException | None]:
        """An op's outcome, decoded; if today's types can't, the run stops and keeps its place."""
        is_changed = self._replay.is_changed(event)
        try:
            if is_changed:
                return op.definition.value_from_json(getattr(event, "value", b"")), None
            value, error = outcome_of(op, event)
            if isinstance(error, InsideStep):
                self._drive.loop.refuse(error)  # the run fails with it, whoever catches it
            return value, error
        except ValueRefused as refused:
            self.refuse(_given_by_fork(op, refused) if is_changed else refused)
            return None, None


def _given_by_fork(op: Op, refused: ValueRefused) -> ValueRefused:
    why = f"this fork gave step {op.id} another outcome, and {refused.reason}"
    return ValueRefused(f"{why}; fork the other run again, with one that it may return")
