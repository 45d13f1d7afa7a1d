"""A clock whose wall time is moved, or set wrong, while its seconds stay real."""

from __future__ import annotations

from outlive.ports import SystemClock

DAY_MS = 86_400_000


class ShiftedClock(SystemClock):
    """The machine's clock, ahead of its time, or behind (below 0)."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms

    def pass_days(self, days: float) -> None:
        """The wall clock goes on by so many days."""
        self._ahead_ms += round(days * DAY_MS)
