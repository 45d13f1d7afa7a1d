"""Nodes that no run will ever name: of families whose last run is gone.

A chunk of a blob is put before the record that names it. If its writer is a zombie, or a kill comes
in between, and the family goes meanwhile, the chunk stays. A family without runs is marked when it
is found, and what is left of it goes a day later, unless it has a run by then: nothing that is
about to be named is as old as that.
"""

from __future__ import annotations

from collections.abc import Callable

from outlive.collecting import Collecting
from outlive.journal.key_places import COMMON
from outlive.journal.marks import ORPHANS, drop_mark, find_marks, orphan_entry
from outlive.journal.reader import read_events
from outlive.model.events import Marked
from outlive.model.ids import OWN_PREFIX
from outlive.store import Store

#: Families that are looked at in one portion.
LOOKED_AT = 100
#: How long nodes without a run are kept.
ORPHAN_MS = 86_400_000


class Orphans:
    """One pass over a store's nodes."""

    def __init__(self, store: Store, now: int, failpoint: Callable[[str], None]) -> None:
        self._store, self._now, self._failpoint = store, now, failpoint
        self._after = ""
        #: Families of which nothing is left.
        self.dropped = 0

    async def mark_some(self) -> bool:
        """Mark what has no run; False: there is nothing more to look at."""
        store = self._store
        if not isinstance(store, Collecting):
            return False
        families = await store.families(self._after, LOOKED_AT)
        if not families:
            return False
        self._after = families[-1]
        suspects = [family for family in families if not _is_ours(family)]
        for family in await store.without_runs(suspects) if suspects else ():
            await self._store.commit([orphan_entry(family, self._now)])
            self._failpoint("retain.orphan_marked")
        return True

    async def drop_old(self) -> bool:
        """Drop what was marked long ago."""
        store = self._store
        if not isinstance(store, Collecting):
            return False
        async for found in find_marks(self._store, ORPHANS, self._now - ORPHAN_MS):
            reading = await self._store.read(found.head.run_id)
            mark = None if reading is None else read_events(reading)[0]
            if isinstance(mark, Marked):
                self.dropped += await store.drop_family(mark.by)
                self._failpoint("retain.orphan_dropped")
            await drop_mark(self._store, found.head.run_id, 0)
        return False


def _is_ours(family: str) -> bool:
    """It has no runs, and never will."""
    return family == COMMON or family.startswith(OWN_PREFIX)
