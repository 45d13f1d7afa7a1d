"""Keyed logs: a small, durable record per key that adapters build on.

Each key has a journal of its own. ``append`` gives a function the entries of a key and the store's
time, and appends what it returns; nobody else appends in between. All appends of a process share
flushes. The same verbs exist for plain code, on the caller's own thread: ``log.sync``.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from types import EllipsisType
from typing import Any, TypeAlias, TypeVar

import msgspec

from outlive.app.reader import StoreReader
from outlive.engine.definitions import registry
from outlive.engine.inputs import encode_own
from outlive.errors import CorruptRecord, UsageError
from outlive.journal.codec.codec import Codec, codec_for
from outlive.journal.codec.restore import is_stored
from outlive.journal.group import Append, GroupCommit
from outlive.journal.lane import run_immediate
from outlive.journal.record import FORMAT
from outlive.journal.shared import SharedJournal
from outlive.model.defaults import FIND_LIMIT
from outlive.model.ids import NAME_RULES, family_of, is_name, is_text
from outlive.model.logs import (
    DROPPED,
    KeptEntry,
    LogAppended,
    LogBegan,
    LogDropped,
    LogNoted,
    LogState,
    OfLogs,
    check_log_key,
    log_prefix,
    window_after,
)
from outlive.model.queues import COUNT_MAX, check_count
from outlive.model.retry import Duration, parse_duration
from outlive.stores.types import Head, Header, Query, Wanted, instant

T = TypeVar("T")
#: Keys whose entries are kept at hand; others are read again when they are asked for.
KEYS_MAX = 2_000
#: How often a key may be dropped while it is read.
_READS_MAX = 5


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a key."""

    #: Rises with each entry of the key; not every number is one of an entry.
    seq: int
    #: By the store's clock.
    at: datetime
    #: What was appended.
    value: Any


class LogWrite(msgspec.Struct, frozen=True, kw_only=True):
    """What a decide function returns that changes more than the entries."""

    #: What is appended.
    values: Sequence[Any] = ()
    #: All tags that the key has from now on; None: as before.
    tags: Mapping[str, str] | None = None
    #: When ``due`` finds the key; None: never; left out: as before.
    wake_at: datetime | EllipsisType | None = ...


#: What a decide function may return: values to append, more than that, or nothing.
Decided: TypeAlias = LogWrite | Sequence[Any] | None


class LogView:
    """What a decide function sees of a key: ``key``, ``now`` (the store's time), ``tags``,
    ``wake_at``, and its entries; ``len(view)`` is their number."""

    def __init__(self, log: LogWork, key: str, state: LogState, now: int) -> None:
        is_over = state.is_over(now)
        #: The key.
        self.key = key
        #: The store's time.
        self.now = instant(now)
        #: Its tags.
        self.tags: Mapping[str, str] = {} if is_over else dict(state.tags)
        #: When it is due; None: never.
        self.wake_at = None if state.wake_at is None else instant(state.wake_at)
        self._kept: list[KeptEntry] = [] if is_over else list(state.entries)
        self._entries: Sequence[LogEntry] | None = None
        self._log = log

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._kept)

    @property
    def entries(self) -> Sequence[LogEntry]:
        """All entries, the oldest first."""
        if self._entries is None:
            self._entries = run_immediate(self._log.restored(self.key, self._kept))
        return self._entries

    @property
    def last(self) -> LogEntry | None:
        """The newest entry."""
        found = run_immediate(self._log.restored(self.key, self._kept[-1:]))
        return found[0] if found else None


class LogKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that was found."""

    #: The key.
    key: str
    #: Its tags.
    tags: Mapping[str, str]
    #: When the first entry was appended, by the store's clock.
    started_at: datetime
    #: When it is due; None: never.
    wake_at: datetime | None
    #: When it may go; None: it stays until it is dropped.
    expires_at: datetime | None


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of keys, and where the next one begins."""

    #: The keys.
    items: Sequence[LogKey]
    #: What ``find(after=...)`` goes on from; None: there are no more.
    next: str | None = None


class Logs:
    """The logs of one app: what they share."""

    def __init__(self, reader: StoreReader) -> None:
        self.reader = reader
        self.group = GroupCommit(reader.store, reader.lane, reader.ports.clock)
        self._journals: OrderedDict[str, SharedJournal[LogState]] = OrderedDict()
        self._lock = threading.Lock()

    def journal(self, journal: str) -> SharedJournal[LogState]:
        """The journal of a key; the last ones that were used are kept."""
        with self._lock:
            found = self._journals.pop(journal, None)
            if found is None:
                entropy = self.reader.ports.entropy
                found = SharedJournal(self.reader.store, journal, LogState, entropy)
            self._journals[journal] = found
            if len(self._journals) > KEYS_MAX:
                self._journals.popitem(last=False)
            return found

    def open(self, name: str, keep: Duration | None, type: Any) -> KeyedLog:
        """The log of this name."""
        return KeyedLog(LogWork(self, name, keep, type))


class LogWork:
    """The work of a log's verbs: coroutines that a lane or a plain thread carries out."""

    def __init__(self, logs: Logs, name: str, keep: Duration | None, type: Any) -> None:
        self.logs, self.name = logs, name
        self.prefix = log_prefix(name)
        self._window = None if keep is None else max(1, round(parse_duration(keep) * 1000))
        self._type = type
        self._codec: Codec = codec_for([] if type is None else [type], registry)

    @property
    def _now(self) -> int:
        return self.logs.reader.ports.clock.now_ms()

    def journal(self, key: str) -> SharedJournal[LogState]:
        """The journal of a key."""
        return self.logs.journal(self.prefix + check_log_key(key))

    # appending

    def append(
        self, keys: Sequence[str], decide: Callable[[Mapping[str, LogView]], Mapping[str, Decided]]
    ) -> Append[dict[str, Sequence[LogEntry]]]:
        """An append to these keys."""
        self.logs.reader.check_open()
        journals = [self.journal(key) for key in keys]
        written: list[Sequence[Any]] = []

        def events(states: Sequence[LogState]) -> list[list[OfLogs]]:
            now = self._now
            views = {k: LogView(self, k, s, now) for k, s in zip(keys, states, strict=True)}
            found = decide(views)
            if not found.keys() <= views.keys():
                raise UsageError(f"decide returned {list(found)}; it was asked about {list(keys)}")
            writes = [_write(found.get(key)) for key in keys]
            written[:] = [write.values for write in writes]
            asked = zip(keys, states, writes, strict=True)
            return [self._events(key, state, write, now) for key, state, write in asked]

        def answer(states: Sequence[LogState]) -> dict[str, Sequence[LogEntry]]:
            told = zip(keys, states, written, strict=True)
            return {key: _entries(state, values) for key, state, values in told}

        return Append(journals, events, answer)

    def _events(self, key: str, state: LogState, write: LogWrite, now: int) -> list[OfLogs]:
        """What is appended to a journal for this."""
        if not write.values and write.tags is None and write.wake_at is ...:
            return []
        events: list[OfLogs] = []
        if state.began is None:
            family = family_of(self.logs.reader.ports.entropy(8))
            events.append(LogBegan(now, self.name, key, family))
        at, is_over = state.time(now) if state.began is not None else 0, state.is_over(now)
        if is_over:
            events.append(LogDropped(at, len(state.entries)))
        events += [LogAppended(at, self._encode(value)) for value in write.values]
        before = None if is_over else (dict(state.tags), state.wake_at, state.expires_at)
        noted = self._noted(state, write, now, at=at, is_over=is_over)
        if before != (noted.tags, noted.wake_at, noted.expires_at):
            events.append(noted)
        return events

    def _noted(
        self, state: LogState, write: LogWrite, now: int, *, at: int, is_over: bool
    ) -> LogNoted:
        tags = {} if is_over else dict(state.tags)
        wake_at, expires_at = state.wake_at, None if is_over else state.expires_at
        if write.tags is not None:
            redact = self.logs.reader.hider.text
            tags = {name: redact(value) for name, value in _check_tags(write.tags).items()}
        if not isinstance(write.wake_at, EllipsisType):
            wake_at = None if write.wake_at is None else _milliseconds(write.wake_at)
        if self._window is not None:
            expires_at = window_after(expires_at, now, self._window)
        return LogNoted(at, tags, wake_at, expires_at)

    def _encode(self, value: Any) -> bytes:
        raw = encode_own(value) if self._type is None else self._codec.encode(value)
        return self.logs.reader.hider.value(raw)

    # reading

    async def read(self, key: str, after: int) -> list[LogEntry]:
        """The entries of a key."""
        journal, now = self.journal(key), self._now
        for attempt in range(1, _READS_MAX + 1):

            def kept(state: LogState) -> tuple[LogBegan | None, list[KeptEntry]]:
                some = [] if state.is_over(now) else state.entries
                return state.began, [entry for entry in some if entry.seq > after]

            began, found = await journal.look(kept)
            try:
                return await self.restored(key, found)
            except CorruptRecord:
                again, _ = await journal.look(kept)
                if attempt == _READS_MAX or again == began:
                    raise  # it was not dropped meanwhile
        raise AssertionError("unreachable")

    async def restored(self, key: str, kept: Sequence[KeptEntry]) -> list[LogEntry]:
        """Entries with their values."""
        raws: Sequence[bytes] = [entry.value for entry in kept]
        if any(map(is_stored, raws)):
            places = [(entry.seq, entry.value) for entry in kept]
            raws = await self.journal(key).values(places)
        return [
            LogEntry(seq=entry.seq, at=instant(entry.at), value=self._codec.decode(raw))
            for entry, raw in zip(kept, raws, strict=True)
        ]

    async def find(
        self, prefix: str, tag: tuple[str, str] | None, limit: int, after: str | None
    ) -> LogPage:
        """A page of keys."""
        check_log_key(prefix, "prefix")
        check_count("find", "limit", limit, COUNT_MAX)
        _check_tag(tag)
        if after is not None and not is_text(after):
            raise UsageError(f"find: after={after!r}; it is the `next` of the page before")
        told = None if tag is None else (tag[0], self.logs.reader.hider.text(tag[1]))
        query = Query(prefix=self.prefix + prefix, tag=told)
        page = await self.logs.reader.store.find(query, after, limit)
        return LogPage(items=self._keys(page.items), next=page.next)

    async def due(self, limit: int) -> list[LogKey]:
        """Keys whose time has come, the first one first."""
        check_count("due", "limit", limit, COUNT_MAX)
        wanted = Wanted(flows={"": frozenset({self.name})}, format=FORMAT)
        claims = await self.logs.reader.store.claim("nobody", wanted, limit)
        found = self._keys(claims.offers)
        return sorted(found, key=lambda each: each.wake_at or each.started_at)

    def _keys(self, found: Iterable[Any]) -> list[LogKey]:
        now = self._now
        return [
            self._key(each.head, each.header)
            for each in found
            if each.header.status != DROPPED and not _is_over(each.header, now)
        ]

    def _key(self, head: Head, header: Header) -> LogKey:
        return LogKey(
            key=head.run_id.removeprefix(self.prefix),
            tags=header.tags,
            started_at=instant(header.started_at),
            wake_at=None if header.wake_at is None else instant(header.wake_at),
            expires_at=None if header.ended_at is None else instant(header.ended_at),
        )

    # dropping

    def drops(self, keys: Iterable[str]) -> list[Append[bool]]:
        """The appends that end these keys."""
        self.logs.reader.check_open()
        if isinstance(keys, str):
            raise UsageError(f"drop({keys!r}): give a list of keys")

        def events(states: Sequence[LogState]) -> list[list[OfLogs]]:
            (state,) = states
            if state.began is None or state.is_dropped:
                return [[]]
            return [[LogDropped(state.time(self._now), len(state.entries))]]

        def answer(states: Sequence[LogState]) -> bool:
            return states[0].began is not None

        return [Append([self.journal(key)], events, answer) for key in dict.fromkeys(keys)]

    async def delete(self, dropped: Sequence[Append[bool]], reserve: Duration | None) -> int:
        """Delete the journals of keys that were ended; the number of those that are gone."""
        window = 0 if reserve is None else round(parse_duration(reserve) * 1000)
        keep_until = self._now + window if window else 0
        journals = [each.journals[0] for each in dropped if each.result()]
        gone = []
        for journal in journals:
            with journal.lock:
                deletion = journal.deletion(keep_until)
                if deletion is not None:
                    gone.append(deletion)
        answers = await self.logs.reader.store.delete(gone) if gone else ()
        for journal in journals:
            with journal.lock:
                journal.forget()
        return sum(answers)


class KeyedLog:
    """A log: entries by key. Made by ``app.log(name)``."""

    def __init__(self, work: LogWork) -> None:
        self._work = work
        #: The log's name.
        self.name = work.name
        #: The same verbs for plain code: each blocks, on the caller's own thread.
        self.sync = PlainLog(work)

    async def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        reader = self._work.logs.reader
        reader.check_open()
        return await reader.lane(work())

    async def append(self, key: str, decide: Callable[[LogView], Decided]) -> Sequence[LogEntry]:
        """Append what ``decide`` returns, durably; the new entries.

        ``decide`` gets the key's entries and the store's time. It may be called several times, and
        must do nothing but return: a list of values, a ``LogWrite``, or None. What it raises is
        raised here, and nothing is appended.
        """
        append = self._work.append([key], lambda views: {key: decide(views[key])})
        return (await self._work.logs.group.append(append))[key]

    async def append_all(
        self,
        keys: Iterable[str],
        decide: Callable[[Mapping[str, LogView]], Mapping[str, Decided]],
    ) -> Mapping[str, Sequence[LogEntry]]:
        """Append to several keys, to all or to none; the new entries by key.

        ``decide`` gets the views of all of them, by key, and returns what to append, by key.

        Raises:
            UsageError: the store can't commit several journals as one.
        """
        append = self._work.append(_several(keys), decide)
        return await self._work.logs.group.append(append)

    async def read(self, key: str, after: int = 0) -> Sequence[LogEntry]:
        """The entries of a key, the oldest first; those after a ``seq``."""
        return await self._call(partial(self._work.read, key, after))

    async def find(
        self,
        prefix: str = "",
        *,
        tag: tuple[str, str] | None = None,
        limit: int = FIND_LIMIT,
        after: str | None = None,
    ) -> LogPage:
        """A page of keys that begin with ``prefix`` and have the tag, in order of their begin."""
        return await self._call(partial(self._work.find, prefix, tag, limit, after))

    async def due(self, limit: int = FIND_LIMIT) -> Sequence[LogKey]:
        """Keys whose ``wake_at`` has come, the earliest first."""
        return await self._call(partial(self._work.due, limit))

    async def drop(self, keys: Iterable[str], *, reserve: Duration | None = None) -> int:
        """Delete keys with all their entries, and free their bytes; the number of those deleted.

        For as long as ``reserve`` an append to such a key raises ``RunIdTaken``.
        """
        group, drops = self._work.logs.group, self._work.drops(keys)
        await asyncio.gather(*(group.append(each) for each in drops))
        return await self._call(partial(self._work.delete, drops, reserve))


class PlainLog:
    """A log for plain code, from any thread, also where a loop runs: that waits meanwhile."""

    def __init__(self, work: LogWork) -> None:
        self._work = work
        #: The log's name.
        self.name = work.name

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._work.logs.reader.check_open()
        return run_immediate(work())

    def append(self, key: str, decide: Callable[[LogView], Decided]) -> Sequence[LogEntry]:
        """As ``KeyedLog.append``."""
        append = self._work.append([key], lambda views: {key: decide(views[key])})
        return self._work.logs.group.append_here(append)[key]

    def append_all(
        self,
        keys: Iterable[str],
        decide: Callable[[Mapping[str, LogView]], Mapping[str, Decided]],
    ) -> Mapping[str, Sequence[LogEntry]]:
        """As ``KeyedLog.append_all``."""
        return self._work.logs.group.append_here(self._work.append(_several(keys), decide))

    def read(self, key: str, after: int = 0) -> Sequence[LogEntry]:
        """As ``KeyedLog.read``."""
        return self._call(partial(self._work.read, key, after))

    def find(
        self,
        prefix: str = "",
        *,
        tag: tuple[str, str] | None = None,
        limit: int = FIND_LIMIT,
        after: str | None = None,
    ) -> LogPage:
        """As ``KeyedLog.find``."""
        return self._call(partial(self._work.find, prefix, tag, limit, after))

    def due(self, limit: int = FIND_LIMIT) -> Sequence[LogKey]:
        """As ``KeyedLog.due``."""
        return self._call(partial(self._work.due, limit))

    def drop(self, keys: Iterable[str], *, reserve: Duration | None = None) -> int:
        """As ``KeyedLog.drop``."""
        drops = self._work.drops(keys)
        self._work.logs.group.append_all_here(drops)
        return self._call(partial(self._work.delete, drops, reserve))


def _several(keys: Iterable[str]) -> list[str]:
    found = list(keys) if not isinstance(keys, str) else []
    if not found or len(set(found)) < len(found):
        raise UsageError(f"append_all({keys!r}): give a list of keys, each once")
    return found


def _write(decided: object) -> LogWrite:
    if decided is None:
        return LogWrite()
    if isinstance(decided, LogWrite):
        return decided
    if isinstance(decided, (list, tuple)):
        return LogWrite(values=decided)
    raise UsageError(
        f"decide returned {decided!r:.200}; return a list of values, a LogWrite, or None"
    )


def _entries(state: LogState, values: Sequence[Any]) -> Sequence[LogEntry]:
    kept = state.entries[len(state.entries) - len(values) :]
    return [
        LogEntry(seq=entry.seq, at=instant(entry.at), value=value)
        for entry, value in zip(kept, values, strict=True)
    ]


def _check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    for name, value in tags.items():
        if not is_name(name) or not is_name(value):
            raise UsageError(f"tag {name!r}={value!r:.200}: both are texts, {NAME_RULES}")
    return dict(tags)


def _check_tag(tag: Any) -> None:
    is_pair = isinstance(tag, tuple) and len(tag) == 2 and all(map(is_text, tag))
    if tag is not None and not is_pair:
        raise UsageError(f"find: tag={tag!r}; give a pair of texts: tag=('token', '7')")


def _milliseconds(when: object) -> int:
    if not isinstance(when, datetime) or when.tzinfo is None:
        raise UsageError(f"wake_at={when!r}: give a datetime with a time zone")
    return round(when.astimezone(UTC).timestamp() * 1000)


def _is_over(header: Header, now: int) -> bool:
    return header.ended_at is not None and header.ended_at <= now
