"""What can be asked of a store: which runs there are, what they hold, who drives them.

Nothing here drives a run or changes one.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from typing import Any

from outlive.engine.blob import Blob, read_chunks
from outlive.engine.definitions import Flow
from outlive.engine.place import refuse_in_flow
from outlive.errors import AppClosed, UsageError
from outlive.journal.codec.restore import not_found, read_whole
from outlive.journal.lane import ThreadLane
from outlive.journal.record import FORMAT
from outlive.journal.redaction import Hider
from outlive.model.defaults import FIND_LIMIT, LANE_THREADS
from outlive.model.ids import check_run_id, is_run, is_text
from outlive.model.queues import COUNT_MAX, check_count
from outlive.model.run import STATUSES
from outlive.stores.seam import Store
from outlive.stores.types import Found, Health, Page, Query, Reading, Wanted
from outlive.worker.neighbours import StoreShelf


class Looking:
    """One store, as those see it who only look."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._pid = os.getpid()
        self._hider = Hider()
        self._closed = False
        threads = getattr(store, "threads", None)
        self._lane = ThreadLane(threads if isinstance(threads, int) else LANE_THREADS)

    def _check_open(self) -> None:
        refuse_in_flow()
        if os.getpid() != self._pid:
            raise AppClosed("this process was forked; open an app of its own")
        if self._closed:
            raise AppClosed("the app was closed; open another")

    async def find(
        self,
        *,
        status: str | None = None,
        flow: str | Flow[Any, Any] | None = None,
        tag: tuple[str, str] | None = None,
        limit: int = FIND_LIMIT,
        after: str | None = None,
        keys: bool = False,
    ) -> Page:
        """A page of runs, in the order in which they were started.

        With ``keys``, the journals that stand beside those of runs, too.
        """
        self._check_open()
        query = _query(status, flow, tag, keys=keys)
        check_count("find", "limit", limit, COUNT_MAX)
        if after is not None and not is_text(after):
            raise UsageError(f"find: after={after!r}; it is the `next` of the page before")
        page = await self._lane(self.store.find(query, after, limit))
        found = [each for each in page.items if keys or is_run(each.head.run_id)]
        return Page(items=found, next=page.next)

    async def chunks(self, blob: Blob) -> AsyncIterator[bytes]:
        """The bytes of a blob, a chunk at a time, each verified."""
        self._check_open()
        async for chunk in read_chunks(StoreShelf(self.store, self._lane, blob.family), blob):
            yield chunk

    async def read(self, journal: str, after: int = 0, *, limit: int | None = None) -> Reading:
        """A run's or a key's journal as it is stored: nothing of it is verified yet."""
        self._check_open()
        check_run_id(journal if is_run(journal) else f"~{journal}")
        reading = await self._lane(read_whole(self.store, journal, after, limit=limit))
        if reading is None:
            raise await self._lane(not_found(self.store, journal))
        return reading

    async def health(self) -> Health:
        """What the store says of itself, its file looked through."""
        self._check_open()
        return await self._lane(self.store.health())

    async def unattended(self, found: Iterable[Found]) -> set[str]:
        """Those of these runs that could be driven right now and that no living worker holds.

        A worker that has their flow takes them within a moment: what is named again after that,
        nobody alive can drive.
        """
        self._check_open()
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
        # An offer is no lease: asking for some changes nothing.
        claims = await self._lane(self.store.claim("nobody", wanted, len(run_ids)))
        return {offer.head.run_id for offer in claims.offers}


def _query(status: Any, flow: Any, tag: Any, *, keys: bool) -> Query:
    """What to look for; what nobody could ever find is refused."""
    if status is not None and status not in STATUSES and not (keys and is_text(status)):
        raise UsageError(f"find: status={status!r} is no status; one of {', '.join(STATUSES)}")
    name = flow.name if isinstance(flow, Flow) else flow
    if name is not None and not is_text(name):
        raise UsageError(f"find: flow={flow!r}; give one flow, or its name")
    is_pair = isinstance(tag, tuple) and len(tag) == 2 and all(map(is_text, tag))
    if tag is not None and not is_pair:
        raise UsageError(f"find: tag={tag!r}; give a pair of texts: tag=('customer', '7')")
    return Query(status=status, flow=name, tag=tag)
