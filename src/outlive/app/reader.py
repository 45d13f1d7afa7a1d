"""Read-only queries: which runs there are, what they hold, which of them no worker holds."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable

from outlive.engine.blob import Blob, read_chunks
from outlive.engine.place import refuse_in_flow
from outlive.errors import AppClosed
from outlive.journal.codec.restore import not_found, read_whole
from outlive.journal.fork import events_of
from outlive.journal.lane import Lane, ThreadLane
from outlive.journal.record import FORMAT
from outlive.journal.redaction import Hider
from outlive.model.defaults import LANE_THREADS
from outlive.model.events import Event
from outlive.model.ids import check_run_id, is_run
from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.stores.types import Found, Health, Reading, Wanted
from outlive.worker.neighbours import StoreShelf


class StoreReader:
    """Read-only queries. The other parts of an app reach its store, clock and rules through this.

    Without a ``lane`` it has threads of its own, as many as the store can use.
    """

    def __init__(
        self,
        store: Store,
        ports: Ports,
        hider: Hider | None = None,
        lane: Lane | None = None,
    ) -> None:
        self.store, self.ports = store, ports
        self.hider = hider or Hider()
        self.is_closed = False
        self._pid = os.getpid()
        self._threads: ThreadLane | None = None
        if lane is None:
            lane = self._threads = ThreadLane(store.threads or LANE_THREADS)
        self.lane: Lane = lane

    @property
    def is_of_this_process(self) -> bool:
        """False after ``os.fork``: the threads and the store belong to the parent process."""
        return os.getpid() == self._pid

    def check_open(self) -> None:
        """Refuse to go on in a flow's code, in a forked process, or once the app is closed."""
        refuse_in_flow()
        if not self.is_of_this_process:
            raise AppClosed("this process was forked; open an app of its own")
        if self.is_closed:
            raise AppClosed("the app was closed; open another")

    def close(self) -> None:
        """End the threads; the store is still open."""
        self.is_closed = True
        if self._threads is not None:
            self._threads.close()

    async def chunks(self, blob: Blob) -> AsyncIterator[bytes]:
        """The bytes of a blob, a chunk at a time, each verified."""
        self.check_open()
        async for chunk in read_chunks(StoreShelf(self.store, self.lane, blob.family), blob):
            yield chunk

    async def read(self, journal: str, after: int = 0, *, limit: int | None = None) -> Reading:
        """The journal of a run or a key as it is stored, not verified yet."""
        self.check_open()
        check_run_id(journal if is_run(journal) else f"~{journal}")
        reading = await self.lane(read_whole(self.store, journal, after, limit=limit))
        if reading is None:
            raise await self.lane(not_found(self.store, journal))
        return reading

    async def events(self, reading: Reading) -> list[Event]:
        """All events of a journal, with those that a fork shares."""
        return await self.lane(events_of(self.store, reading))

    async def health(self) -> Health:
        """The store's own report, after a check of its file."""
        self.check_open()
        return await self.lane(self.store.health())

    async def unattended(self, found: Iterable[Found]) -> set[str]:
        """The runs among these that are due and that no living worker holds.

        A worker that has their flow claims them within a moment. A run that is named again after
        that has no living worker with its code.
        """
        self.check_open()
        flows: dict[str, set[str]] = {}
        run_ids = set()
        for run in found:
            if run.header.ended_at is None and run.header.status != "quarantined":
                flows.setdefault(run.header.flow, set()).add(run.header.version)
                run_ids.add(run.head.run_id)
        wanted = Wanted(
            flows={flow: frozenset(versions) for flow, versions in flows.items()},
            format=FORMAT,
            run_ids=frozenset(run_ids),
        )
        # An offer is not a lease: asking for offers changes nothing.
        claims = await self.lane(self.store.claim("nobody", wanted, len(run_ids)))
        return {offer.head.run_id for offer in claims.offers}
