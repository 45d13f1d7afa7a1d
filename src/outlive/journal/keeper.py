"""The journal keeper: one writer for all runs of a process, one flush for all of a tick.

Runs append events to their ``RunLog`` and go on at once; a log that has something new marks itself
here. The keeper takes everything that is marked, makes one record per run of it, commits them
as one batch, and tells each run up to which seq it is durable. What is appended meanwhile goes
into the next batch: outcome N and intent N+1 of a run travel together, and runs share flushes. A
store that works in another process gets the first of many runs before the turn is over, so that
neither waits for the other.

``Keeper`` is the logic; whoever owns it decides where ``flush_once`` runs: ``ThreadKeeper`` gives
it a thread of its own, a simulation calls it at seeded instants. A failed commit is the keeper's
end: every log fails, nothing is tried again (an fsync that failed may have dropped the data).
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from outlive.errors import AppClosed, LeaseLost, OutliveError, RunError, StoreFailed
from outlive.journal.lane import Pace, run_immediate
from outlive.ports import Clock, SystemClock
from outlive.stores.seam import Store
from outlive.stores.types import Conflict, Entry

logger = logging.getLogger("outlive")

#: So many runs with something to write are enough for a server to begin with.
EARLY_RUNS = 40


class Side(Protocol):
    """Where a run lives: the thread that appends and that wants to be told."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> object:
        """Call later in this thread's turn."""
        ...

    def call_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        """Call on the side's thread, from any other; a side that is gone hears nothing."""
        ...


class Log(Protocol):
    """What the keeper needs of a ``RunLog``."""

    run_id: str
    side: Side
    marked_at: int
    #: Appended, and not taken.
    queue: Any

    def take(self) -> Entry | None:
        """What was appended and not yet taken, as one entry; not more than a store takes."""
        ...

    def settle(self, upto: int, error: OutliveError | None) -> None:
        """On the log's side: durable up to this seq, or failed."""
        ...


#: None: durable. A conflict: refused. An error: nobody knows, and nothing is tried again.
Answer: TypeAlias = Conflict | OutliveError | None


class Loose:
    """An entry that belongs to no log here (a claim, a key), and who wants its answer."""

    __slots__ = ("answer", "entry", "side")

    def __init__(self, entry: Entry, side: Side, answer: Callable[[Answer], None]) -> None:
        self.entry, self.side, self.answer = entry, side, answer


async def commit_one(keeper: Keeper, side: Side, entry: Entry) -> bool:
    """Whether the entry is in; it is durable then. Raises what kept the keeper from answering."""
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def settle(answer: Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    keeper.submit(Loose(entry, side, settle))
    answer = await answered
    if isinstance(answer, OutliveError):
        raise answer
    return answer is None


@dataclass(slots=True)
class Counters:
    """What the keeper did; exact, so that tests can assert it."""

    flushes: int = 0
    entries: int = 0
    #: The most flushes that anything waited for, its own included.
    flushes_waited_max: int = 0


class Keeper:
    """Takes what is marked, commits it, tells everybody."""

    def __init__(
        self,
        store: Store,
        ring: Callable[[], None],
        flush_here: Callable[[Side], bool] | None = None,
    ) -> None:
        self.counters = Counters()
        self.failure: OutliveError | None = None
        #: Called once, on the keeper's thread, when it can't go on.
        self.on_end: list[Callable[[OutliveError], None]] = []
        self._store = store
        #: Marks at which the bell rings early; never, if the store works at the price of the side.
        self._early = EARLY_RUNS if store.threads is not None else -1
        self._ring = ring
        self._flush_here = flush_here
        #: The side whose thread flushes by itself just now, if one does, and what it is told.
        self.here: Side | None = None
        self.told_here: list[tuple[Any, ...]] = []
        #: A batch that was taken and not written, because the store was busy.
        self._kept: tuple[list[Loose], list[Log], list[Entry]] | None = None
        self._marked: deque[Log] = deque()
        self._loose: deque[Loose] = deque()
        #: The sides themselves, not their ids: an id may soon be another's.
        self._ringing: set[Side] = set()
        #: In the order of their coming, so that they are told in it.
        self._logs: dict[Log, None] = {}

    def mark(self, log: Log) -> None:
        """This log has something new. The bell rings at the end of the side's turn, or early."""
        log.marked_at = self.counters.flushes
        self._marked.append(log)
        side = log.side
        if side not in self._ringing:
            self._ringing.add(side)
            side.call_soon(self._ring_now, side)
        if len(self._marked) == self._early:
            self._ring()

    def submit(self, loose: Loose) -> None:
        """Commit this entry with the next batch and answer."""
        if self.failure is not None:
            raise self.failure
        self._loose.append(loose)
        self._ring_after_turn(loose.side)

    def adopt(self, log: Log) -> None:
        """Tell this log, too, when the keeper ends."""
        if self.failure is not None:
            raise self.failure
        self._logs[log] = None

    def forget(self, log: Log) -> None:
        """The log's run left memory."""
        self._logs.pop(log, None)

    def _ring_after_turn(self, side: Side) -> None:
        if side not in self._ringing:
            self._ringing.add(side)
            side.call_soon(self._ring_now, side)

    def _ring_now(self, side: Side) -> None:
        self._ringing.discard(side)
        if self._flush_here is None or not self._flush_here(side):
            self._ring()

    @property
    def is_for_one(self) -> bool:
        """A single run is in memory, and only it has something to write, if anybody has."""
        return len(self._logs) <= 1 and len(self._marked) + len(self._loose) <= 1

    async def flush_once(self, *, at_once: bool = False) -> bool:
        """One batch: all that is there now. Never raises; a failure ends the keeper.

        False: it was to be written at once or not at all, and the store is busy; it is kept.
        """
        if self.failure is not None:
            return True  # and everybody hears of that
        taken = self._kept or self._take()
        if self._kept is not None:
            self._kept = None
            self._ring()  # for what came since
        loose, logs, batch = taken
        if not batch:
            return True
        try:
            if at_once or len(batch) == 1:
                answers = await self._store.commit(batch, wait=not at_once)
            else:
                answers = await self._commit(batch)
        except OutliveError as error:
            self._loose.extend(loose)
            self.end(error)
            return True
        except BaseException as error:
            self._loose.extend(loose)
            self.end(StoreFailed(f"the store broke its promise: {error!r}"))
            raise
        if answers is None:
            self._kept = taken
            return False
        self.counters.flushes += 1
        self.counters.entries += len(batch)
        self._tell(batch, answers, loose, logs)
        return True

    async def _commit(self, batch: list[Entry]) -> Sequence[Conflict | None] | None:
        """An answer per entry, and nobody who asks for an id in use may fence that run's driver.

        A store refuses whatever follows a refused entry of the same run in the same batch, so
        those who would create a run come last.
        """
        if len({entry.run_id for entry in batch}) == len(batch):
            return await self._store.commit(batch)
        order = sorted(range(len(batch)), key=lambda position: batch[position].after == 0)
        done = await self._store.commit([batch[position] for position in order])
        answers = dict(zip(order, done, strict=True))
        return [answers[position] for position in range(len(batch))]

    def _take(self) -> tuple[list[Loose], list[Log], list[Entry]]:
        loose: list[Loose] = []
        logs: list[Log] = []
        batch: list[Entry] = []
        strangers: set[str] = set()
        for _ in range(len(self._loose)):
            stranger = self._loose.popleft()
            if stranger.entry.run_id in strangers:
                # Nor may one stranger's entry get another's refused: a worker that lost the race
                # for a run, and the one that won it and has something to say.
                self._loose.append(stranger)
                self._ring()
                continue
            loose.append(stranger)
            batch.append(stranger.entry)
            strangers.add(stranger.entry.run_id)
        for _ in range(len(self._marked)):
            log = self._marked.popleft()
            if log.run_id in strangers:
                # A stranger's entry for this run must not get the driver's refused with it.
                self._marked.append(log)
                self._ring()
                continue
            waited = self.counters.flushes - log.marked_at + 1
            try:
                entry = log.take()
            except Exception as bug:  # one whose events can't be written stops alone
                _stop(log, bug)
                continue
            if entry is not None:
                logs.append(log)
                batch.append(entry)
                if log.queue:
                    self._marked.append(log)
                    self._ring()
                if waited > self.counters.flushes_waited_max:
                    self.counters.flushes_waited_max = waited
        return loose, logs, batch

    def _tell(self, batch: list[Entry], answers: Any, loose: list[Loose], logs: list[Log]) -> None:
        sides: dict[int, tuple[Side, list[tuple[Any, ...]]]] = {}
        for each, answer in zip(loose, answers, strict=False):
            calls = sides.setdefault(id(each.side), (each.side, []))[1]
            calls.append((each.answer, answer))
        first = len(loose)
        for position, log in enumerate(logs, first):
            entry, conflict = batch[position], answers[position]
            error = None if conflict is None else LeaseLost(entry.run_id)
            calls = sides.setdefault(id(log.side), (log.side, []))[1]
            calls.append((log.settle, entry.last, error))
        for side, calls in sides.values():
            if side is self.here:
                self.told_here = calls
            else:
                _tell_side(side, calls)

    def end(self, error: OutliveError) -> None:
        """Nothing is durable from here on: fail everything that waits, once."""
        if self.failure is not None:
            return
        self.failure = error
        for log in list(self._logs):
            log.side.call_threadsafe(log.settle, 0, error)
        while self._loose:
            loose = self._loose.popleft()
            loose.side.call_threadsafe(loose.answer, error)
        for notify in self.on_end:
            notify(error)


def _stop(log: Log, bug: Exception) -> None:
    logger.error("run %s: what it recorded can't be written", log.run_id, exc_info=bug)
    error = RunError(f"run {log.run_id}: what it recorded can't be written: {bug!r}")
    log.side.call_threadsafe(log.settle, 0, error)


def _tell_side(side: Side, calls: list[tuple[Any, ...]]) -> None:
    try:
        side.call_threadsafe(_call_all, calls)
    except Exception:
        # A loop that can't be told must not keep the others' answers from them.
        logger.exception("a loop does not take the journal keeper's answers")


def _call_all(calls: list[tuple[Any, ...]]) -> None:
    for position, call in enumerate(calls, 1):
        try:
            call[0](*call[1:])
        except Exception:
            # One run's trouble must not keep the answers of the others from them.
            logger.exception("an answer of the journal keeper was not taken")
        except BaseException:  # it ends the loop, which may be run again to its end
            _call_all(calls[position:])
            raise


class ThreadKeeper:
    """A keeper with a thread of its own, for stores whose verbs never suspend.

    Handing a batch to that thread and hearing of it takes about as long as a quick disk needs to
    flush it. So while a single run is in memory and the disk is quick, its own thread flushes: in
    the same turns, with the same code. One flush at a time, whoever makes it.
    """

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        # The bell is one token: ringing it twice before the keeper looks is ringing it once.
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._rung = False
        self._flushing = threading.Lock()
        self._pace = Pace(clock or SystemClock())
        self.keeper = Keeper(store, self._ring, self._flush_here)
        self._thread = threading.Thread(target=self._main, name="outlive-keeper", daemon=True)
        self._thread.start()

    def _flush_here(self, side: Side) -> bool:
        """Flush on the side's own thread, if that is quicker for all concerned."""
        if not self._pace.is_quick or not self.keeper.is_for_one:
            return False
        if not self._flushing.acquire(blocking=False):
            return False
        keeper = self.keeper
        keeper.here = side
        try:
            is_done = self._flush(at_once=True)
        finally:
            told, keeper.told_here, keeper.here = keeper.told_here, [], None
            self._flushing.release()
        _call_all(told)  # it may lead to user code, for which nobody else must wait
        return is_done

    def _flush(self, *, at_once: bool = False) -> bool:
        began = self._pace.begin()
        try:
            is_done = run_immediate(self.keeper.flush_once(at_once=at_once))
        except BaseException as error:
            # The keeper can't die alone: who waits for it would wait for ever.
            self.keeper.end(StoreFailed(f"the journal keeper died: {error!r}"))
            raise
        self._pace.note(began, is_done=is_done)
        return is_done

    def _ring(self) -> None:
        if not self._rung:
            self._rung = True
            self._bell.put(True)

    def _main(self) -> None:
        is_open = True
        while is_open:
            is_open = self._bell.get()
            self._rung = False
            with self._flushing:
                self._flush()

    def close(self) -> None:
        """Write what is queued, then end. Closing twice is fine."""
        self._bell.put(False)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self.keeper.end(AppClosed("the app was closed"))
