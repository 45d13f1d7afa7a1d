"""How a run is started: what is said of it beside its flow and its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from outlive.errors import DefinitionRefused
from outlive.model.ids import is_text
from outlive.model.queues import DEFAULT_QUEUE, QueuePlace, check_place, check_queue_name
from outlive.model.retry import Duration, parse_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a run is started, where a flow's own parameters collide with these names."""

    id: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    queue_key: str | None = None
    #: Lower goes first.
    priority: int | None = None
    units: int | None = None
    #: From the run's start on, or an instant.
    deadline: Duration | datetime | None = None
    pins: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named: tuple[tuple[str, Any], ...] = (("tags", self.tags), ("pins", self.pins))
        for what, given in named:
            pairs = given.items() if isinstance(given, Mapping) else [(given, None)]
            if not all(is_text(part) for pair in pairs for part in pair):
                raise DefinitionRefused(f"{what} are texts by name, not {given!r}")
        if self.queue is not None:
            check_queue_name(self.queue)
        if self.place is not None and self.queue in (None, DEFAULT_QUEUE):
            raise DefinitionRefused("queue_key, priority and units count in a queue: add queue=")
        self.deadline_from(0)

    @property
    def place(self) -> QueuePlace | None:
        """Where in its queue a run stands; None: where all do that say nothing of it."""
        named = {"key": self.queue_key, "priority": self.priority, "units": self.units}
        given: dict[str, Any] = {name: each for name, each in named.items() if each is not None}
        return check_place(QueuePlace(**given)) if given else None

    def deadline_from(self, started_at: int) -> int | None:
        """The instant (ms since 1970) at which a run that starts then is stopped."""
        if not isinstance(self.deadline, datetime):
            return None if self.deadline is None else started_at + milliseconds(self.deadline)
        if self.deadline.tzinfo is None:
            raise DefinitionRefused(f"deadline {self.deadline} has no time zone; add one")
        return round(self.deadline.timestamp() * 1000)


def milliseconds(duration: Duration) -> int:
    """A duration as the journal counts it."""
    return round(parse_duration(duration) * 1000)
