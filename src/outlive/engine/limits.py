"""Time limits of attempts: one timer for all that are equally long.

Nearly every attempt ends long before its limit, and an event loop's own timers stay in its heap
until they would have been due. So attempts with the same limit stand in one line, in the order in
which it is over, and only the first of a line has a timer. They began in nearly that order, so a
place in line is found at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Generic, TypeVar

from outlive.engine.host import Cancellable, Host

T = TypeVar("T")

#: What has less than its full limit left, by more than this, has a timer of its own: it would have
#: to go far ahead in the line.
LINE_SECONDS = 1.0
#: A line is cleared of those that have ended when they are so many, and half of all.
ENDED_MANY = 64


class _Limit(Generic[T]):
    """The limit of one attempt; what it is about is forgotten when that has ended."""

    __slots__ = ("_line", "about", "due")

    def __init__(self, due: float, about: T, line: _Line[T]) -> None:
        self.due = due
        self.about: T | None = about
        self._line = line

    def cancel(self) -> None:
        if self.about is not None:
            self.about = None
            self._line.note_end()


class _Line(Generic[T]):
    """Attempts with the same limit, in the order in which it is over."""

    def __init__(self, host: Host, expire: Callable[[T], None]) -> None:
        self._host, self._expire = host, expire
        self._limits: deque[_Limit[T]] = deque()
        self._ended = 0
        self._timer: Cancellable | None = None
        #: When it is to look again.
        self._looks_at = inf

    def add(self, seconds: float, about: T) -> _Limit[T]:
        due, limits = self._host.time() + seconds, self._limits
        limit = _Limit(due, about, self)
        if not limits or limits[-1].due <= due:
            limits.append(limit)
        else:
            self._go_ahead(limit)
        if due < self._looks_at:
            self._arm(due, seconds)
        return limit

    def _go_ahead(self, limit: _Limit[T]) -> None:
        position = len(self._limits)
        while position and self._limits[position - 1].due > limit.due:
            position -= 1
        self._limits.insert(position, limit)

    def note_end(self) -> None:
        self._ended += 1
        if self._ended > ENDED_MANY and 2 * self._ended > len(self._limits):
            self._limits = deque(limit for limit in self._limits if limit.about is not None)
            self._ended = 0

    def _arm(self, due: float, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = due
        self._timer = self._host.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer, self._looks_at = None, inf
        now = self._host.time()
        while self._limits and (self._limits[0].about is None or self._limits[0].due <= now):
            about = self._limits.popleft().about
            if about is not None:
                self._expire(about)
        if self._limits and self._limits[0].due < self._looks_at:
            self._arm(self._limits[0].due, self._limits[0].due - now)


class Limits(Generic[T]):
    """The limits of all attempts on one host."""

    def __init__(self, host: Host, expire: Callable[[T], None]) -> None:
        self._host, self._expire = host, expire
        self._lines: dict[float, _Line[T]] = {}

    def set(self, full: float, seconds: float, about: T) -> Cancellable:
        """Tell of this after ``seconds``, which are left of a limit of ``full`` seconds."""
        if full - seconds > LINE_SECONDS:
            return self._host.call_later(seconds, self._expire, about)
        line = self._lines.get(full)
        if line is None:
            line = self._lines[full] = _Line(self._host, self._expire)
        return line.add(seconds, about)
