"""A sweep: delete what the retention rules allow, in small portions.

Call ``step`` until it returns False, with pauses in between. A sweep can be abandoned at any
point: the next one finds the rest. Two at once do no harm: each deletion names the end of the
journal that it saw.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from typing import Any, TypeAlias, TypeVar

import msgspec

from outlive.errors import CorruptRecord, Erased, OutliveError, WrongKey, WrongVersion
from outlive.journal.codec.restore import read_whole, with_nodes
from outlive.journal.mail import write_letter
from outlive.journal.reader import read_events
from outlive.journal.retention.archive import Archive, Archived
from outlive.journal.retention.deletion import (
    Retiree,
    archived_of,
    check_family,
    delete_runs,
    gone_for_good,
    is_unchanged,
    keep_keys,
    retiree_of,
)
from outlive.journal.seal.places import COMMON
from outlive.journal.shared import (
    FORKS,
    ORPHANS,
    TURNS,
    drop_mark,
    find_marks,
    forked_among,
    orphan_entry,
)
from outlive.model.defaults import RETAIN_SECONDS
from outlive.model.events import Marked
from outlive.model.ids import ID_KEPT, KEY_PREFIX, OWN_PREFIX, is_run
from outlive.model.logs import LOGS, log_state
from outlive.model.mail import Cancel
from outlive.model.retention import Retention
from outlive.model.run import ENDED, fold
from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.stores.types import (
    LAST_CHAPTER,
    PAGE_MAX,
    Deletion,
    Found,
    Header,
    Posting,
    Query,
    Reading,
)

#: Families that are looked at in one portion.
LOOKED_AT = 100
#: The time that nodes without a run are kept.
ORPHAN_MS = 86_400_000


class Orphans:
    """Orphan collection: one pass over a store's nodes."""

    def __init__(self, store: Store, now: int, failpoint: Callable[[str], None]) -> None:
        self._store, self._now, self._failpoint = store, now, failpoint
        self._after = ""
        #: Families of which nothing is left.
        self.dropped = 0

    async def mark_some(self) -> bool:
        """Mark nodes without a run; False: the pass is complete."""
        store = self._store
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
        """Delete nodes that were marked long ago."""
        store = self._store
        async for found in find_marks(self._store, ORPHANS, self._now - ORPHAN_MS):
            reading = await self._store.read(found.head.run_id)
            mark = None if reading is None else read_events(reading)[0]
            if isinstance(mark, Marked) and not await self._is_denied(mark.by):
                self.dropped += await store.drop_family(mark.by)
                self._failpoint("retain.orphan_dropped")
            await drop_mark(self._store, found.head.run_id, 0)
        return False

    async def _is_denied(self, family: str) -> bool:
        """A run says by its journal that it belongs to this family, whatever its row says.

        A family has the id of its first run, and the ids of children begin with their parent's,
        unless they were given; a run that goes looks at those that it started itself.
        """
        page = await self._store.find(Query(prefix=f"{family[:ID_KEPT]}."), None, PAGE_MAX)
        try:
            for run_id in (family, *(found.head.run_id for found in page.items)):
                await check_family(self._store, run_id)
        except UNREADABLE as error:
            logger.error("its family's values are kept: %s", error)
            return True
        return False


def _is_ours(family: str) -> bool:
    """Whether a family has no runs, and never will."""
    return family == COMMON or family.startswith(OWN_PREFIX)


logger = logging.getLogger("outlive")

#: Runs that are examined, archived in one file, deleted in one commit: few, because on one file
#: all others wait for a writer.
RUNS_AT_ONCE = 6
#: More on a server, where each portion costs a round trip and a flush: 200 made the p99 of effects
#: beside it four times as long, 40 less than twice.
RUNS_AT_ONCE_SERVED = 40
#: The factor for runs found in one query, and for the events of a portion; a run with more events
#: is deleted alone.
LOOKED_AT_PER_RUN, EVENTS_PER_RUN = 5, 100
#: Bytes of journals after which an archive's file is closed.
ARCHIVED_BYTES = 8 * 1024 * 1024
#: The age at which leftover marks are removed.
MARK_MS = 86_400_000
LIVE = ("pending", "running", "waiting", "in_doubt", "quarantined")
#: Errors that keep a run from being read, and so from being deleted.
UNREADABLE = (CorruptRecord, WrongVersion, WrongKey, Erased)

T = TypeVar("T")
Phase: TypeAlias = Callable[[], Coroutine[Any, Any, bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a sweep: what may go, the archive, and the period."""

    retention: Retention
    archive: Archive | None = None
    period_seconds: float = RETAIN_SECONDS


class SweptRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a rule applies to, and its fate."""

    run: str
    flow: str
    status: str
    #: The time of its end; of a silent run: of its last write.
    at: int
    #: "deleted", "cancelled", or the reason why it is kept.
    fate: str


@dataclass(slots=True)
class Swept:
    """The result of a sweep."""

    fates: Counter[str] = field(default_factory=Counter)
    #: Keys of deleted runs whose window is over.
    keys: int = 0
    #: Keys of logs whose window is over.
    log_keys: int = 0
    #: Families of which only nodes were left.
    families: int = 0
    #: Each run, if the caller wants to see them.
    seen: list[SweptRun] = field(default_factory=list)


class Sweep:
    """One pass over a store."""

    def __init__(  # noqa: PLR0913 - which parts of it are left out, each by name
        self,
        store: Store,
        rules: Rules,
        ports: Ports,
        *,
        dry_run: bool = False,
        silent: bool = True,
        orphans: bool = True,
    ) -> None:
        self._store, self._ports = store, ports
        self._rules, self._archive = rules.retention, rules.archive
        self._dry_run = dry_run
        self._now = ports.clock.now_ms()
        self.swept = Swept()
        self._after: str | None = None
        self._newest: dict[str, list[tuple[int, str]]] = {}
        self._spared: frozenset[str] = frozenset()
        #: Found and not examined; examined and archived.
        self._size = runs_at_once(store)
        self._doomed: deque[Found] = deque()
        self._ready: deque[tuple[Retiree, Header]] = deque()
        self._orphans = Orphans(store, self._now, ports.failpoint)
        self._phases = self._plan(silent=silent, orphans=orphans)

    def _plan(self, *, silent: bool, orphans: bool) -> deque[Phase]:
        phases: deque[Phase] = deque()
        if self._rules.keeps_last:
            phases.append(self._find_newest)
        if self._rules.youngest_ms is not None:
            phases.append(self._find_old)
        if silent and self._rules.shortest_ttl_ms is not None:
            phases += [self._silent(status) for status in LIVE]
        if not self._dry_run:
            phases += [self._clear_keys, self._clear_logs, self._clear_turns, self._clear_forks]
        if orphans and not self._dry_run:
            phases += [self._orphans.mark_some, self._clear_orphans]
        return phases

    def doom(self, found: Found) -> None:
        """Delete this run, and no other, whatever its age."""
        self._phases.clear()
        self._doomed.append(found)

    async def step(self) -> bool:
        """Do a small portion of work; False: the sweep is complete."""
        if self._ready:
            await self._delete_some()
        elif self._doomed:
            await self._take_leave()
        elif self._phases and not await self._phases[0]():
            self._phases.popleft()
            self._after = None
        return bool(self._ready or self._doomed or self._phases)

    @property
    def _looked_at(self) -> int:
        return min(PAGE_MAX, self._size * LOOKED_AT_PER_RUN)

    def _portion(self, waiting: deque[T], events: Callable[[T], int]) -> list[T]:
        """The next few runs with few events in all; at least one."""
        some: list[T] = []
        left = self._size * EVENTS_PER_RUN
        while waiting and len(some) < self._size and (not some or events(waiting[0]) <= left):
            some.append(waiting.popleft())
            left -= events(some[-1])
        return some

    async def _page(self, query: Query, limit: int) -> tuple[Sequence[Found], bool]:
        page = await self._store.find(query, self._after, limit)
        self._after = page.next
        return page.items, page.next is not None

    def _tell(self, run_id: str, header: Header, at: int, fate: str) -> None:
        self.swept.fates[fate] += 1
        if self._dry_run:
            seen = SweptRun(run=run_id, flow=header.flow, status=header.status, at=at, fate=fate)
            self.swept.seen.append(seen)

    # which runs

    async def _find_newest(self) -> bool:
        """The runs of each flow that ended last."""
        items, more = await self._page(Query(ended_by=self._now), PAGE_MAX)
        for found in items:
            header = found.header
            count = self._rules.rules_for(header.flow).keep_last
            if count and header.ended_at is not None and is_run(found.head.run_id):
                kept = self._newest.setdefault(header.flow, [])
                push = heappush if len(kept) < count else heappushpop
                push(kept, (header.ended_at, found.head.run_id))
        if not more:
            self._spared = frozenset(name for kept in self._newest.values() for _, name in kept)
            self._newest = {}
        return more

    async def _find_old(self) -> bool:
        youngest = self._rules.youngest_ms
        assert youngest is not None, "or nobody would look"
        items, more = await self._page(Query(ended_by=self._now - youngest), self._looked_at)
        for found in items:
            if is_run(found.head.run_id) and found.header.status in ENDED:
                self._consider(found)
        return more

    def _consider(self, found: Found) -> None:
        header = found.header
        age, ended_at = self._rules.age_ms(header.flow, header.status), header.ended_at
        if age is None or ended_at is None or ended_at + age > self._now:
            return
        if found.head.run_id in self._spared:
            self._tell(found.head.run_id, header, ended_at, "kept: among the last of its flow")
        else:
            self._doomed.append(found)

    # taking leave

    async def _take_leave(self) -> None:
        """Examine some runs, and archive those that may be deleted."""
        some = self._portion(self._doomed, lambda found: found.head.seq)
        reasons = await self._needed(some)
        for found in some:
            if found.head.run_id in reasons:
                self._keep(found, reasons[found.head.run_id])
        going = [found for found in some if found.head.run_id not in reasons]
        readings = await self._readings(going)
        leaving: list[tuple[Retiree, Header]] = []
        archived: list[Archived] = []
        size = 0
        for found in going:
            if size > ARCHIVED_BYTES:
                self._doomed.append(found)
                continue
            looked_at = await self._look_at(found, readings.get(found.head.run_id))
            if looked_at is not None:
                retiree, reading = looked_at
                leaving.append((retiree, found.header))
                archived.append(archived_of(reading))
                size += sum(len(record.body) for record in reading.records)
                size += sum(map(len, reading.nodes.values()))
        if self._archive is not None and archived and not self._dry_run:
            await self._archive.keep(archived)
            self._ports.failpoint("retain.archived")
        self._ready.extend(leaving)

    async def _readings(self, some: Sequence[Found]) -> Mapping[str, Reading]:
        try:
            return await self._store.read_all([found.head.run_id for found in some])
        except UNREADABLE:
            return await self._readable(some)

    async def _readable(self, some: Sequence[Found]) -> Mapping[str, Reading]:
        """Read runs one by one, so that an unreadable one does not block the others."""
        readings: dict[str, Reading] = {}
        for found in some:
            try:
                readings.update(await self._store.read_all([found.head.run_id]))
            except UNREADABLE as error:
                self._keep_unread(found, error)
        return readings

    async def _look_at(
        self, found: Found, reading: Reading | None
    ) -> tuple[Retiree, Reading] | None:
        if reading is None or not is_unchanged(reading, found):
            return None  # somebody went on with it, or was faster
        try:
            if self._archive is not None:
                reading = await with_nodes(self._store, reading)
            retiree = await retiree_of(self._store, reading, self._now)
            for child in retiree.children:
                await check_family(self._store, child)
            return retiree, reading
        except UNREADABLE as error:
            self._keep_unread(found, error)
            return None

    def _keep_unread(self, found: Found, error: OutliveError) -> None:
        logger.error("not deleted: %s", error)
        self._keep(found, "kept: its journal can't be read")

    def _keep(self, found: Found, why: str) -> None:
        self._tell(found.head.run_id, found.header, found.header.ended_at or 0, why)

    async def _needed(self, some: Sequence[Found]) -> Mapping[str, str]:
        """Find which of these runs others need, and why. Read after them: nothing is missed.

        Forking an ended run moves its end, so that its deletion is refused.
        """
        forked = await forked_among(self._store, [found.head.run_id for found in some])
        reasons: dict[str, str] = {}
        parents: dict[str, bool] = {}
        for found in some:
            run_id, parent = found.head.run_id, found.header.parent
            if run_id in forked:
                reasons[run_id] = "kept: a fork was made of it"
            elif parent is not None:
                if parent not in parents:
                    parents[parent] = await self._may_ask_again(parent)
                if parents[parent]:
                    reasons[run_id] = "kept: its parent lives, or may be tried again"
        return reasons

    async def _may_ask_again(self, parent: str) -> bool:
        reading = await self._store.read(parent, LAST_CHAPTER)
        if reading is None:
            return False
        if reading.header.ended_at is None or reading.header.status == "failed":
            return True
        try:
            run = fold(read_events(reading, restored=False))
        except UNREADABLE as error:
            logger.error("its children are not deleted: %s", error)
            return True
        return run.ended_at is None or run.status == "failed"

    async def _delete_some(self) -> None:
        some = self._portion(self._ready, lambda ready: ready[0].seq)
        gone = await self._delete([retiree for retiree, _ in some])
        for retiree, header in some:
            if retiree.run_id in gone:
                self._tell(retiree.run_id, header, header.ended_at or 0, "deleted")

    async def _delete(self, retirees: Sequence[Retiree]) -> set[str]:
        if self._dry_run:
            return {each.run_id for each in retirees}
        stuck: frozenset[str] = frozenset()
        if any(each.keys for each in retirees):
            stuck = await keep_keys(self._store, retirees)
            self._ports.failpoint("retain.keys_kept")
        until = self._ports.clock.now_ms() + self._rules.id_window_ms
        going = [each for each in retirees if each.run_id not in stuck]
        answers = await delete_runs(self._store, going, until)
        self._ports.failpoint("retain.deleted")
        return {each.run_id for each, gone in zip(going, answers, strict=True) if gone}

    # runs that write nothing

    def _silent(self, status: str) -> Phase:
        async def look() -> bool:
            items, more = await self._page(Query(status=status), self._looked_at)
            for found in items:
                await self._look_at_silent(found)
            return more

        return look

    async def _look_at_silent(self, found: Found) -> None:
        head, header = found.head, found.header
        ttl = self._rules.ttl_ms(header.flow)
        has_mail = head.posted != head.consumed
        if ttl is None or not header.flow or header.started_at + ttl > self._now or has_mail:
            return
        reading = await read_whole(self._store, head.run_id, LAST_CHAPTER)
        if reading is None:
            return
        try:
            run = fold(read_events(reading))
        except (CorruptRecord, WrongVersion):
            return  # whoever loads it says so
        wrote_at = header.started_at + run.at
        if wrote_at + ttl > self._now:
            return
        if not self._dry_run:
            mail_id = f"ttl/{reading.head.seq}"
            wish = Cancel("retention: it wrote nothing for its ttl")
            letter = write_letter(head.run_id, mail_id, wish)
            await self._store.post([Posting(head.run_id, mail_id, letter)])
            self._ports.failpoint("retain.cancelled")
        self._tell(head.run_id, header, wrote_at, "cancelled: it wrote nothing for its ttl")

    # what outlived its run

    async def _clear_keys(self) -> bool:
        """Delete keys whose run and its tombstone are gone."""
        by = self._now - self._rules.id_window_ms
        items, more = await self._page(Query(prefix=KEY_PREFIX, ended_by=by), self._looked_at)
        holders = {name: run_id for name, run_id in await self._holders(items) if run_id}
        free = await gone_for_good(self._store, set(holders.values()))
        batch = [
            Deletion(run_id=found.head.run_id, seq=found.head.seq, digest=b"", keep_until=self._now)
            for found in items
            if holders.get(found.head.run_id) in free
        ]
        self.swept.keys += sum(await self._store.delete(batch)) if batch else 0
        return more

    async def _holders(self, keys: Sequence[Found]) -> list[tuple[str, str]]:
        """Find keys, and the runs that hold them."""
        found: list[tuple[str, str]] = []
        for name, reading in (await self._readings(keys)).items():
            try:
                holder = fold(read_events(reading)).holder
            except UNREADABLE as error:
                logger.error("not deleted: %s", error)
            else:
                found.append((name, "" if holder is None else holder.run_id))
        return found

    async def _clear_logs(self) -> bool:
        """Delete keys of logs whose window is over, or that were dropped; the journal says so."""
        items, more = await self._page(Query(prefix=LOGS, ended_by=self._now), self._looked_at)
        batch: list[Deletion] = []
        for name, reading in (await self._readings(items)).items():
            try:
                state = log_state(read_events(reading, restored=False))
            except UNREADABLE as error:
                logger.error("not deleted: %s", error)
                continue
            if state.is_over(self._now) or state.is_dropped:
                gone = Deletion(run_id=name, seq=reading.head.seq, digest=b"", keep_until=0)
                batch.append(gone)
        self.swept.log_keys += sum(await self._store.delete(batch)) if batch else 0
        return more

    async def _clear_orphans(self) -> bool:
        await self._orphans.drop_old()
        self.swept.families = self._orphans.dropped
        return False

    async def _clear_turns(self) -> bool:
        async for found in find_marks(self._store, TURNS, self._now - MARK_MS):
            await drop_mark(self._store, found.head.run_id, self._now)
        return False

    async def _clear_forks(self) -> bool:
        """Delete marks of forks that are gone, or were never made."""
        async for found in find_marks(self._store, FORKS, self._now - MARK_MS):
            reading = await self._store.read(found.head.run_id)
            mark = None if reading is None else read_events(reading)[0]
            fork = getattr(mark, "by", None)
            if fork is not None and await self._store.read(fork, 1 << 62, limit=0) is None:
                await drop_mark(self._store, found.head.run_id, self._now)
        return False


def runs_at_once(store: Store) -> int:
    """The number of runs that are deleted in one commit."""
    return RUNS_AT_ONCE if store.threads is None else RUNS_AT_ONCE_SERVED
