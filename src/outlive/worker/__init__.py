"""Leases, recovery, timers: who drives which run, and what happens when one dies."""
