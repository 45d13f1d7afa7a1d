"""Cron expressions: the wall-clock times that they name, and their instants in a zone.

A time that a clock change skips still happens, at the same distance from midnight: 02:30 on the
night of the spring change is 03:30. A time that the clock shows twice happens once, the first
time; where the hour is ``*``, hours are counted, and it happens both times.
Nothing here reads a clock: the zone is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple, NoReturn

from outlive.errors import DefinitionRefused

MINUTE_MS = 60_000
#: The 29th of February is at most eight years away; on a given day of the week, forty.
DAYS_MAX = 41 * 366
#: A change of the clock moves a wall-clock time by a day at most: Samoa left one out in 2011.
REACH_DAYS = 2

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PART = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\w+))?", re.ASCII)
_NUMBER = re.compile(r"\d{1,4}", re.ASCII)


class _Kind(NamedTuple):
    """One of the five fields."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first: int = 0


_KINDS = (
    _Kind("minute", 0, 59),
    _Kind("hour", 0, 23),
    _Kind("day of month", 1, 31),
    _Kind("month", 1, 12, _MONTHS, 1),
    _Kind("day of week", 0, 7, _WEEKDAYS),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """The values that one field of an expression names."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    #: From Sunday, 0.
    weekdays: frozenset[int]
    #: Which of the two fields that name days begins with a star.
    any_day: bool
    any_weekday: bool
    #: The hour is a star: no hour is named, so a repeated hour counts again.
    every_hour: bool

    def names_day(self, day: date) -> bool:
        """Whether this day matches; where both fields name days, either is enough."""
        if day.month not in self.months:
            return False
        by_month = day.day in self.days
        by_week = day.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return by_month and by_week
        return by_month or by_week


def parse_cron(text: str) -> Cron:
    """Parse five fields, or a shorthand such as ``@daily``.

    Raises:
        DefinitionRefused: it is invalid; the message names the field.
    """
    if type(text) is not str:
        _refuse(text, 'it is a text such as "0 3 * * *"')
    fields = _SHORTHANDS.get(text.strip().lower(), text).split()
    if len(fields) != len(_KINDS):
        _refuse(
            text,
            "it has five fields (minute, hour, day of month, month, day of week) or is one of "
            + ", ".join(sorted(_SHORTHANDS)),
        )
    values = [_parse_field(kind, field, text) for kind, field in zip(_KINDS, fields, strict=True)]
    minutes, hours, days, months, weekdays = values
    cron = Cron(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(day % 7 for day in weekdays),
        any_day=fields[2].startswith("*"),
        any_weekday=fields[4].startswith("*"),
        every_hour=fields[1] == "*",
    )
    if not any(True for _ in _days(cron, date(2000, 1, 1), 1)):
        _refuse(text, "it never matches: none of these months has that day")
    return cron


def _refuse(text: object, why: str) -> NoReturn:
    raise DefinitionRefused(f"cron {text!r}: {why}")


def _parse_field(kind: _Kind, field: str, text: str) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            _refuse(text, f"{kind.name} {part!r} is not a number, range (1-5), list or step (*/15)")
        star, first, last, step = match.groups()
        if step is not None and star is None and last is None:
            remedy = f"{part.partition('/')[0]}-{kind.high}/{step}"
            _refuse(text, f"{kind.name} {part!r}: a step needs a range; write {remedy}")
        low = kind.low if star else _parse_value(kind, first, text)
        if star:
            high = 6 if kind.high == 7 else kind.high
        else:
            high = low if last is None else _parse_value(kind, last, text)
        if high < low:
            _refuse(text, f"{kind.name} {part!r} goes backwards; write a list of two ranges")
        found.update(range(low, high + 1, _parse_step(kind, step, text)))
    return found


def _parse_value(kind: _Kind, word: str, text: str) -> int:
    if word.upper() in kind.names:
        return kind.names.index(word.upper()) + kind.first
    number = int(word) if _NUMBER.fullmatch(word) else -1
    if not kind.low <= number <= kind.high:
        names = f" or {kind.names[0]} to {kind.names[-1]}" if kind.names else ""
        _refuse(text, f"{kind.name} {word!r} is not {kind.low} to {kind.high}{names}")
    return number


def _parse_step(kind: _Kind, step: str | None, text: str) -> int:
    if step is None:
        return 1
    if not _NUMBER.fullmatch(step) or int(step) == 0:
        _refuse(text, f"{kind.name}: the step {step!r} is not a whole number of at least 1")
    return int(step)


def next_after(cron: Cron, zone: tzinfo, after_ms: int) -> int:
    """The first instant after this one (ms since 1970)."""
    return _nearest(cron, zone, after_ms, 1, lambda instant: instant > after_ms)


def last_until(cron: Cron, zone: tzinfo, until_ms: int) -> int:
    """The last instant that is not after this one."""
    return _nearest(cron, zone, until_ms, -1, lambda instant: instant <= until_ms)


def _nearest(
    cron: Cron, zone: tzinfo, around_ms: int, step: int, fits: Callable[[int], bool]
) -> int:
    """The nearest matching instant, later (``step`` 1) or earlier (-1)."""
    here = datetime.fromtimestamp(around_ms / 1000, UTC).astimezone(zone).date()
    begin = here if _is_steady(zone, here) else here - step * timedelta(REACH_DAYS)
    nearest = min if step > 0 else max
    found: list[int] = []
    end: date | None = None
    for day in _days(cron, begin, step):
        if end is not None and (day - end).days * step > 0:
            break
        fitting = [instant for instant in instants_of(cron, zone, day) if fits(instant)]
        if fitting:
            found.append(nearest(fitting))
            if _is_steady(zone, day):
                break
            # When the clock changes, a later day may hold an earlier instant.
            end = end or day + step * timedelta(REACH_DAYS)
    return nearest(found)


def _days(cron: Cron, begin: date, step: int) -> Iterator[date]:
    """The matching days from this one on, in a direction."""
    for number in range(DAYS_MAX):
        day = begin + timedelta(number * step)
        if cron.names_day(day):
            yield day


def instants_of(cron: Cron, zone: tzinfo, day: date) -> list[int]:
    """Yield the instants on a matching day; unordered where the clock changes."""
    midnight = _midnight(day)
    walls = [(hour * 60 + minute) * MINUTE_MS for hour in cron.hours for minute in cron.minutes]
    if _is_steady(zone, day):
        begin = _ms(midnight.replace(tzinfo=zone))
        return [begin + wall for wall in walls]
    found = set()
    for wall in walls:
        shown = (midnight + timedelta(milliseconds=wall)).replace(tzinfo=zone)
        again = shown.replace(fold=1)
        found.add(_ms(shown))
        if cron.every_hour and _offset(again) < _offset(shown):
            found.add(_ms(again))
    return list(found)


def _is_steady(zone: tzinfo, day: date) -> bool:
    """Whether no clock change is near this day."""
    around = (_midnight(day) + timedelta(days) for days in (-1, 2))
    before, after = (_offset(shown.replace(tzinfo=zone)) for shown in around)
    return before == after


def _midnight(day: date) -> datetime:
    """The wall-clock time, without a zone."""
    return datetime(day.year, day.month, day.day)  # noqa: DTZ001  # it has no zone yet


def _offset(shown: datetime) -> timedelta:
    return shown.utcoffset() or timedelta(0)


def _ms(shown: datetime) -> int:
    return round(shown.timestamp() * 1000)
