"""One run's journal as its driver sees it: appended at once, durable a little later.

``append`` gives an event its seq and returns; ``wait`` calls back when everything up to a seq is
durable. The keeper takes what was appended, folds it, and makes one record of it. If the keeper
reports a conflict or its own end, the log fails once and says nothing more: no waiter is ever
called after that, so nothing that was queued reaches the world.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, get_args

from msgspec.structs import fields, replace

from outlive.errors import OutliveError
from outlive.journal.codec.parts import LEAF_MIN, Parted
from outlive.journal.codec.values import Values, parted_body
from outlive.journal.headers import header_of
from outlive.journal.keeper import Keeper, Side
from outlive.journal.record import pack
from outlive.model.events import (
    ChapterBegan,
    Claimed,
    EffectDone,
    EffectIntended,
    Event,
    RunCompleted,
    RunStarted,
    StepDone,
    encode_events,
)
from outlive.model.kinds import KIND_BITS
from outlive.model.run import Run, apply, fold
from outlive.stores.types import Entry, Head, Header, Lease, Node

#: Bytes of outcomes after which a record is closed and the rest goes into the next: together with
#: its last event it must stay below what a store takes.
RECORD_FULL_BYTES = 64 * 1024 * 1024


class MailEvent:
    """An event that answers mail; both go into one commit."""

    __slots__ = ("event", "mail_id")

    def __init__(self, event: Event, mail_id: str) -> None:
        self.event, self.mail_id = event, mail_id


class RunLog:
    """The appending end of a driven journal."""

    __slots__ = (
        "_dirty",
        "_keeper",
        "_known",
        "_values",
        "_waiters",
        "chapter_link",
        "durable",
        "failure",
        "is_closed",
        "link",
        "marked_at",
        "on_close",
        "on_failure",
        "queue",
        "run",
        "run_id",
        "seq",
        "side",
        "worker",
    )

    def __init__(self, keeper: Keeper, side: Side, run_id: str, *, worker: str) -> None:
        self.run_id, self.worker = run_id, worker
        self.side = side
        #: The fold of what was taken by the keeper; its thread's alone once something is queued.
        self.run = Run()
        self.link = bytes(16)
        #: The link before the record with which the last chapter begins.
        self.chapter_link = b""
        self.seq = self.durable = 0
        self.marked_at = 0
        self.failure: OutliveError | None = None
        self.on_failure: Callable[[OutliveError], None] | None = None
        self._keeper = keeper
        #: Appended, and not taken by the keeper.
        self.queue: deque[Event | MailEvent] = deque()
        self._waiters: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self._dirty = False
        self.is_closed = False
        #: For those who follow it: there will be no more here.
        self.on_close: tuple[Callable[[], None], ...] = ()
        self._known: Sequence[bytes] = ()
        #: Made with the first large value.
        self._values: Values | None = None
        keeper.adopt(self)

    def resume(self, run: Run, head: Head, header: Header, known: Iterable[bytes] = ()) -> None:
        """Go on behind what the store has; ``known`` are addresses of nodes that it has."""
        self._known = tuple(known)
        self.run, self.link, self.chapter_link = run, head.link, header.chapter_link
        self.seq = self.durable = run.seq

    def turn_page(self) -> tuple[RunLog, ChapterBegan]:
        """A log for the chapter that this one ended with, and the event that it begins with."""
        chapter = self.run.chapter
        assert chapter is not None, "a chapter has just begun"
        assert chapter.seq == self.durable, "nothing came after it"
        log = RunLog(self._keeper, self.side, self.run_id, worker=self.worker)
        log.run, log.link, log.chapter_link = _anew(self.run), self.link, self.chapter_link
        log.seq = log.durable = self.durable
        named = _leaves_in(chapter.args) | _leaves_in(chapter.start.args)
        if self._known:
            log._known = tuple(named.intersection(self._known))
        if self._values is not None:
            self._values.forget_but(named)
            log._values, self._values = self._values, None
        return log, chapter

    def append(self, event: Event, mail_id: str | None = None) -> int:
        """Queue an event; its seq is fixed from here on."""
        self.queue.append(event if mail_id is None else MailEvent(event, mail_id))
        self.seq += 1
        if not self._dirty:
            self._dirty = True
            self._keeper.mark(self)
        return self.seq

    def append_all(self, events: Sequence[Event | MailEvent]) -> None:
        """Queue events that must not come apart: if nothing else is queued they share a record."""
        self.queue.extend(events)
        self.seq += len(events)
        if not self._dirty:
            self._dirty = True
            self._keeper.mark(self)

    def wait(self, seq: int, callback: Callable[..., None], *args: Any) -> None:
        """Call back (on this side) once everything up to ``seq`` is durable."""
        if self.durable >= seq:
            callback(*args)
        elif self.failure is None:
            self._waiters.append((seq, callback, args))

    def take(self) -> Entry | None:
        """On the keeper's thread: what was appended, as one entry with one record."""
        self._dirty = False
        if not self.queue or self.failure is not None:
            return None
        after = self.run.seq
        events, consumed, kinds, size = self._fold_queue()
        body = None
        nodes: tuple[Node, ...] = ()
        flags = 0
        try:
            if size < LEAF_MIN:
                body = encode_events(events)
        except TypeError:
            body = None  # some value has parts, which msgpack refuses
        if body is None:
            if self._values is None:
                self._values = Values(self._known)
            body, nodes, flags = parted_body(events, self._values)
        run = self.run
        if type(events[0]) is ChapterBegan:
            self.chapter_link = self.link
        record, self.link = pack(
            self.run_id,
            prev=self.link,
            epoch=run.epoch,
            seq=after + 1,
            kinds=kinds,
            body=body,
            flags=flags,
        )
        entry = Entry(
            run_id=self.run_id,
            after=after,
            last=run.seq,
            epoch=run.epoch,
            record=record,
            link=self.link,
            consumed=consumed,
            nodes=nodes,
        )
        return self._with_header(entry, events) if run.header_is_stale else entry

    def _with_header(self, entry: Entry, events: list[Event]) -> Entry:
        """Whoever may drive the run changes only with what its header shows."""
        run = self.run
        run.header_is_stale = False
        takes = type(events[0]) is Claimed or (len(events) > 1 and type(events[1]) is Claimed)
        lease: Lease = "take" if takes else "keep"
        is_held = run.is_held
        return replace(
            entry,
            header=header_of(run, self.chapter_link),
            lease=lease if is_held else "free",
            worker=self.worker if takes and is_held else None,
        )

    def _fold_queue(self) -> tuple[list[Event], tuple[str, ...], int, int]:
        events: list[Event] = []
        consumed: list[str] = []
        kinds = size = 0
        queue, run = self.queue, self.run
        while queue and size < RECORD_FULL_BYTES:
            item: Any = queue.popleft()
            kind = type(item)
            if kind is ChapterBegan and events:
                queue.appendleft(item)
                break  # whoever reads the chapter begins at a record
            if kind is MailEvent:
                consumed.append(item.mail_id)
                item = item.event
                kind = type(item)
            apply(run, item)
            events.append(item)
            kinds |= KIND_BITS[kind]
            if kind is EffectDone:
                size += len(item.value)
            elif kind is EffectIntended:
                size += len(item.args)
            elif kind is StepDone:
                size += len(item.args) + len(item.value)
            elif kind is ChapterBegan or kind is RunStarted:
                size += len(item.args)
            elif kind is RunCompleted:
                size += len(item.value)
            elif kind is not Claimed:
                size += _bytes_in(item)
        return events, tuple(consumed), kinds, size

    def settle(self, upto: int, error: OutliveError | None) -> None:
        """On this side: durable up to here, or failed for good."""
        if self.failure is not None:
            return
        if error is not None:
            self.failure = error
            self._waiters.clear()
            if self.on_failure is not None:
                self.on_failure(error)
            return
        self.durable = upto
        waiters = self._waiters
        while waiters and waiters[0][0] <= upto:
            _, callback, args = waiters.popleft()
            callback(*args)

    def close(self) -> None:
        """The run left memory, or has turned a page; nothing is appended any more."""
        self._keeper.forget(self)
        self.is_closed = True
        told, self.on_close = self.on_close, ()
        for tell in told:
            tell()


def _anew(last: Run) -> Run:
    """The fold of a chapter that was begun; its header is written, unless it shows another."""
    assert last.chapter is not None, "a chapter has just begun"
    run = fold([last.chapter])
    is_same = run.status == last.status and run.wake_at == last.wake_at and not last.effects
    is_shown = is_same and not (last.reason or last.error or last.ended_at)
    run.header_is_stale = last.header_is_stale or not is_shown
    return run


def _leaves_in(value: bytes) -> set[bytes]:
    return set(value.leaves) if type(value) is Parted else set()


def _bytes_in(event: Event) -> int:
    """What users put into an event."""
    size = 0
    for name in _named_bytes(type(event)):
        value = getattr(event, name)
        if type(value) is bytes:
            size += len(value)
    return size


@cache
def _named_bytes(kind: type[Event]) -> tuple[str, ...]:
    """The fields of such events that may hold bytes."""
    found = [(field.name, (field.type, *get_args(field.type))) for field in fields(kind)]
    return tuple(name for name, kinds in found if bytes in kinds)
