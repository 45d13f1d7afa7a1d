"""Other runs, as a run may touch them: start a child, leave mail."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from outlive.engine.definitions import Flow
from outlive.engine.drive import Drive
from outlive.engine.end import FlowEnd
from outlive.engine.host import Host
from outlive.engine.peers import Started
from outlive.errors import CorruptRecord, OutliveError, RunIdTaken, UsageError, WrongVersion
from outlive.journal.codec.parts import whole
from outlive.journal.codec.restore import read_whole
from outlive.journal.headers import find_or_begin
from outlive.journal.keeper import Keeper, commit_one
from outlive.journal.lane import Lane, run_immediate
from outlive.journal.mail import Outbox, new_mail, write_letter
from outlive.journal.reader import read_events
from outlive.model.events import (
    ChapterBegan,
    EffectDone,
    EffectIntended,
    EffectRaised,
    Fault,
    RunStarted,
)
from outlive.model.ids import readers_of
from outlive.model.mail import ChildNews, Letter, Nudge
from outlive.model.run import ENDED, fold
from outlive.stores.seam import Store
from outlive.stores.types import LAST_CHAPTER, Head, Mail, Node, Posted, Posting, Reading
from outlive.worker.chapters import read_chapter
from outlive.worker.dependencies import Setting
from outlive.worker.entries import start_entry

logger = logging.getLogger("outlive")


class StoreKin:
    """Touches other runs through the store."""

    def __init__(
        self,
        store: Store,
        lane: Lane,
        keeper: Keeper,
        host: Host,
        want: Callable[[str, bool], None],
    ) -> None:
        self._store, self._lane, self._keeper, self._host = store, lane, keeper, host
        self._want = want
        self._outbox = Outbox(store, lane, host.create_task)
        #: Told of the code of a child before it is started; refuses a namesake.
        self.learn: Callable[[Flow[Any, Any]], None] = lambda flow: None
        #: Told who has mail: a run that is driven here need not wait for a look.
        self.on_post: Callable[[str], None] = lambda run_id: None

    async def start_child(self, run_id: str, event: RunStarted, flow: Flow[Any, Any]) -> Started:
        """Start a run of its own, once."""
        refusal = self._refusal(flow)
        if refusal is not None:
            return refusal
        if await commit_one(self._keeper, self._host, start_entry(run_id, event)):
            self._tell(flow, run_id, True)
            return "started"
        found = await self._look(run_id, event, flow)
        if found == "started":
            self._tell(flow, run_id, False)
        return found

    def _refusal(self, flow: Flow[Any, Any]) -> Fault | None:
        """Why this worker must not drive runs of the flow, if so."""
        try:
            if not flow.is_name_only:
                self.learn(flow)
        except UsageError as namesake:
            return Fault("UsageError", str(namesake))
        return None

    def _tell(self, flow: Flow[Any, Any], run_id: str, is_new: bool) -> None:
        if flow.is_name_only:
            self.on_post(run_id)  # whoever has its code drives it, perhaps our worker
        else:
            self._want(run_id, is_new)

    async def _look(self, run_id: str, event: RunStarted, flow: Flow[Any, Any]) -> Started:
        """Who has the id: the child itself, begun by an earlier driver, or somebody else."""
        entry, read = start_entry(run_id, event), partial(self._read, run_id)
        try:
            reading = await find_or_begin(self._store, self._lane, entry, read)
            run = fold([] if reading is None else read_events(reading))
        except (CorruptRecord, RunIdTaken, WrongVersion) as error:
            return Fault(type(error).__name__, str(error))
        there = run.started
        if there is None:
            return Fault("RunIdTaken", "it belonged to a run that was deleted not long ago")
        why = _difference(event, there, flow)
        if why:
            return Fault("RunIdTaken", why)
        if event.is_awaited and run.status in ENDED:
            return ChildNews(run_id, run.status, run.value or b"", run.error)
        return "started"

    async def news_of(self, run_id: str) -> ChildNews | None:
        """What a child told its parent, from its own journal."""
        reading = await self._read(run_id)
        run = fold([] if reading is None else read_events(reading))
        if run.ended_at is None or run.status not in ENDED:
            return None
        return ChildNews(run_id, run.status, whole(run.value or b""), run.error)

    async def _read(self, run_id: str) -> Reading | None:
        return await self._lane(read_whole(self._store, run_id))

    def want(self, flow: Flow[Any, Any], run_id: str) -> None:
        """A child that was started: whoever drives its parent can drive it, too."""
        if self._refusal(flow) is None:
            self._want(run_id, False)

    async def post(self, run_id: str, mail_id: str, letter: Letter) -> Posted:
        """Leave mail for another run, once; one that is over or gone needs none."""
        posted = await self._outbox.post(run_id, mail_id, write_letter(run_id, mail_id, letter))
        if posted == "posted":
            self.on_post(run_id)
        return posted


def _difference(asked: RunStarted, there: RunStarted, flow: Flow[Any, Any]) -> str:
    """Why the run that is there is not the child that is asked for; empty: it is.

    Only children tell their parent how they ended, so the same flow and arguments are not enough.
    """
    if there.flow != asked.flow:
        return f"it is a run of flow {there.flow!r}, not {asked.flow!r}"
    if there.digest != asked.digest and not flow.args_codec.same(there.args, asked.args):
        return f"that run of flow {there.flow!r} has other arguments"
    if there.parent != asked.parent:
        return (
            "it has the same flow and arguments, but this run did not start it "
            "(in a step, outlive.get waits for it)"
        )
    if there.is_awaited != asked.is_awaited:
        verb = "call" if there.is_awaited else "spawn"
        return f"this run started it with outlive.{verb}"
    return ""


class StoreShelf:
    """Chunks of one family as nodes of the store."""

    def __init__(self, store: Store, lane: Lane, family: str) -> None:
        self._store, self._lane, self.family = store, lane, family

    async def put(self, node: Node) -> None:
        """Durable when this returns."""
        await self._lane(self._store.put_blob(self.family, node))

    async def get(self, family: str, address: bytes) -> bytes | None:
        """A node's bytes."""
        found = await self._lane(self._store.get_blobs(family, [address]))
        return found.get(address)

    def put_plain(self, node: Node) -> None:
        """The same, from a thread of its own."""
        run_immediate(self._store.put_blob(self.family, node))

    def get_plain(self, family: str, address: bytes) -> bytes | None:
        """The same, from a thread of its own."""
        return run_immediate(self._store.get_blobs(family, [address])).get(address)


class StorePeer:
    """Answers from the store."""

    def __init__(self, store: Store, lane: Lane) -> None:
        self._store, self._lane = store, lane

    def shelf(self, family: str) -> StoreShelf:
        """Where a family's blobs are kept."""
        return StoreShelf(self._store, self._lane, family)

    def wake_readers(self, run_id: str) -> None:
        """Wake those who read a run's streams in other processes, where the store can."""
        if self._store.watchable is not None:
            self._store.watchable.tell([readers_of(run_id)])

    async def holder_of(self, journal: str) -> tuple[str, str, bytes] | None:
        """Who holds a key: run, step, digest of its arguments."""
        reading = await self._lane(self._store.read(journal))
        if reading is None:
            return None
        holder = fold(read_events(reading)).holder
        return None if holder is None else (holder.run_id, holder.step, holder.digest)

    async def kept_end(self, journal: str, step: str) -> EffectDone | EffectRaised | None:
        """How the effect ended that a key's journal speaks of, if its run is gone."""
        reading = await self._lane(self._store.read(journal))
        kept = None if reading is None else fold(read_events(reading)).kept
        if kept is None:
            return None
        if kept.error is None and kept.happened:
            return EffectDone(0, step, 1, kept.value)
        told = Fault("NotHappened", "the run that held this key ended without using it")
        return EffectRaised(0, step, 1, kept.error or told, kept.happened)

    async def mail_of(self, run_id: str, chapter: ChapterBegan | None = None) -> Sequence[Mail]:
        """What was posted to a run, whose last chapter this is, and not consumed."""
        found = await self._lane(new_mail(self._store, {run_id: chapter}))
        return found[run_id]

    async def is_over(self, run_id: str) -> bool:
        """Whether a run has ended by its journal, or is gone.

        Nobody can go on with a damaged one: of that its header is asked.
        """
        reading = await self._lane(self._store.read(run_id, LAST_CHAPTER))
        if reading is None:
            return True
        try:
            return fold(read_events(reading, restored=False)).ended_at is not None
        except CorruptRecord as error:
            logger.error("whether it is over is told from its header: %s", error)
            return reading.header.ended_at is not None

    async def is_held(self, run_id: str, worker: str) -> bool:
        """Whether this worker still has the right to drive a run."""
        reading = await self._lane(self._store.read(run_id, 1 << 62))
        return reading is not None and reading.head.worker == worker

    async def end_of(self, run_id: str, step: str) -> EffectDone | EffectRaised | None:
        """How another run's effect ended, if it did."""
        reading = await self._lane(read_whole(self._store, run_id))
        events = [] if reading is None else read_events(reading)
        for event in reversed(events):
            # The last one: a run may have been tried again, and be about to try.
            if isinstance(event, EffectIntended) and event.step == step:
                return None
            if isinstance(event, (EffectDone, EffectRaised)) and event.step == step:
                return event
        is_whole = reading is not None and bool(reading.records) and reading.records[0].seq == 1
        if is_whole and fold(events).ended_at is not None:
            # Intents come first and are settled before a run ends: it was never attempted.
            told = Fault("NotHappened", f"run {run_id} held this key and ended without using it")
            return EffectRaised(0, step, 1, told, False)
        return None


class Postman:
    """Brings mail to the runs of one worker."""

    def __init__(
        self,
        setting: Setting,
        drives: Mapping[str, Drive],
        failed: Callable[[OutliveError], None],
    ) -> None:
        self._setting, self._drives, self._failed = setting, drives, failed
        self._expected: dict[str, None] = {}
        self._is_under_way = False

    def expect(self, run_id: str) -> bool:
        """Mail was posted to this run just now; False: the run is not in memory here."""
        if run_id not in self._drives:
            return False
        self._expected[run_id] = None
        if not self._is_under_way:
            self._is_under_way = True
            self._setting.host.create_task(self._fetch())
        return True

    async def _fetch(self) -> None:
        try:
            while self._expected:
                some = list(self._expected)
                self._expected.clear()
                await self.bring(some)
        except OutliveError as error:
            self._failed(error)
        finally:
            self._is_under_way = False

    async def bring(self, run_ids: Collection[str]) -> None:
        """What was posted to these and not consumed."""
        # Themselves, not their ids: what we bring to one that left and came back meanwhile, or has
        # begun another chapter, may have been consumed since.
        here = {each: self._drives[each] for each in run_ids if each in self._drives}
        if not here:
            return
        found: Mapping[str, Sequence[Mail]] = await self._setting.lane(
            new_mail(self._setting.store, {x: here[x].context.chapter for x in here})
        )
        for run_id, mail in found.items():
            drive = here[run_id]
            if self._drives.get(run_id) is not drive:
                self.expect(run_id)
            elif not drive.context.stopped:
                drive.mailbox.take(mail)


LOOKS_MAX = 100


class Adoption:
    """What one worker has been told of and not looked at yet."""

    def __init__(self, store: Store, lane: Lane, worker: str) -> None:
        self._store, self._lane, self._worker = store, lane, worker
        self._waiting: deque[str] = deque()

    def add(self, run_id: str) -> None:
        """This run may be asleep and have children."""
        self._waiting.append(run_id)

    async def look(self, driving: Container[str]) -> None:
        """Wake those among the next that wait for children; what is driven here needs no look."""
        some = [self._waiting.popleft() for _ in range(min(len(self._waiting), LOOKS_MAX))]
        asleep = [run_id for run_id in some if run_id not in driving]
        for run_id in await self._lane(self._parents(asleep)) if asleep else ():
            mail_id = f"nudge/{self._worker}"
            letter = write_letter(run_id, mail_id, Nudge("its children can be driven here"))
            await self._lane(self._store.post([Posting(run_id, mail_id, letter)]))

    async def _parents(self, run_ids: Sequence[str]) -> list[str]:
        return [run_id for run_id in run_ids if await self._waits_for_children(run_id)]

    async def _waits_for_children(self, run_id: str) -> bool:
        reading = await self._store.read(run_id, LAST_CHAPTER, limit=0)
        # What somebody holds, what is over and what never began waits for no child here.
        if reading is None or reading.header.ended_at is not None or not _is_parked(reading.head):
            return False
        # A damaged journal is reported when somebody loads it.
        chapter = await read_chapter(self._store, run_id)
        return chapter is not None and chapter.run.is_parked and bool(chapter.run.children)


def _is_parked(head: Head) -> bool:
    return head.worker is None and head.epoch > 0


#: How a run ended here; None: it left memory otherwise, ask the store; or an error.
News: TypeAlias = FlowEnd | OutliveError | None


class Watchers:
    """By run, who wants to be told."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[FlowEnd | None]]] = {}

    def add(self, run_id: str) -> asyncio.Future[FlowEnd | None]:
        """Done with the next news of this run."""
        future: asyncio.Future[FlowEnd | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, []).append(future)
        future.add_done_callback(partial(self._forget, run_id))
        return future

    def _forget(self, run_id: str, future: asyncio.Future[FlowEnd | None]) -> None:
        """It was told, or nobody waits any more."""
        waiting = self._waiting.get(run_id, [])
        if future in waiting:
            waiting.remove(future)
        if not waiting:
            self._waiting.pop(run_id, None)

    def tell(self, run_id: str, news: News) -> None:
        """Tell everybody who waits for this run, once."""
        for watcher in self._waiting.pop(run_id, ()):
            if watcher.done():
                continue
            if isinstance(news, OutliveError):
                watcher.set_exception(news)
            else:
                watcher.set_result(news)

    def tell_all(self, error: OutliveError | None) -> None:
        """The worker ends: nobody will hear anything from it any more."""
        for run_id in list(self._waiting):
            self.tell(run_id, error)
