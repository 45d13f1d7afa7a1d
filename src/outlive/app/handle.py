"""Handles: status, outcome, events of a run, and mail to it. All of it comes from durable facts."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from outlive.app.feed import Follower, RunEvent, decoded, value_of
from outlive.app.forks import Forks
from outlive.app.mail import Letterbox, Letterboxes, Question
from outlive.app.streams import Chunk, check_read, chunk_of
from outlive.app.workers import Workers
from outlive.engine.definitions import Flow, registry
from outlive.engine.end import FlowEnd
from outlive.engine.faults import exception_of
from outlive.engine.inputs import decode_as
from outlive.engine.notices import (
    Notices,
    OnWait,
    Wait,
    check_on_wait,
    stopped_by,
    unattended,
    wait_of,
)
from outlive.engine.place import refuse_in_flow
from outlive.errors import (
    AppClosed,
    CorruptRecord,
    NoReply,
    OutliveError,
    RequestRefused,
    RunCancelled,
    RunEnded,
    RunFailed,
    RunNotFound,
    RunQuarantined,
    TimedOut,
)
from outlive.journal.codec.codec import Codec, codec_for
from outlive.journal.codec.restore import read_whole
from outlive.journal.fork import events_of
from outlive.journal.reader import Tail, read_events
from outlive.journal.record import FORMAT
from outlive.model.defaults import HANDLE_POLL_SECONDS
from outlive.model.events import Event, Fault, QuestionAsked, Replied
from outlive.model.retry import Duration, parse_duration
from outlive.model.run import ENDED, Run, fold
from outlive.model.usage import Usage
from outlive.ports import Ports
from outlive.stores.types import LAST_CHAPTER, Head, Header, Reading, Wanted
from outlive.worker.poison import frees
from outlive.worker.worker import Worker

#: Looks at a run that stands still before its journal is verified, once.
STILL_LOOKS = round(1.0 / HANDLE_POLL_SECONDS)
#: Looks at a run that stands still before it is asked whether a living worker has it, and how often
#: it must have been free: one that has just become due is free for a moment.
FORSAKEN_LOOKS = 5 * STILL_LOOKS
OFFERS_MIN = 2
#: How often, and among how many, the run is looked for that keeps the one above it from going on.
LOOKS_BELOW = 5 * STILL_LOOKS
BELOW_MAX = 20

T = TypeVar("T")
#: Makes a fork of a run.
Fork: TypeAlias = "Callable[..., Awaitable[Handle[Any]]]"
R = TypeVar("R")


class Handle(Generic[T]):
    """One run: its status, its outcome, its events, and what it is told.

    ``id`` names it. Awaiting the handle is awaiting its ``outcome()``.
    """

    def __init__(
        self,
        letterbox: Letterbox,
        *,
        flow: Flow[..., Any] | None = None,
        worker: Worker | None = None,
        fork: Fork | None = None,
        notices: Notices | None = None,
    ) -> None:
        self._fork, self._notices = fork, notices or Notices(Ports().clock)
        self.id = letterbox.run_id
        self._letterbox = letterbox
        self._store, self._lane = letterbox.store, letterbox.lane
        self._flow, self._worker = flow, worker
        self._process = os.getpid()
        #: Told when the run ends here, so that the store need not be asked for what was had.
        self._told: asyncio.Future[FlowEnd | None] | None = None
        if worker is not None and worker.is_driving(self.id):
            self._told = worker.watch(self.id)
            self._told.add_done_callback(_noticed)

    def __repr__(self) -> str:
        return f"<Handle of run {self.id!r}>"

    def __await__(self) -> Generator[Any, None, T]:
        return self.outcome().__await__()

    async def status(self) -> str:
        """The run's status."""
        return (await self._read(after_all=True)).header.status

    async def outcome(self, timeout: Duration | None = None, on_wait: OnWait = "log") -> T:
        """What the flow returned, once it has.

        While the run waits for somebody (a doubt, a question, a signal, code that fits, a worker)
        that is logged as a warning, at once and then rarely; with ``on_wait="raise"`` it is raised.

        Raises:
            RunFailed: the run failed.
            RunCancelled: somebody stopped it.
            RunQuarantined: it killed its workers too often.
            TimedOut: it was not over in time; the run itself goes on.
            InDoubt: only a human can tell whether an effect happened (``on_wait="raise"``).
            Waiting: it waits for somebody (``on_wait="raise"``).
        """
        check_on_wait(on_wait)
        if timeout is None and on_wait == "log":
            return await self._outcome(on_wait)
        late = (
            f"run {self.id} was not over within {_spelt(timeout)}, and goes on as it can; "
            f"`outlive show {self.id}` says what it waits for"
        )
        if on_wait == "log":
            return await _within(timeout, self._outcome(on_wait), late)
        with self._notices.raised(self.id):
            return await _within(timeout, self._outcome(on_wait), late)

    async def _outcome(self, on_wait: OnWait = "log") -> T:
        self._check_process()
        if (had := self._had()) is not None:
            return self._value(had.status, had.value, had.error)
        still: Still | None = None
        while True:
            if self._worker is not None and self._worker.will_tell(self.id):
                is_here = self._worker.is_driving(self.id)
                verdict = await self._driven_here(
                    self._worker, None if is_here else HANDLE_POLL_SECONDS
                )
                if verdict is not None:
                    return self._value(verdict.status, verdict.value, verdict.error)
            still = still or Still()
            reading = await self._read(after_all=True)
            if reading.header.status in ENDED:
                run = await self._ended()
                if run is not None:
                    return self._value(run.status, run.value, run.error)
                continue  # somebody gave it another try
            if reading.header.status == "quarantined" and not frees(self.id, reading.mail):
                raise RunQuarantined(self.id, reading.header.reason)
            await self._look_closer(reading, still, on_wait)
            if self._worker is None:
                await asyncio.sleep(HANDLE_POLL_SECONDS)
            else:
                await self._driven_here(self._worker, HANDLE_POLL_SECONDS)

    async def _ended(self) -> Run | None:
        """The fold of a run whose header says that it is over; None: it says so no more.

        Raises:
            CorruptRecord: the journal does not end; nobody will drive it, so nobody may wait.
        """
        reading = await self._read_chapter()
        run = fold(read_events(reading))
        if run.status in ENDED:
            return run
        if reading.header.status in ENDED:
            shown = f"its header says {reading.header.status}, its journal does not end"
            raise CorruptRecord(self.id, reading.head.seq, shown)
        return None

    async def _look_closer(self, reading: Reading, still: Still, on_wait: OnWait) -> None:
        """Tell the caller why a run that it waits for does not continue."""
        if still.is_long(reading.head):
            await self.run()  # nobody goes on with a journal that can't be read: say so
        wait = await self._wait(reading, still)
        if wait is not None:
            self._notices.raise_or_tell(wait, on_wait)

    async def _wait(self, reading: Reading, still: Still) -> Wait | None:
        """What keeps the run from going on by itself; looked up once for each place."""
        head, header = reading.head, reading.header
        if head.posted == head.consumed and header.status in ("waiting", "in_doubt", "undoing"):
            if still.seen != head.seq or (still.wait is None and still.is_time(LOOKS_BELOW)):
                still.seen, still.wait = head.seq, await self._look_up()
            return still.wait
        still.seen, still.wait = 0, None
        if header.reason and still.is_time(STILL_LOOKS):
            return stopped_by(self.id, header.flow, header.reason)  # its mail does not help it
        if self._worker is None and still.may_be_forsaken() and self._is_due(reading):
            still.offers = still.offers + 1 if await self._is_offered(header) else 0
        is_forsaken = still.offers >= OFFERS_MIN
        return unattended(self.id, header.flow) if is_forsaken else None

    def _is_due(self, reading: Reading) -> bool:
        """Somebody could drive it now, or does."""
        head, header = reading.head, reading.header
        has_mail, wake_at = head.posted != head.consumed, header.wake_at
        return has_mail or (wake_at is not None and wake_at <= self._notices.clock.now_ms())

    async def _is_offered(self, header: Header) -> bool:
        """No living worker holds it. An offer is no lease: asking for some changes nothing."""
        able = {header.flow: frozenset({header.version})}
        wanted = Wanted(flows=able, format=FORMAT, run_ids=frozenset({self.id}))
        return bool((await self._lane(self._store.claim("nobody", wanted, 1))).offers)

    async def _look_up(self) -> Wait | None:
        """Of this run, or of the runs that it waits for, and so on."""
        below = deque([self.id])
        for _ in range(BELOW_MAX):
            if not below:
                break
            run_id = below.popleft()
            reading = await self._lane(read_whole(self._store, run_id, LAST_CHAPTER))
            if reading is None or reading.head.posted != reading.head.consumed:
                continue
            run = fold(await self._lane(events_of(self._store, reading)))
            if (wait := wait_of(run_id, run)) is not None:
                return wait
            below += [child.child_id for child in run.children.values() if child.is_awaited]
        return None

    def _had(self) -> FlowEnd | None:
        """How the run ended here, if that can't change: another try is for those that failed."""
        told = self._told
        if told is None or not told.done() or told.cancelled() or told.exception() is not None:
            return None
        verdict = told.result()
        return verdict if verdict is not None and verdict.status == "completed" else None

    async def _driven_here(self, worker: Worker, seconds: float | None = None) -> FlowEnd | None:
        """How a run ended in this process; None when the store must be asked."""
        if worker.failure is not None:
            raise worker.failure
        watcher = worker.watch(self.id)
        if seconds is None:
            return await watcher
        done, _ = await asyncio.wait([watcher], timeout=seconds)
        if not done:
            watcher.cancel()
            return None
        return watcher.result()

    async def run(self) -> Run:
        """The state of the run: the fold of its journal."""
        return fold(read_events(await self._read_chapter()))

    async def _read_chapter(self) -> Reading:
        reading = await self._lane(read_whole(self._store, self.id, LAST_CHAPTER))
        if reading is None:
            raise RunNotFound(self.id)
        return reading

    async def read(self) -> list[Event]:
        """All events so far, verified."""
        return read_events(await self._read())

    async def usage(self) -> dict[str, Usage]:
        """What models were used for in this run, by model, as far as it is durable."""
        return dict((await self.run()).usage)

    async def published(self) -> dict[str, Any]:
        """The newest value of each name that the run published, as far as it is durable."""
        codec = self._codec()
        run = await self.run()
        return {name: value_of(each, codec) for name, each in run.published.items()}

    async def stream(self, name: str, after: int = 0) -> AsyncGenerator[Chunk, None]:
        """The chunks of a stream behind an offset, as they become durable, until the run is over.

        A chunk with ``reset`` withdraws what its ``step`` wrote before: another attempt of it
        begins. Leaving the loop ends the reading, not the run.

        Raises:
            RunNotFound: there is no such run.
            CorruptRecord: a record is damaged, or a chunk is not where it must be.
        """
        self._check_process()
        check_read(name, after)
        codec, feeds = self._codec(), self._letterbox.feeds
        async with aclosing(feeds.read(self._woken_follower, self.id, name, after)) as found:
            async for item in found:
                yield chunk_of(item, codec)

    async def events(self, after: int = 0) -> AsyncGenerator[RunEvent, None]:
        """Every event after a seq, as it becomes durable, until the run is over.

        Each has ``kind``, ``at`` (a datetime), ``step``, ``args``, ``value`` and ``error``,
        decoded; ``raw`` is the event as it is stored.
        """
        started_at = (await self._read(after_all=True)).header.started_at
        codec, now = self._codec(), started_at
        async with aclosing(self._follower().events(Tail())) as found:
            async for seq, event in found:
                now = max(now, started_at + getattr(event, "at", 0))
                if seq > after:
                    yield decoded(seq, now, event, codec)

    def _follower(self) -> Follower:
        return Follower(self.id, self._store, self._lane, self._worker)

    def _woken_follower(self) -> Follower:
        follower = self._follower()
        follower.is_woken = True
        return follower

    async def fork(
        self,
        at: int | None = None,
        set: Mapping[str, object] | None = None,
        id: str | None = None,
        by: str = "",
    ) -> Handle[T]:
        """Start a run that continues after event ``at`` of this one, which does not change.

        ``set={"plan#1": value}`` gives that step another outcome; what came after it runs again.

        Raises:
            ForkRefused: it can't be forked there; the message says where it can.
        """
        assert self._fork is not None, "whoever makes a handle can fork"
        return await self._fork(self.id, at=at, set=set, id=id, by=by)

    # mail

    async def cancel(self, by: str = "") -> None:
        """Ask the run to stop: at its next durable point, what happened is undone.

        Raises:
            RunEnded: it is over.
        """
        await self._letterbox.cancel(by)

    async def signal(
        self, name: str, value: object = None, id: str | None = None, by: str = ""
    ) -> bool:
        """Send a signal, kept until the flow takes it with ``wait_signal``; ``by`` says who does.

        False: one of that id was sent before, and this one changes nothing.

        Raises:
            RunEnded: the run is over.
        """
        return await self._letterbox.signal(name, value, id, by)

    async def signal_json(self, name: str, raw: bytes, id: str | None = None, by: str = "") -> bool:
        """``signal`` with JSON, for callers that do not have the flow's types."""
        return await self._letterbox.signal_json(name, raw, id, by)

    async def questions(self) -> list[Question]:
        """The questions that the run asks and nobody has answered yet."""
        return await self._letterbox.questions()

    async def question(self, timeout: Duration | None = None) -> Question:
        """The first question that the run asks, as soon as it asks one.

        Raises:
            TimedOut: it asked nothing in time.
            RunEnded: it is over.
        """
        limit = _spelt(timeout)
        late = f"run {self.id} asked nothing within {limit}; `outlive show {self.id}` says why"
        return await _within(timeout, self._question(), late)

    async def _question(self) -> Question:
        tail = Tail((await self._read(after_all=True)).head)
        if asked := await self.questions():
            return asked[0]
        async with aclosing(self._follower().events(tail)) as found:
            async for _, event in found:
                if isinstance(event, QuestionAsked) and (asked := await self.questions()):
                    return asked[0]
        raise RunEnded(self.id, await self.status())

    async def answer(
        self, value: object, question_id: str | Question | None = None, by: str = ""
    ) -> Question:
        """Answer the only open question, or the one named; which one it was is returned.

        A ``Question`` instead of its id is answered only if it is still asked as it was shown.

        Raises:
            QuestionNotOpen: the run does not wait for this answer, or asks more than one thing.
            AnswerRefused: the answer is not what the question asks for.
            RunEnded: the run is over.
        """
        return await self._letterbox.answer(value, question_id, by)

    async def request(
        self,
        name: str,
        value: object,
        id: str | None = None,
        timeout: Duration | None = None,
        type: Any = Any,
    ) -> Any:
        """Send a message and wait for the flow's reply; the same id again gets the same reply.

        ``type`` is the type of the reply, if it is a class of yours.

        Raises:
            TimedOut: there was no reply in time; ask again with the same id.
            RequestRefused: the flow could not read the message.
            NoReply: the run ended without one.
        """
        request_id = id or self._letterbox.new_id()
        late = (
            f"run {self.id} did not reply to request {request_id} within {_spelt(timeout)}; "
            "ask again with the same id: the message is not sent twice"
        )
        reply = await _within(timeout, self._request(name, value, request_id), late)
        if reply.error is not None:
            why = f"{reply.error.type_name}: {reply.error.message}"
            raise RequestRefused(self.id, request_id, why)
        return decode_as(type, reply.value, is_json=False)

    async def _request(self, name: str, value: object, request_id: str) -> Replied:
        head = (await self._read(after_all=True)).head
        is_new = await self._letterbox.signal(name, value, request_id)
        # The reply to a message that is just being sent can't be in the journal yet.
        tail = Tail(head if is_new else None)
        telling = asyncio.ensure_future(self._tell_waits())
        try:
            async with aclosing(self._follower().events(tail)) as found:
                async for _, event in found:
                    if isinstance(event, Replied) and event.signal_id == request_id:
                        return event
        finally:
            telling.cancel()
        header = (await self._read()).header
        raise NoReply(self.id, request_id, header.status, header.reason)

    async def _tell_waits(self) -> None:
        """While somebody waits for a reply: say what keeps the run from going on."""
        still = Still()
        with suppress(OutliveError):  # whoever reads the journal beside this is told
            while True:
                await asyncio.sleep(HANDLE_POLL_SECONDS)
                await self._look_closer(await self._read(after_all=True), still, "log")

    def _check_process(self) -> None:
        refuse_in_flow()
        if self._process != os.getpid():
            raise AppClosed("this process was forked; open an app of its own")

    async def _read(self, *, after_all: bool = False) -> Reading:
        self._check_process()
        after = 1 << 62 if after_all else 0
        reading = await self._lane(read_whole(self._store, self.id, after))
        if reading is None:
            raise RunNotFound(self.id)
        return reading

    def _value(self, status: str, value: bytes | None, fault: Fault | None) -> T:
        codec = self._codec()
        if status == "cancelled":
            raise RunCancelled(self.id)
        if fault is not None:
            failed = RunFailed(self.id, fault.type_name, fault.message)
            raise failed from exception_of(fault, {}, codec)
        outcome: T = codec.decode(value or b"")
        return outcome

    def _codec(self) -> Codec:
        if self._flow is not None:
            return self._flow.value_codec
        return codec_for([], registry)


class Handles:
    """Makes handles for an app."""

    def __init__(
        self, letterboxes: Letterboxes, forks: Forks, workers: Workers, notices: Notices
    ) -> None:
        self.letterboxes, self._forks = letterboxes, forks
        self._workers, self._notices = workers, notices

    def of(
        self, run_id: str, flow: Flow[Any, Any] | None = None, worker: Worker | None = None
    ) -> Handle[Any]:
        """The handle of a run; with the worker that drives it, if that is in this process."""
        fork, letterbox = partial(self.fork, flow), self.letterboxes.of(run_id)
        return Handle(letterbox, flow=flow, worker=worker, fork=fork, notices=self._notices)

    async def fork(self, flow: Flow[Any, Any] | None, run_id: str, **how: Any) -> Handle[Any]:
        """Fork a run, and have a worker of this loop continue the fork."""
        name = await self._forks.fork(run_id, **how)
        workers = self._workers.here
        for worker in workers:
            worker.want(name)
        return self.of(name, flow, workers[0] if workers else None)


class Still:
    """How long a run has not moved, for somebody who waits for it."""

    def __init__(self) -> None:
        self._head: Head | None = None
        self._looks = 0
        #: What it waits for, and the seq at which that was looked up.
        self.wait: Wait | None = None
        self.seen = 0
        #: How often in a row the store offered it to whoever asks.
        self.offers = 0

    def is_long(self, head: Head) -> bool:
        """Whether it stands where it did for so many looks; told once for each place."""
        self._looks = self._looks + 1 if head == self._head else 0
        self._head = head
        self.offers = self.offers if self._looks else 0
        return self._looks == STILL_LOOKS

    def may_be_forsaken(self) -> bool:
        """It has not moved for so long that it is worth asking whether anybody drives it."""
        return self.is_time(STILL_LOOKS if self.offers == 1 else FORSAKEN_LOOKS)

    def is_time(self, looks: int) -> bool:
        """It has not moved for so many looks, or for so many more."""
        return self._looks > 0 and self._looks % looks == 0


async def _within(timeout: Duration | None, work: Awaitable[R], late: str) -> R:
    """What comes of this, if it comes in time."""
    if timeout is None:
        return await work
    try:
        async with asyncio.timeout(parse_duration(timeout)):
            return await work
    except TimeoutError:
        raise TimedOut(late) from None


def _spelt(timeout: Duration | None) -> str:
    return f"{timeout:g} s" if isinstance(timeout, int | float) else str(timeout)


def _noticed(told: asyncio.Future[FlowEnd | None]) -> None:
    """Whoever waits for the outcome hears of a failure; nobody may."""
    if not told.cancelled():
        told.exception()
