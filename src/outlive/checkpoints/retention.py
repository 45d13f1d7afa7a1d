"""Which runs have checkpoints, and clearing away those that are over and old.

A run that is under way is never cleared: not by when it began, and not because nobody said that it
is over, unless it is asked for by name of an age since its last word. That age also tells who held
a run and died from who holds it: there is no other sign of life.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from outlive.checkpoints.snapshot import instant_of
from outlive.journal.reader import read_first
from outlive.model.checkpoints import Checkpoints, CheckpointsBegan
from outlive.model.ids import CHECKPOINTS
from outlive.stores.seam import Store
from outlive.stores.types import PAGE_MAX, Found, Query


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointedRun:
    """A run that has checkpoints, at a glance."""

    run_id: str
    #: "running", "succeeded", "failed" or "canceled".
    status: str
    #: When its checkpoints began.
    started_at: datetime
    #: When its owner said that it is over; None: it goes on.
    ended_at: datetime | None


async def find_journals(
    store: Store, status: str | None = None, ended_by: int | None = None
) -> AsyncIterator[Found]:
    """The journals of checkpoints, in the order in which they began."""
    after = None
    while True:
        query = Query(prefix=CHECKPOINTS, status=status, ended_by=ended_by)
        page = await store.find(query, after, PAGE_MAX)
        for found in page.items:
            yield found
        after = page.next
        if after is None:
            return


async def find_runs(store: Store, status: str | None) -> list[CheckpointedRun]:
    """All runs that have checkpoints, or those of a status."""
    return [
        await run_of(store, found)
        async for found in find_journals(store, status)
        if found.header.status != "cleared"
    ]


async def run_of(store: Store, found: Found) -> CheckpointedRun:
    """What a header says of a run."""
    header = found.header
    return CheckpointedRun(
        run_id=await run_id_of(store, found.head.run_id),
        status=header.status,
        started_at=instant_of(header.started_at),
        ended_at=None if header.ended_at is None else instant_of(header.ended_at),
    )


async def run_id_of(store: Store, journal: str) -> str:
    """Whose journal this is; one with a long id is asked."""
    if journal.startswith(f"{CHECKPOINTS}/"):
        return journal[len(CHECKPOINTS) + 1 :]
    reading = await store.read(journal, limit=1)
    first = None if reading is None else read_first(reading, restored=False)
    return first.run_id if isinstance(first, CheckpointsBegan) else journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """How old the checkpoints of a run must be to go, in ms; None: they stay."""

    succeeded: int | None = None
    failed: int | None = None
    canceled: int | None = None
    #: Of a run that nobody ended: since it was last heard of.
    unfinished: int | None = None

    def is_over(self, fold: Checkpoints, now: int) -> bool:
        """Whether a run's checkpoints may go."""
        brief = fold.brief
        if brief is None:
            return False
        if brief.status == "cleared":
            return True
        if brief.ended_at is None:
            since, age = brief.started_at + fold.at, self.unfinished
        else:
            since, age = brief.ended_at, getattr(self, brief.status)
        return age is not None and since + age <= now


async def candidates(store: Store, age: Age, now: int) -> list[str]:
    """Runs whose checkpoints may be old enough; who clears them looks again."""
    found = [each async for each in find_journals(store, ended_by=now)]
    if age.unfinished is not None:
        found += [each async for each in find_journals(store, status="running")]
    return [await run_id_of(store, each.head.run_id) for each in found]
