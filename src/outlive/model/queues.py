"""Queues as users declare them: how many runs may be under way, and how fast they may start.

A queue is a name on runs. Its limits are kept by the store, the same for all workers.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import msgspec

from outlive.errors import DefinitionRefused
from outlive.model.defaults import RATE_PER
from outlive.model.ids import NAME_RULES, is_name
from outlive.model.retry import Duration, parse_duration

#: The queue of runs that name none. It has no limits.
DEFAULT_QUEUE = "default"

#: Limits, named in one place.
PRIORITY_MAX = 100
COUNT_MAX = 1 << 31
UNITS_MAX = 1 << 53
RATE_SECONDS_MAX = 366 * 86_400


class QueuePlace(msgspec.Struct, frozen=True, array_like=True):
    """A run's place in its queue."""

    key: str = ""
    #: Lower numbers go first.
    priority: int = 0
    #: The units that its start counts where starts are limited by a rate.
    units: int = 1


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate: at most this many units within any period of ``per``."""

    units: int
    #: The length of the period.
    per: Duration = RATE_PER

    def __post_init__(self) -> None:
        check_count("Rate", "units", self.units, UNITS_MAX)
        if not 0.001 <= self.seconds <= RATE_SECONDS_MAX:
            raise DefinitionRefused(f"Rate(per={self.per!r}): from a millisecond to a year")

    @property
    def seconds(self) -> float:
        """The period in seconds."""
        return parse_duration(self.per)


@dataclass(frozen=True, slots=True)
class Queue:
    """A named queue and its limits; None: no limit."""

    name: str
    _: KW_ONLY
    #: Runs that all workers together hold at once.
    concurrency: int | None = None
    #: The same for runs with the same queue_key; runs without one are not counted.
    per_key: int | None = None
    #: The same for one worker.
    per_worker: int | None = None
    #: Starts, or their units, within a period.
    rate: Rate | None = None

    def __post_init__(self) -> None:
        check_queue_name(self.name)
        if self.name == DEFAULT_QUEUE:
            raise DefinitionRefused('queue "default" is for runs without limits; name another one')
        for what in ("concurrency", "per_key", "per_worker"):
            given = getattr(self, what)
            if given is not None:
                check_count(f"queue {self.name!r}", what, given, COUNT_MAX)
        if self.rate is not None and not isinstance(self.rate, Rate):
            raise DefinitionRefused(
                f'queue {self.name!r}: rate={self.rate!r}; write rate=outlive.Rate(100, per="1m")'
            )


def check_queue_name(name: object) -> None:
    """Check the name of a queue."""
    if not is_name(name):
        raise DefinitionRefused(
            f"a queue is named by a text of 1 to 200 characters, not {name!r} ({NAME_RULES})"
        )


def check_count(where: str, what: str, given: object, most: int) -> None:
    """Check a whole number of at least 1."""
    if type(given) is not int or not 1 <= given <= most:
        raise DefinitionRefused(f"{where}: {what}={given!r} is not a whole number from 1 to {most}")


def check_place(place: QueuePlace) -> QueuePlace:
    """Check a run's place in a queue."""
    if place.key != "" and not is_name(place.key):
        raise DefinitionRefused(
            f"queue_key={place.key!r} is not a text of 1 to 200 characters ({NAME_RULES})"
        )
    if type(place.priority) is not int or abs(place.priority) > PRIORITY_MAX:
        raise DefinitionRefused(
            f"priority={place.priority!r} is not a whole number from -{PRIORITY_MAX} (first) to "
            f"{PRIORITY_MAX}"
        )
    check_count("a run", "units", place.units, UNITS_MAX)
    return place
