"""What a show consists of: lines about two sides, told as they happen, and a tally of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Something happened: a mark, a name, what it is about, a detail."""

    mark: str
    name: str
    text: str = ""
    detail: str = ""
    style: str = ""
    detail_style: str = "dim"


@dataclass(slots=True, kw_only=True)
class Tally:
    """How far a side has come, and at the end how it went."""

    title: str
    #: What its column is made of.
    shows: str
    style: str
    kills_planned: int
    kills: int = 0
    model_calls: int = 0
    requests: int = 0
    refunds: int = 0
    mails: int = 0
    #: Only what has a journal can replay.
    steps_replayed: int | None = None
    model_calls_saved: int | None = None
    seconds: float = 0.0
    outcome: str = ""
    #: What is wrong with the outcome.
    faults: list[str] = field(default_factory=list)

    @property
    def steps_run(self) -> int:
        """Bodies that were begun: every model call, every request to a desk."""
        return self.model_calls + self.requests


class Teller(Protocol):
    """Tells an audience."""

    def tell(self, side: Tally, line: Line) -> None:
        """Something happened on this side."""
        ...
