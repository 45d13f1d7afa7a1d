"""Where the changes of an inbox are kept: in a journal of a store, or beside a JSON file, or by a
backend of the user's own.

All three have the same verbs. ``append`` lets a function decide on the state as it is now, with
the store's time, and is done when what it returned is durable; nobody else changes anything in
between, in this process or in another. ``look`` reads on first.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from outlive.errors import CorruptRecord
from outlive.inbox.records import (
    Change,
    PersistentActivityRecord,
    decode_change,
    decode_written,
    encode_change,
    encode_written,
)
from outlive.inbox.state import InboxState, put_of
from outlive.journal.codec.values import Values
from outlive.journal.group import Append
from outlive.journal.shared import Draft, SharedJournal
from outlive.locks.place import OpenPlace, StorePlace
from outlive.model.ids import family_of
from outlive.model.logs import LogAppended, LogBegan, OfLogs, log_brief_after, log_prefix
from outlive.model.shared import Brief
from outlive.ports import Ports

T = TypeVar("T")
LOG = "inbox"

#: From the state and the time (ms since 1970) to what changes.
Decide: TypeAlias = Callable[[InboxState, int], Sequence[Change]]
Attach: TypeAlias = Callable[[PersistentActivityRecord], None]


class MessageLog(Protocol):
    """The changes of one inbox."""

    def look(self, view: Callable[[InboxState], T]) -> T:
        """What this view makes of the state as it is now."""
        ...

    def append(self, decide: Decide, answer: Callable[[InboxState], T]) -> T:
        """Append what is decided, durably; ``answer`` of the new state."""
        ...

    def now_ms(self) -> int:
        """The time that counts here."""
        ...

    def flush(self) -> None:
        """Bring what is readable by others up to date."""
        ...

    def close(self) -> None:
        """End it."""
        ...


# in a journal


class MessageFold:
    """The fold of an inbox's journal."""

    def __init__(self, journal: str, attach: Attach) -> None:
        self.messages = InboxState()
        self.messages.on_record = attach
        self.began: LogBegan | None = None
        self._journal = journal
        self._brief: Brief | None = None
        self._seq = 0

    def apply(self, event: OfLogs) -> None:
        """Apply one event."""
        self._seq += 1
        self._brief = log_brief_after(self._brief, event)
        if isinstance(event, LogBegan):
            self.began = event
        elif isinstance(event, LogAppended):
            try:
                change = decode_written(event.value)
            except (msgspec.MsgspecError, ValueError) as error:
                raise CorruptRecord(self._journal, self._seq, f"not of an inbox: {error}") from None
            self.messages.apply(change)

    def brief_with(self, events: Sequence[OfLogs]) -> Brief:
        """The header's summary as it will be after these events."""
        brief = self._brief
        for event in events:
            brief = log_brief_after(brief, event)
        assert brief is not None, "something has happened"
        return brief

    @property
    def last_value(self) -> bytes:
        """Messages are not based on one another."""
        return b""

    def mark(self) -> None:
        """It can't go back: after a conflict the journal is read again."""

    def go_back(self, mark: object) -> None:
        """Never called: there is no mark."""
        raise AssertionError("there is no mark")


class MessageDraft(Draft[MessageFold]):
    """A record of an inbox's journal: envelopes stay in it, however long they are."""

    __slots__ = ()

    def _stored(self, raw: bytes) -> bytes:
        self.size += len(raw)
        return raw


class MessageJournal(SharedJournal[MessageFold]):
    """The journal of an inbox."""

    async def draft(self) -> Draft[MessageFold]:
        """Begin a record."""
        return MessageDraft(self, Values())


class StoreLog:
    """The changes of an inbox in a journal of a store, shared by any number of processes."""

    def __init__(self, place: StorePlace, name: str, attach: Attach) -> None:
        self._opened: OpenPlace = place.open()
        self._name = name
        #: To the store, two processes that write the same are one that repeats itself.
        self._writer = self._opened.ports.entropy(6).hex()
        journal, entropy = log_prefix(LOG) + name, self._opened.ports.entropy
        self.journal = MessageJournal(
            self._opened.store, journal, lambda: MessageFold(journal, attach), entropy
        )

    def now_ms(self) -> int:
        return self._opened.now_ms

    def look(self, view: Callable[[InboxState], T]) -> T:
        self._opened.reader.check_open()
        return self._opened.here(self.journal.look(lambda fold: view(fold.messages)))

    def append(self, decide: Decide, answer: Callable[[InboxState], T]) -> T:
        self._opened.reader.check_open()
        return self._opened.group.append_here(self._append(decide, answer))

    async def append_beside(self, decide: Decide, answer: Callable[[InboxState], T]) -> T:
        """As ``append``, without blocking the loop."""
        self._opened.reader.check_open()
        return await self._opened.group.append(self._append(decide, answer))

    def begin(self, changes: Sequence[Change]) -> None:
        """Begin with these changes, unless the inbox has begun."""
        append = self._append(lambda messages, now: changes, lambda messages: None, first=True)
        self._opened.group.append_here(append)

    def _append(
        self, decide: Decide, answer: Callable[[InboxState], T], *, first: bool = False
    ) -> Append[T]:
        def events(folds: Sequence[MessageFold]) -> list[list[OfLogs]]:
            now, (fold,) = self._opened.now_ms, folds
            is_late = first and fold.began is not None
            changes = [] if is_late else decide(fold.messages, now)
            if not changes:
                return [[]]
            found: list[OfLogs] = []
            if fold.began is None:
                family = family_of(self._opened.ports.entropy(8))
                found.append(LogBegan(now, LOG, self._name, family))
            at = 0 if fold.began is None else max(0, now - fold.began.started_at)
            found += [LogAppended(at, encode_written(self._writer, each)) for each in changes]
            return [found]

        return Append([self.journal], events, lambda folds: answer(folds[0].messages))

    def flush(self) -> None:
        """Everything is durable already."""
        self.look(lambda messages: None)

    def close(self) -> None:
        """The place is closed by who opened it."""


# beside a JSON file


_FRAME = struct.Struct(">II")
_MAGIC = b"outlive-inbox-log-1\n"


class FileLog:
    """The changes since a JSON file was written, in a file beside it; shared by processes.

    Each append is one write and one fsync, however many messages there are. ``flush`` folds the
    changes into the JSON file: that costs as much as there are messages.
    """

    def __init__(
        self,
        path: Path,
        load: Callable[[], tuple[InboxState, str]],
        save: Callable[[InboxState, str], None],
        attach: Attach,
    ) -> None:
        self._path, self._load, self._save, self._attach = path, load, save, attach
        self._log = path.with_name(path.name + ".log")
        self._guard = path.with_name(path.name + ".lock")
        self._lock, self._ports = threading.Lock(), Ports()
        self._messages = InboxState()
        self._seen: object = None
        self._offset = 0
        self._generation = ""

    def now_ms(self) -> int:
        return self._ports.clock.now_ms()

    def look(self, view: Callable[[InboxState], T]) -> T:
        with self._locked():
            self._read_on()
            return view(self._messages)

    def append(self, decide: Decide, answer: Callable[[InboxState], T]) -> T:
        with self._locked():
            self._read_on()
            changes = decide(self._messages, self.now_ms())
            if changes:
                self._write(b"".join(map(_framed, changes)))
                for change in changes:
                    self._messages.apply(decode_change(encode_change(change)))
            return answer(self._messages)

    def flush(self) -> None:
        with self._locked():
            self._read_on()
            generation = self._ports.entropy(8).hex()
            self._save(self._messages, generation)
            self._begin_log(generation)
            self._seen = self._stand()

    def forget(self) -> None:
        """Delete the file of changes: the JSON file is gone."""
        with self._locked():
            self._log.unlink(missing_ok=True)
            self._seen = None

    def close(self) -> None:
        """No file stays open between two calls."""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            fd = os.open(self._guard, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                yield
            finally:
                os.close(fd)

    def _stand(self) -> object:
        """What the files look like from outside."""
        found: list[tuple[int, int, int] | None] = []
        for path in (self._path, self._log):
            try:
                stat = path.stat()
            except FileNotFoundError:
                found.append(None)
                continue
            size = stat.st_size if path is self._path else 0
            mtime = stat.st_mtime_ns if path is self._path else 0
            found.append((stat.st_ino, size, mtime))
        return found

    def _read_on(self) -> None:
        stand = self._stand()
        if stand != self._seen:
            self._messages, self._generation = self._load()
            self._messages.on_record = self._attach
            for record in self._messages.records.values():
                self._attach(record)
            self._offset = 0
            self._seen = stand
        if not self._log.exists():
            return
        with self._log.open("rb") as file:
            if self._offset == 0 and not self._is_current(file.readline(), file.readline()):
                # It was folded into the JSON file just before a crash.
                self._begin_log(self._generation)
                self._seen = self._stand()
                return
            self._offset = self._offset or file.tell()
            file.seek(self._offset)
            self._follow(file.read())

    def _is_current(self, magic: bytes, generation: bytes) -> bool:
        if magic != _MAGIC:
            raise CorruptRecord(str(self._log), 0, "this is not a log of an inbox; put it aside")
        return generation.rstrip(b"\n").decode("ascii", "replace") == self._generation

    def _follow(self, data: bytes) -> None:
        """Apply what was appended since; a write that a crash cut off was never acknowledged."""
        place = 0
        while place + _FRAME.size <= len(data):
            size, checksum = _FRAME.unpack_from(data, place)
            body = data[place + _FRAME.size : place + _FRAME.size + size]
            if len(body) < size:
                break
            if zlib.crc32(body) != checksum:
                raise CorruptRecord(
                    str(self._log), self._offset + place, "its checksum is wrong; put it aside"
                )
            self._messages.apply(decode_change(body))
            place += _FRAME.size + size
        self._offset += place

    def _write(self, data: bytes) -> None:
        if not self._log.exists():
            self._begin_log(self._generation)
            self._seen = self._stand()
        fd = os.open(self._log, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, self._offset)
            os.pwrite(fd, data, self._offset)
            os.fsync(fd)
        except BaseException:
            self._seen = None  # nobody knows what of it is stored
            raise
        finally:
            os.close(fd)
        self._offset += len(data)

    def _begin_log(self, generation: str) -> None:
        self._generation = generation
        content = _MAGIC + generation.encode() + b"\n"
        replace_file(self._log, content)
        self._offset = len(content)


def _framed(change: Change) -> bytes:
    body = encode_change(change)
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, durably, readable by its owner alone."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# by a backend of the user's own

#: As SW4RM's: whole sets of records, and their order.
Saved: TypeAlias = tuple[dict[str, dict[str, Any]], list[str]]


class WholeLog:
    """A backend that saves everything at every call, and has one user at a time."""

    def __init__(
        self,
        load: Callable[[], InboxState],
        save: Callable[[dict[str, dict[str, Any]], list[str]], None],
        attach: Attach,
    ) -> None:
        self._lock, self._ports = threading.RLock(), Ports()
        self._save, self._attach = save, attach
        self._messages = load()
        self._adopt()

    def _adopt(self) -> None:
        self._messages.on_record = self._attach
        for record in self._messages.records.values():
            self._attach(record)

    def now_ms(self) -> int:
        return self._ports.clock.now_ms()

    def look(self, view: Callable[[InboxState], T]) -> T:
        with self._lock:
            return view(self._messages)

    def append(self, decide: Decide, answer: Callable[[InboxState], T]) -> T:
        with self._lock:
            now = self.now_ms()
            changes = decide(self._messages, now)
            if changes:
                before = self._messages.snapshot(now)
                before = msgspec.structs.replace(
                    before, records=[_copy(each) for each in before.records]
                )
                for change in changes:
                    self._messages.apply(decode_change(encode_change(change)))
                try:
                    self._save(*saved(self._messages))
                except BaseException:
                    self._messages.apply(before)
                    raise
            return answer(self._messages)

    def flush(self) -> None:
        with self._lock:
            self._save(*saved(self._messages))

    def close(self) -> None:
        """Nothing is open."""


def _copy(change: T) -> T:
    copied: T = decode_change(encode_change(change))  # type: ignore[arg-type,assignment]  # same
    return copied


def saved(messages: InboxState) -> Saved:
    """All records with their order, as SW4RM's backends save them."""
    records: dict[str, dict[str, Any]] = {}
    for record in messages.records.values():
        name = record.message_id
        if name in records:
            name = f"{name}#{record.direction}"
        records[name] = record.to_dict()
    return records, list(records)


def loaded(records: Mapping[str, Mapping[str, Any]], order: Sequence[str]) -> InboxState:
    """The state that such records stand for. An id that ``order`` has twice counts once."""
    messages = InboxState()
    for name in dict.fromkeys([*order, *records]):
        if name in records:
            record = PersistentActivityRecord.from_dict(records[name])
            messages.apply(put_of(record, record.ts_ms))
    return messages
