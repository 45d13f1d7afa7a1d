"""Entries with sensible defaults and a clock that only moves when told: for tests of stores."""

from __future__ import annotations

import hashlib
from typing import Any

from outlive.store import Entry, Header, Wanted

#: The lease of stores under test, and when their clock begins.
LEASE_SECONDS = 10.0
START_MS = 1_700_000_000_000

FLOW, VERSION, FORMAT = "support", "1", 3
WANTED = Wanted(flows={FLOW: frozenset({VERSION})}, format=FORMAT)


class HandClock:
    """Stands still until it is moved by hand."""

    def __init__(self) -> None:
        self.wall_ms = START_MS
        self.seconds = 100.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        """Let time go by."""
        self.wall_ms += round(seconds * 1000)
        self.seconds += seconds


def link_of(record: bytes) -> bytes:
    """A link as good as any: stores do not know how links are made."""
    return hashlib.blake2b(record, digest_size=16).digest()


def header(**changes: Any) -> Header:
    """The header of a run that is under way."""
    plain: dict[str, Any] = {
        "flow": FLOW,
        "version": VERSION,
        "format": FORMAT,
        "status": "running",
        "family": "family-1",
        "started_at": START_MS,
    }
    return Header(**(plain | changes))


def entry(run_id: str, after: int, record: bytes = b"", **changes: Any) -> Entry:
    """One event for a run, in epoch 1; the first entry brings a header along."""
    record = record or b"%d of %d" % (after + 1, len(run_id))
    plain: dict[str, Any] = {
        "run_id": run_id,
        "after": after,
        "last": after + 1,
        "epoch": 1,
        "record": record,
        "link": link_of(record),
        "header": header() if after == 0 else None,
    }
    return Entry(**(plain | changes))


def held(run_id: str, worker: str, **changes: Any) -> Entry:
    """A new run whose lease its creator takes."""
    return entry(run_id, 0, lease="take", worker=worker, **changes)


def parked(run_id: str, wake_at: int | None = None, **changes: Any) -> Entry:
    """A new run that waits, held by nobody."""
    return entry(run_id, 0, header=header(wake_at=wake_at, status="waiting", **changes))


def takeover(run_id: str, after: int, worker: str, *, epoch: int) -> Entry:
    """The claim of a run."""
    record = b"claimed by %s in %d" % (worker.encode(), epoch)
    return entry(run_id, after, record, lease="take", worker=worker, epoch=epoch)
