"""Days that go by at once: a clock whose wall time is moved while its seconds stay real."""

from __future__ import annotations

from outlive.ports import SystemClock

DAY_MS = 86_400_000


class Calendar(SystemClock):
    """The machine's clock, some days ahead."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms

    def pass_days(self, days: float) -> None:
        """The wall clock goes on by so many days."""
        self._ahead_ms += round(days * DAY_MS)
