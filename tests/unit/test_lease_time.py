"""Until when a lease holds, as far as its holder may know."""

from __future__ import annotations

from outlive.testing.clock import FakeClock
from outlive.worker.heartbeat import LeaseTime


def test_a_beat_that_was_under_way_for_too_long_is_a_lapse() -> None:
    """Others may have taken the silence for an end before it arrived."""
    clock = FakeClock()
    lease = LeaseTime(clock, 3.0)
    lease.renewed(clock.monotonic())
    since = lease.lapses
    clock.advance(2)
    sent_at = clock.monotonic()

    clock.advance(2)
    lease.renewed(sent_at)

    assert not lease.holds(since)
