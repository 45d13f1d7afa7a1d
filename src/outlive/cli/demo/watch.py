"""The durable agent's journal, read from outside while it grows, and what it tells.

Only what the store acknowledged is seen here: the reader is another process than the driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import outlive
from outlive.cli.demo.story import ScreenLine
from outlive.cli.demo.world import TICKET_ID
from outlive.model.events import (
    AttemptFailed,
    Claimed,
    EffectDone,
    EffectDoubted,
    EffectIntended,
    Event,
    RunCompleted,
    RunFailed,
    RunStarted,
    StepDone,
)

NONCE = re.compile(rb"~[0-9a-f]{6}")
NUMBER = re.compile(rb"[BP]-\d+")


class JournalReader:
    """Reads the run of the ticket, again and again."""

    def __init__(self, store: str) -> None:
        self.events: list[Event] = []
        self._app = outlive.open(store, drive=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._app.aclose()

    async def read_new(self) -> list[ScreenLine]:
        """A line for every event that became durable since the last time."""
        try:
            handle = await self._app.get(TICKET_ID)
        except outlive.errors.RunNotFound:
            return []
        known, events = len(self.events), await handle.read()
        self.events = events
        return [_line(events, seq) for seq in range(known + 1, len(events) + 1)]

    async def outcome(self) -> object:
        """The run's outcome in the store."""
        return await (await self._app.get(TICKET_ID)).outcome(timeout="10s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """Work that replay did not repeat."""

    steps: int
    model_calls: int


def count_replays(events: Sequence[Event]) -> Replays:
    """Over all resumes: outcomes that were taken from the journal. Plain steps are model calls."""
    resumes = [events[:at] for at in _resumes(events)]
    calls = sum(isinstance(event, StepDone) for before in resumes for event in before)
    effects = sum(isinstance(event, EffectDone) for before in resumes for event in before)
    return Replays(steps=calls + effects, model_calls=calls)


def _resumes(events: Sequence[Event]) -> Iterator[int]:
    for at, event in enumerate(events):
        if isinstance(event, Claimed) and event.epoch > 1:
            yield at


def nonces_of(events: Sequence[Event]) -> set[str]:
    """The nonces of all answers that the journal keeps."""
    values = (event.value for event in events if isinstance(event, StepDone))
    return {found.decode() for value in values for found in NONCE.findall(value)}


def _line(events: Sequence[Event], seq: int) -> ScreenLine:
    event = events[seq - 1]
    subject, detail, style = _describe(event, events[:seq])
    return ScreenLine(
        mark=str(seq), name=type(event).__name__, text=subject, detail=detail, style=style
    )


def _describe(event: Event, so_far: Sequence[Event]) -> tuple[str, str, str]:
    """Subject, detail and style of an event."""
    match event:
        case RunStarted():
            return event.flow, TICKET_ID, "cyan"
        case Claimed():
            steps = sum(isinstance(each, StepDone | EffectDone) for each in so_far)
            return f"epoch {event.epoch}", f"replays {steps} steps" if steps else "", "cyan"
        case StepDone():
            return _name(event.step), _last(NONCE, event.value), "green"
        case EffectIntended():
            return _name(event.step), f"attempt {event.attempt}", "yellow"
        case EffectDoubted():
            return _name(event.step), "did it happen? asking", "bold magenta"
        case AttemptFailed():
            return _name(event.step), f"did not happen, by {event.by}", "magenta"
        case EffectDone():
            number = _last(NUMBER, event.value)
            return f"{_name(event.step)} {number}", f"known by {event.by}", "bold green"
        case RunCompleted():
            return "support", _last(NONCE, event.value), "bold green"
        case RunFailed():
            return event.error.type_name, event.error.message, "bold red"
        case _:
            return "", "", "white"


def _name(step: str) -> str:
    """A step id as people read it: ``0.2/search#1`` is search 2, ``0/plan#1`` is plan."""
    branch, _, place = step.rpartition("/")
    name, _, _ordinal = place.partition("#")
    _, _, task = branch.rpartition(".") if "." in branch else ("", "", "")
    return f"{name} {task}".rstrip()


def _last(pattern: re.Pattern[bytes], value: bytes) -> str:
    return next((found.decode() for found in reversed(pattern.findall(value))), "")
