"""Time limits stand in lines: each is kept, and what has ended leaves nothing behind."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outlive.engine.ops import ENDED_MANY, Limits


@dataclass
class Timer:
    """A callback that can be called off."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Host:
    """Virtual time: callbacks in the order in which they are due."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked = 0
        self._heap: list[tuple[float, int, Timer]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> Timer:
        self.asked += 1
        timer = Timer(callback, args)
        heapq.heappush(self._heap, (self.now + seconds, self.asked, timer))
        return timer

    def pass_to(self, instant: float) -> None:
        while self._heap and self._heap[0][0] <= instant:
            self.now, _, timer = heapq.heappop(self._heap)
            if not timer.is_cancelled:
                timer.callback(*timer.args)
        self.now = instant


def limits() -> tuple[Host, Limits[str], list[tuple[float, str]]]:
    host = Host()
    expired: list[tuple[float, str]] = []
    real: Any = host
    return host, Limits(real, lambda name: expired.append((host.now, name))), expired


def test_each_limit_is_kept_in_its_turn() -> None:
    """Whoever is still there when its time is up is told, at that time."""
    host, lines, expired = limits()
    for second in range(5):
        host.pass_to(float(second))
        lines.set(60, 60, f"at {second}")
    host.pass_to(100)

    assert [(60.0 + second, f"at {second}") for second in range(5)] == expired


def test_who_has_ended_is_not_told_and_keeps_nobody() -> None:
    """The others' limits are kept, whoever of the line has ended."""
    host, lines, expired = limits()
    first, _, third = (lines.set(60, 60, name) for name in ("a", "b", "c"))
    first.cancel()
    third.cancel()
    first.cancel()
    host.pass_to(100)
    lines.set(60, 60, "d")
    host.pass_to(200)

    assert [(60.0, "b"), (160.0, "d")] == expired


def test_who_comes_late_goes_ahead() -> None:
    """Attempts that waited for the disk, some longer than others: each is told at its own time."""
    host, lines, expired = limits()
    for name, left in (("a", 60.0), ("b", 59.5), ("c", 59.75), ("d", 59.25), ("e", 60.0)):
        lines.set(60, left, name)
    host.pass_to(100)

    assert [(59.25, "d"), (59.5, "b"), (59.75, "c"), (60.0, "a"), (60.0, "e")] == expired


def test_lateness_costs_no_timer() -> None:
    """A line has one timer, and another only when somebody goes to its very front."""
    host, lines, _ = limits()
    lines.set(60, 59.5, "first")
    for number in range(100):
        lines.set(60, 60 - number % 5 / 10, f"{number}")

    assert 1 == host.asked


def test_limits_of_other_lengths_do_not_wait_for_one_another() -> None:
    """A short one is told before a long one that was set before it."""
    host, lines, expired = limits()
    lines.set(60, 60, "long")
    lines.set(1, 1, "short")
    lines.set(60, 3, "of what is left")
    host.pass_to(100)

    assert [(1.0, "short"), (3.0, "of what is left"), (60.0, "long")] == expired


def test_a_line_of_a_million_needs_one_timer_and_little_memory() -> None:
    """Attempts that end leave the line, though the first of it is still there."""
    host, lines, _ = limits()
    lines.set(60, 60, "stuck")
    for _ in range(100_000):
        lines.set(60, 60, "quick").cancel()

    (line,) = lines._lines.values()
    assert 1 == host.asked
    assert len(line._limits) < 4 * ENDED_MANY
