"""Durations in human-readable form, and retry policies."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from outlive.errors import DefinitionRefused
from outlive.model.defaults import RETRY_ATTEMPTS, RETRY_DELAY, RETRY_DELAY_MAX, RETRY_FACTOR

#: "90s", "1h 30m", 2.5 (seconds) or a timedelta.
Duration: TypeAlias = str | int | float | timedelta

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_WRITE = 'write "90s", "1h 30m", "2d" or seconds'
DURATION_SECONDS_MAX = 100 * 365 * 86400


def parse_duration(duration: Duration) -> float:
    """Parse a duration into seconds; refuse what is negative, infinite or not understood."""
    if isinstance(duration, bool):
        raise DefinitionRefused(f"{duration!r} is not a duration; {_WRITE}")
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, (int, float)):
        seconds = float(duration)
    elif isinstance(duration, str):
        seconds = _parse_text(duration)
    else:
        raise DefinitionRefused(f"{duration!r} is not a duration; {_WRITE}")
    if not 0 <= seconds <= DURATION_SECONDS_MAX:
        raise DefinitionRefused(f"{duration!r} is not between 0 and 100 years")
    return seconds


def _parse_text(text: str) -> float:
    total, position = 0.0, 0
    while match := _PART.match(text, position):
        total += float(match[1]) * _UNITS[match[2]]
        position = match.end()
    if position == 0 or text[position:].strip():
        raise DefinitionRefused(f"{text!r} is not a duration; {_WRITE}")
    return total


def error_types(option: str, given: Any) -> tuple[type[BaseException], ...]:
    """Check the exception classes of an option."""
    if isinstance(given, type):
        raise DefinitionRefused(f"{option} has classes of errors: write ({given.__name__},)")
    types = tuple(given) if isinstance(given, Iterable) else (given,)
    for each in types:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise DefinitionRefused(f"{option} has classes of errors, and {each!r} is not one")
    return types


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A retry policy. ``attempts`` counts the first one."""

    #: The largest number of attempts, the first one included (default: 5).
    attempts: int = RETRY_ATTEMPTS
    #: Before the second attempt (default: "1s").
    delay: Duration = RETRY_DELAY
    #: The factor by which each further delay is longer (default: 2).
    factor: float = RETRY_FACTOR
    #: The longest delay (default: "1m").
    delay_max: Duration = RETRY_DELAY_MAX
    #: Whether to shorten each delay at random, down to half.
    jitter: bool = True
    #: Only errors of these types are retried.
    only: tuple[type[BaseException], ...] = (Exception,)

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or self.attempts < 1:
            raise DefinitionRefused(
                f"Retry: attempts is a whole number of at least 1, not {self.attempts!r}"
            )
        if type(self.factor) not in (int, float) or not 1 <= self.factor < math.inf:
            raise DefinitionRefused(
                f"Retry: factor is a finite number of at least 1, not {self.factor!r}"
            )
        if type(self.jitter) is not bool:
            raise DefinitionRefused(f"Retry: jitter is True or False, not {self.jitter!r}")
        force_setattr(self, "only", error_types("Retry: only=", self.only))
        parse_duration(self.delay)
        parse_duration(self.delay_max)

    def delay_seconds(self, attempt: int, chance: float) -> float:
        """The delay after attempt number ``attempt`` failed; ``chance`` is in [0, 1)."""
        first, longest = parse_duration(self.delay), parse_duration(self.delay_max)
        try:
            seconds = min(first * self.factor ** min(attempt - 1, 64), longest)
        except OverflowError:
            seconds = longest if first else 0.0
        return seconds * (0.5 + chance / 2) if self.jitter else seconds


#: The policy of a step that declares none.
ONCE = Retry(attempts=1)
