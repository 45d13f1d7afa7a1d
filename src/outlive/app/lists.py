"""Lists across runs: which there are, what they ask, what is in doubt, who works, what moves."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack

import msgspec

from outlive.app.mail import Question, open_questions
from outlive.app.reader import StoreReader
from outlive.engine.definitions import Flow
from outlive.engine.notices import doubt_of
from outlive.errors import DefinitionRefused, OutliveError, RunNotFound, UsageError
from outlive.journal.headers import OpenQuestion, read_questions
from outlive.journal.reader import Chain, begin_of, read_events
from outlive.model.defaults import COUNTED_MAX, FIND_LIMIT, HANDLE_POLL_SECONDS
from outlive.model.ids import is_run, is_text
from outlive.model.queues import COUNT_MAX, check_count
from outlive.model.retry import Duration, parse_duration
from outlive.model.run import STATUSES, fold
from outlive.stores.types import (
    LAST_CHAPTER,
    PAGE_MAX,
    Count,
    Found,
    Page,
    Query,
    WorkerState,
    instant,
)
from outlive.worker.heartbeat import read_info

if TYPE_CHECKING:
    from outlive.views.rows import Row

#: An instant: a time with its zone, or how long ago ("1h").
When: TypeAlias = datetime | Duration
#: The first poll for changes comes sooner.
_POLL_SECONDS_FIRST = 0.02
_PLACE = re.compile(r"(\d{1,18})\.((?:[0-9a-f]{2}){1,64})", re.ASCII)
_TEXTS = ("version", "parent", "queue", "worker", "prefix", "error")


class RunFilters(TypedDict, total=False):
    """What runs are found by."""

    status: str | Sequence[str] | None
    flow: str | Flow[Any, Any] | None
    version: str | None
    tag: tuple[str, str] | Mapping[str, str] | None
    parent: str | None
    queue: str | None
    worker: str | None
    prefix: str | None
    error: str | None
    since: When | None
    until: When | None
    ended_since: When | None
    ended_until: When | None
    newest: bool
    keys: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuestion:
    """A question that a run asks, with the run."""

    run: str
    flow: str
    question: Question

    @property
    def text(self) -> str:
        """The question, as a person reads it."""
        return self.question.text

    @property
    def schema(self) -> dict[str, Any] | None:
        """JSON schema of the answer; None: any value."""
        return self.question.schema

    @property
    def by(self) -> str | None:
        """Who should answer, if the flow says so."""
        return self.question.by

    @property
    def until(self) -> datetime | None:
        """When its time limit passes, if it has one."""
        return self.question.until


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDoubt:
    """An effect of which nobody knows whether it happened."""

    run: str
    flow: str
    step: str
    key: str
    #: What went wrong, on one line.
    why: str
    #: Who can tell: a person (``human``), or its driver, by the effect's check or by repeating it.
    settled_by: Literal["human", "driver"]
    #: What a person does next.
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerListed:
    """A worker, as it says of itself."""

    id: str
    host: str
    pid: int
    #: None: it does not beat any more, and still holds runs.
    beat_at: datetime | None
    #: By flow, the versions that it drives.
    flows: Mapping[str, Sequence[str]]
    #: How many runs it holds.
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """A run that has moved, as it is now."""

    run: Found
    #: Give this as ``after`` to go on from here; the changes that were read together come again.
    cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePage:
    """Some rows of a run's timeline, and where the next ones begin."""

    rows: Sequence[Row]
    #: None: these are the last ones, as yet.
    next: str | None


class RunLists:
    """Read-only lists across runs."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader

    async def find(
        self, *, limit: int = FIND_LIMIT, after: str | None = None, **asked: Unpack[RunFilters]
    ) -> Page:
        """A page of runs in the order of their starts; ``keys`` adds the journals of keys."""
        reader, keys = self._reader, asked.get("keys", False)
        reader.check_open()
        query = self._query("find", asked, keys=keys)
        check_count("find", "limit", limit, COUNT_MAX)
        if after is not None and not is_text(after):
            raise UsageError(f"find: after={after!r}; it is the `next` of the page before")
        page = await reader.lane(reader.store.find(query, after, limit))
        found = [each for each in page.items if keys or is_run(each.head.run_id)]
        return Page(items=found, next=page.next)

    async def count(self, *, most: int = COUNTED_MAX, **asked: Unpack[RunFilters]) -> Count:
        """How many runs there are, up to so many."""
        self._reader.check_open()
        check_count("count", "most", most, COUNTED_MAX)
        query = self._query("count", asked, keys=False)
        return await self._reader.lane(self._reader.store.count(query, most))

    async def questions(self, limit: int = PAGE_MAX) -> list[RunQuestion]:
        """The questions that wait for an answer, those of the oldest runs first."""
        self._reader.check_open()
        check_count("questions", "limit", limit, COUNT_MAX)
        found: list[RunQuestion] = []
        async for run in self._all(Query(runs=True, is_asking=True)):
            for each in await self._asked_by(run):
                found.append(RunQuestion(run=run.id, flow=run.flow, question=each))
            if len(found) >= limit:
                break
        return found[:limit]

    async def _asked_by(self, run: Found) -> Sequence[Question]:
        """From the header, unless that has not all of it, or an answer is on its way."""
        told = read_questions(run.header.questions)
        is_whole = told is not None and not any(each.is_cut for each in told)
        if told is not None and is_whole and run.head.posted == run.head.consumed:
            return [_question(each) for each in told]
        try:
            reading = await self._reader.read(run.id)
            return open_questions(reading, await self._reader.events(reading))
        except RunNotFound:
            return ()  # it was deleted meanwhile
        except OutliveError:  # whoever looks at the run itself is told why
            return [_question(each) for each in told or ()]

    async def doubts(self, limit: int = PAGE_MAX) -> list[RunDoubt]:
        """The effects in doubt that somebody has to settle, those of the oldest runs first."""
        self._reader.check_open()
        check_count("doubts", "limit", limit, COUNT_MAX)
        found: list[RunDoubt] = []
        async for run in self._all(Query(runs=True, status="in_doubt")):
            found += await self._doubts_of(run)
            if len(found) >= limit:
                break
        return found[:limit]

    async def _doubts_of(self, run: Found) -> list[RunDoubt]:
        try:
            reading = await self._reader.read(run.id, LAST_CHAPTER)
            state = fold(read_events(reading))
        except RunNotFound:
            return []
        found = []
        for step, effect in state.effects.items():
            if effect.doubt is not None:
                wait = doubt_of(run.id, run.flow, step, effect)
                found.append(
                    RunDoubt(
                        run=run.id,
                        flow=run.flow,
                        step=step,
                        key=wait.key,
                        why=wait.why,
                        settled_by="human" if effect.asks else "driver",
                        command=wait.command,
                    )
                )
        return found

    async def timeline(self, run_id: str, after: str | None, limit: int) -> TimelinePage:
        """Rows of a journal, from so many records at most; each page is verified by the last."""
        from outlive.views.timeline import timeline  # only those who look at a run need views

        check_count("timeline", "limit", limit, COUNT_MAX)
        seq, link = (0, b"") if after is None else _place(after)
        reading = await self._reader.read(run_id, seq, limit=limit)
        first, link = begin_of(reading) if after is None else (seq + 1, link)
        chain = Chain(run_id, first, link, reading.nodes)
        events = chain.follow(reading.records)
        last, link = chain.last
        if not events:
            chain.check_end(reading.head)
        following = f"{last}.{link.hex()}" if last < reading.head.seq else None
        return TimelinePage(rows=timeline(run_id, events, first), next=following)

    async def workers(self) -> list[WorkerListed]:
        """The workers of all processes, by id."""
        self._reader.check_open()
        return [_worker(each) for each in await self._reader.lane(self._reader.store.workers())]

    async def changes(self, after: str | None = None) -> AsyncGenerator[RunChange, None]:
        """Runs as they move, from a cursor on, or from now on; it never ends by itself."""
        reader, pause = self._reader, _POLL_SECONDS_FIRST
        reader.check_open()
        if after is not None and not is_text(after):
            raise UsageError(f"changes: after={after!r}; it is the `cursor` of a change")
        while True:
            page = await reader.lane(reader.store.changes(after, PAGE_MAX))
            runs = [each for each in page.items if is_run(each.id)]
            begin, after = after, page.next
            for run in runs[:-1]:
                yield RunChange(run=run, cursor=begin or page.next)
            if runs:
                yield RunChange(run=runs[-1], cursor=page.next)
                pause = _POLL_SECONDS_FIRST
            elif begin is not None:
                await asyncio.sleep(pause)
                pause = min(2 * pause, HANDLE_POLL_SECONDS)
            reader.check_open()

    async def _all(self, query: Query) -> AsyncIterator[Found]:
        after = None
        while True:
            page = await self._reader.lane(self._reader.store.find(query, after, PAGE_MAX))
            for run in page.items:
                yield run
            after = page.next
            if after is None:
                return

    def _query(self, verb: str, asked: Mapping[str, Any], *, keys: bool) -> Query:
        """The query; refuses one that can never match."""
        given = dict(asked)
        given.pop("keys", None)
        query: dict[str, Any] = {"runs": not keys, "newest": bool(given.pop("newest", False))}
        query["status"] = _statuses(verb, given.pop("status", None), keys=keys)
        flow = given.pop("flow", None)
        name = flow.name if isinstance(flow, Flow) else flow
        if name is not None and not is_text(name):
            raise UsageError(f"{verb}: flow={flow!r}; give one flow, or its name")
        query |= {"flow": name, "tags": _tags(verb, given.pop("tag", None))}
        for name, field, more in (
            ("since", "started_since", 0),
            ("until", "started_before", 0),
            ("ended_since", "ended_since", 0),
            ("ended_until", "ended_by", -1),
        ):
            at = given.pop(name, None)
            if at is not None:
                query[field] = self._instant(verb, name, at) + more
        for name in _TEXTS:
            value = given.pop(name, None)
            if value is not None and not is_text(value):
                raise UsageError(f"{verb}: {name}={value!r}; give a text")
            query[name] = value
        if given:
            raise UsageError(f"{verb}: {', '.join(given)} is nothing that runs are found by")
        return Query(**query)

    def _instant(self, verb: str, name: str, at: Any) -> int:
        if isinstance(at, datetime):
            if at.tzinfo is None:
                raise UsageError(f"{verb}: {name}={at!r} has no time zone: add one (datetime.UTC)")
            return round(at.timestamp() * 1000)
        try:
            ago = parse_duration(at)
        except DefinitionRefused as error:
            raise UsageError(
                f'{verb}: {name}={at!r}; give a datetime, or how long ago: "1h"'
            ) from error
        return self._reader.ports.clock.now_ms() - round(1000 * ago)


def _place(after: str) -> tuple[int, bytes]:
    """A place in a journal: a seq, and the link behind it."""
    found = _PLACE.fullmatch(after) if is_text(after) else None
    if found is None:
        raise UsageError(f"timeline: after={after!r}; it is the `next` of the page before")
    return int(found[1]), bytes.fromhex(found[2])


def _statuses(verb: str, status: Any, *, keys: bool) -> tuple[str, ...] | None:
    if status is None:
        return None
    some = (status,) if isinstance(status, str) else status
    is_sound = isinstance(some, (tuple, list, set, frozenset)) and some
    if not is_sound or not all(each in STATUSES or (keys and is_text(each)) for each in some):
        raise UsageError(
            f"{verb}: status={status!r} is not a status; use one of {', '.join(STATUSES)}"
        )
    return tuple(dict.fromkeys(some))


def _tags(verb: str, tag: Any) -> tuple[tuple[str, str], ...]:
    if tag is None:
        return ()
    pairs = tuple(tag.items()) if isinstance(tag, Mapping) else (tag,)
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(map(is_text, pair))):
            raise UsageError(
                f"{verb}: tag={tag!r}; give a mapping of texts, or a pair: tag=('customer', '7')"
            )
    return pairs


def _question(told: OpenQuestion) -> Question:
    try:
        schema = msgspec.json.decode(told.schema) if told.schema else None
    except msgspec.MsgspecError:
        schema = None
    return Question(
        id=told.id,
        text=told.text,
        schema=schema,
        asked_at=instant(told.asked_at),
        by=told.by,
        until=None if told.until is None else instant(told.until),
        digest=told.digest or None,
    )


def _worker(state: WorkerState) -> WorkerListed:
    info = read_info(state.about)
    return WorkerListed(
        id=state.worker,
        host=info.host,
        pid=info.pid,
        beat_at=None if state.beat_at is None else instant(state.beat_at),
        flows=info.flows,
        held=state.held,
    )
