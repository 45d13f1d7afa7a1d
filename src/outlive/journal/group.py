"""Group commit for shared journals: all appends of a process that are there share one flush.

Whoever wants to append leaves an ``Append``. One thread at a time has the *turn*: it takes all that
were left, lets each decide on the state as it will be after those before it, makes one record per
journal, and commits them as one batch. Nobody is told anything before that is durable: not of an
entry, and not of a refusal that another's entry is the reason for.

A conflict means that another process was faster: those concerned read on and decide again. Where
one append is for several journals, the batch is committed as a whole or not at all; after a
conflict each of these is tried alone.

Plain code waits for the turn and takes it itself, on its own thread. A loop's appends are flushed
at the end of its turn, on a thread beside it, or on its own while that is quick.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeAlias, TypeVar

from outlive.errors import (
    AppClosed,
    CorruptRecord,
    OutliveError,
    StoreFailed,
    UsageError,
    ValueRefused,
)
from outlive.journal.lane import Lane, Pace, ThreadLane, aside, run_immediate
from outlive.journal.shared import TRIES_MAX, Draft, SharedJournal, busy, committed, taken
from outlive.model.events import Event
from outlive.ports import Clock
from outlive.stores.seam import Store
from outlive.stores.types import Conflict, Entry

logger = logging.getLogger("outlive")

T = TypeVar("T")
#: Bytes of values after which a batch is full; what is left goes with the next one.
BATCH_BYTES_MAX = 8 * 1024 * 1024

Journal: TypeAlias = SharedJournal[Any]
#: From the states of the journals to what is appended to each of them.
Decide: TypeAlias = Callable[[Sequence[Any]], Sequence[Sequence[Event]]]


class Append(Generic[T]):
    """An append that is under way, to one journal or to several at once."""

    __slots__ = ("_error", "_value", "answer", "decide", "is_alone", "is_done", "journals", "loop",
                 "tries", "waiter")  # fmt: skip

    def __init__(
        self, journals: Sequence[Journal], decide: Decide, answer: Callable[[Sequence[Any]], T]
    ) -> None:
        self.journals, self.decide, self.answer = journals, decide, answer
        self.tries = 0
        #: Its end is certain. Set while somebody has the turn.
        self.is_done = False
        #: It is not to be in one batch with others.
        self.is_alone = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.waiter: asyncio.Future[None] | None = None
        self._value: T | None = None
        self._error: BaseException | None = None

    @property
    def is_joint(self) -> bool:
        """Whether what it appends to several journals stands and falls together."""
        return len(self.journals) > 1

    @property
    def is_dropped(self) -> bool:
        """Nobody waits for it any more, and nothing of it has begun."""
        return self.waiter is not None and self.waiter.cancelled()

    @property
    def is_refused(self) -> bool:
        """Whether it ends with an error."""
        return self._error is not None

    def states(self) -> list[Any]:
        """The folds of its journals."""
        return [journal.fold for journal in self.journals]

    def hold(self, error: BaseException | None) -> None:
        """Keep how it ends until that is certain."""
        self._error = error

    def hold_answer(self) -> None:
        """Keep what it answers: the state goes on before it is told."""
        try:
            self._value = self.answer(self.states())
        except Exception as error:
            self._error = error

    def result(self) -> T:
        """What it answered, or the refusal."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # it is done


class Counts:
    """What was done; exact, so that tests can assert it."""

    __slots__ = ("appends", "commits")

    def __init__(self) -> None:
        self.appends = self.commits = 0


class GroupCommit:
    """The appends of a process to the shared journals of one store."""

    def __init__(self, store: Store, lane: Lane, clock: Clock) -> None:
        self.store = store
        self.counts = Counts()
        self._lane = lane
        self._pace = Pace(clock)
        self._pending: deque[Append[Any]] = deque()
        self._turn = threading.Lock()
        #: The thread that decides just now: its ``decide`` may not append.
        self._decider: int | None = None
        self._ringing: set[asyncio.AbstractEventLoop] = set()

    async def append(self, append: Append[T]) -> T:
        """Carry it out on behalf of this loop."""
        self._check()
        if not isinstance(self._lane, ThreadLane):
            await self._lane(self._carry_out([append]))
            return append.result()
        append.loop = loop = asyncio.get_running_loop()
        append.waiter = loop.create_future()
        self._pending.append(append)
        if loop not in self._ringing:
            self._ringing.add(loop)
            loop.call_soon(self._begin, loop)
        await append.waiter
        return append.result()

    def append_here(self, append: Append[T]) -> T:
        """Carry it out on this thread, which waits; whether a loop runs here does not matter."""
        self.append_all_here([append])
        return append.result()

    def append_all_here(self, appends: Sequence[Append[Any]]) -> None:
        """Carry these out on this thread."""
        self._check()
        run_immediate(self._carry_out(appends))
        self._hand_over()

    async def _carry_out(self, appends: Sequence[Append[Any]]) -> None:
        self._pending.extend(appends)
        for append in appends:
            await self._finish(append)

    async def _finish(self, append: Append[Any]) -> None:
        while not append.is_done:
            done: list[Append[Any]] = []
            try:
                with self._turn:
                    if not append.is_done:
                        await self._flush(done)
            finally:
                self._tell(done)

    def _check(self) -> None:
        if self._decider == threading.get_ident():
            raise UsageError(
                "a decide function appends to nothing itself: it returns what is to be appended"
            )

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """At the end of a loop's turn: flush what is there."""
        self._ringing.discard(loop)
        assert isinstance(self._lane, ThreadLane), "nobody rings without one"
        try:
            self._lane.start(self._drain(), here=self._pace.is_quick)
        except (AppClosed, RuntimeError) as error:
            done: list[Append[Any]] = []
            while self._pending:
                self._fail(self._take(), AppClosed(f"the app was closed ({error})"), done)
            self._tell(done)

    async def _drain(self) -> None:
        """Flush until nothing is left; whoever has the turn already does it."""
        while self._pending and self._turn.acquire(blocking=False):
            began = self._pace.begin()
            done: list[Append[Any]] = []
            try:
                await self._flush(done)
            finally:
                self._turn.release()
                self._pace.note(began)
                self._tell(done)

    def _hand_over(self) -> None:
        """A loop left something while a plain thread had the turn: now it is the loop's."""
        for append in list(self._pending):
            if append.loop is not None:
                with suppress(RuntimeError):  # it was closed
                    append.loop.call_soon_threadsafe(self._begin, append.loop)
                return

    def _take(self) -> list[Append[Any]]:
        found: list[Append[Any]] = []
        while self._pending and not (found and self._pending[0].is_alone):
            append = self._pending.popleft()
            if append.is_dropped:
                continue
            found.append(append)
            if append.is_alone:
                break
        return found

    async def _flush(self, done: list[Append[Any]]) -> None:
        """Carry out what was left, in one batch; adds those that have come to their end."""
        some = self._take()
        if not some:
            return
        try:
            await Round(self, some, done).run()
        except ValueRefused as error:  # too large, perhaps only all together
            if len(some) == 1:
                self._fail(some, error, done)
            self._again([each for each in some if not each.is_done], alone=True)
        except Exception as error:
            self._fail(some, error, done)
        except BaseException as error:
            self._fail(some, StoreFailed(f"the append was interrupted: {error!r}"), done)
            raise
        else:
            self._again([each for each in some if not each.is_done])

    def _again(self, some: Sequence[Append[Any]], *, alone: bool = False) -> None:
        """Let these decide again, before all others; those for several journals one by one."""
        for each in some:
            each.is_alone = alone or each.is_joint
        self._pending.extendleft(reversed(some))

    def _fail(
        self, some: Iterable[Append[Any]], error: BaseException, done: list[Append[Any]]
    ) -> None:
        for each in some:
            if not each.is_done:
                each.hold(error)
                each.is_done = True
                done.append(each)

    def _tell(self, done: Sequence[Append[Any]]) -> None:
        """Tell all loops that wait for these, each once."""
        self.counts.appends += len(done)
        loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        for each in done:
            if each.loop is not None and each.waiter is not None:
                loops.setdefault(each.loop, []).append(each.waiter)
        for loop, waiters in loops.items():
            if loop is _loop_here():
                _wake(waiters)
                continue
            with suppress(RuntimeError):  # it was closed
                loop.call_soon_threadsafe(_wake, waiters)

    def decide(self, append: Append[Any]) -> Sequence[Sequence[Event]] | None:
        """What it appends; None: it refuses, for a reason that is kept."""
        self._decider = threading.get_ident()
        try:
            events = append.decide(append.states())
        except Exception as error:
            append.hold(error)
            return None
        finally:
            self._decider = None
        append.hold(None)
        return events


def _loop_here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wake(waiters: Sequence[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


class Round:
    """One batch: these appends decide, and what they append is committed."""

    def __init__(
        self, group: GroupCommit, appends: Sequence[Append[Any]], done: list[Append[Any]]
    ) -> None:
        self._group, self._appends, self._done = group, appends, done
        self._uses = Counter(journal for each in appends for journal in each.journals)
        #: Read in this round: what they say is certain.
        self._fresh: set[Journal] = set()
        self._broken: dict[Journal, Exception] = {}
        self._drafts: dict[Journal, Draft[Any]] = {}
        #: Of those that appended, decided on the state after them, or refused: in their order.
        self._decided: list[Append[Any]] = []
        self._eager: set[Append[Any]] = set()

    async def run(self) -> None:
        """Carry it out. Those that are not done then must decide again."""
        locked: list[Journal] = []
        try:
            for journal in self._uses:
                if not journal.lock.acquire(blocking=False):
                    await aside()
                    journal.lock.acquire()
                locked.append(journal)
            await self._read()
            await self._decide()
            await self._commit()
        except BaseException:
            for journal in locked:
                journal.forget()  # nobody knows what is stored, and what was only meant to be
            raise
        finally:
            for journal in locked:
                journal.lock.release()

    # reading

    async def _read(self) -> None:
        """Read the journals that nothing is known of, and those that may have moved on."""
        late = {journal for each in self._appends if each.tries for journal in each.journals}
        unread = [journal for journal in self._uses if journal in late or not journal.is_read]
        self._fresh.update(unread)
        new = [journal for journal in unread if journal.head is None and journal not in late]
        if len(new) > 1 and await self._read_all(new):
            unread = [journal for journal in unread if journal not in set(new)]
        for journal in unread:
            try:
                await journal.read_on()
            except OutliveError as error:
                self._broken[journal] = error

    async def _read_all(self, new: Sequence[Journal]) -> bool:
        """Read many at once; False: one of them is damaged."""
        await aside()
        try:
            readings = await self._group.store.read_all([journal.id for journal in new])
            for journal in new:
                journal.take_reading(readings.get(journal.id))
        except CorruptRecord:
            return False
        return True

    # deciding

    async def _decide(self) -> None:
        size = 0
        for append in self._appends:
            if size > BATCH_BYTES_MAX:
                return  # the others with the next batch
            broken = next((j for j in append.journals if j in self._broken), None)
            if broken is not None:
                append.hold(self._broken[broken])
                self._fresh.update(append.journals)
                self._decided.append(append)
                continue
            self._decided.append(append)
            events = self._group.decide(append)
            if events is not None:
                size += await self._add(append, events)

    async def _add(self, append: Append[Any], events: Sequence[Sequence[Event]]) -> int:
        """Add what it appends to the drafts; their growth in bytes."""
        is_eager = any(self._uses[journal] > 1 for journal in append.journals)
        grown = 0
        for journal, some in zip(append.journals, events, strict=True):
            if some:
                draft = self._drafts.get(journal)
                if draft is None:
                    draft = self._drafts[journal] = await journal.draft()
                before = draft.size
                draft.add(some, applies=is_eager)
                grown += draft.size - before
        if is_eager:
            self._eager.add(append)
            append.hold_answer()
        return grown

    # committing

    async def _commit(self) -> None:
        entries = {journal: draft.entry() for journal, draft in self._drafts.items()}
        refused = await self._committed(entries) if entries else {}
        for journal, entry in entries.items():
            if journal in refused:
                self._drafts[journal].take_back()
            else:
                self._drafts[journal].take_in(entry)
        self._settle(refused)

    async def _committed(self, entries: dict[Journal, Entry]) -> dict[Journal, Conflict | None]:
        """Commit; returns the journals to which nothing was appended."""
        batch, store = list(entries.values()), self._group.store
        is_joint = len(batch) > 1 and any(each.is_joint for each in self._decided)
        self._group.counts.commits += 1
        if is_joint:
            await aside()
            answers = await store.commit_together(batch)
        else:
            answers = await committed(store, batch)
        if is_joint and any(answers):
            return dict(zip(entries, answers, strict=True))
        return {
            journal: answer
            for journal, answer in zip(entries, answers, strict=True)
            if answer is not None
        }

    def _settle(self, refused: dict[Journal, Conflict | None]) -> None:
        """Answer those whose end is certain; the others decide again."""
        for append in self._decided:
            conflicts = [refused[journal] for journal in append.journals if journal in refused]
            gone = [j for j in append.journals if (c := refused.get(j)) is not None and c.gone]
            if gone:
                append.hold(taken(gone[0].id))
            elif conflicts or not all(map(self._is_certain, append.journals)):
                append.tries += 1
                if append.tries < TRIES_MAX:
                    continue
                append.hold(busy(append.journals[0].id))
            elif append not in self._eager and not append.is_refused:
                append.hold_answer()
            append.is_done = True
            self._done.append(append)

    def _is_certain(self, journal: Journal) -> bool:
        """Its state was up to date: it was read, or a commit has checked it."""
        return journal in self._fresh or journal in self._drafts
