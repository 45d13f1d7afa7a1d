"""Letters as mail: bound to one run and one id, and valid only there.

All unreadable mail is handled in one way: it changes nothing, and the event that takes it out of
the mailbox keeps its bytes, its id and the reason.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from outlive.envelope import disclose, enclose
from outlive.errors import CorruptRecord, OutliveError
from outlive.journal.lane import Lane
from outlive.journal.reader import Chain
from outlive.journal.record import LINK_START
from outlive.model.events import (
    Answered,
    CancelRequested,
    ChapterBegan,
    Event,
    Forked,
    MailRead,
    SignalReceived,
)
from outlive.model.mail import Letter, encode_letter, parse_letter
from outlive.stores.seam import Store
from outlive.stores.types import Mail, Posted, Posting

logger = logging.getLogger("outlive")

_UNBOUND = "its checksum does not hold: damaged, moved, or of an earlier format"
READ_BEFORE = "it was read before: somebody put it back"


class Unreadable(NamedTuple):
    """Mail that nobody posted like this under this id to this run."""

    why: str
    #: The bytes found.
    body: bytes


def write_letter(run_id: str, mail_id: str, letter: Letter) -> bytes:
    """Encode a letter as mail of this id to this run."""
    return enclose(run_id, mail_id, encode_letter(letter))


def read_letter(run_id: str, mail: Mail) -> Letter | Unreadable:
    """The letter, if it is whole and at its place."""
    body = mail.body
    if type(body) is not bytes or type(mail.mail_id) is not str:
        return Unreadable("its row is damaged", repr(body).encode())
    if mail.refused:
        return Unreadable(mail.refused, body)
    raw = body if mail.is_sealed else disclose(run_id, mail.mail_id, body)
    if raw is None:
        return Unreadable(_UNBOUND, body)
    try:
        letter: Letter = parse_letter(raw)
        return letter
    except msgspec.ValidationError as error:
        return Unreadable(f"this release does not know its kind ({error})", body)
    except (msgspec.MsgspecError, RecursionError) as error:
        return Unreadable(f"it is not a letter ({error})", body)


def mail_ids(events: Iterable[Event]) -> list[str]:
    """Ids of the mail that a run's own events name; a fork has read none of the other run's."""
    found: list[str] = []
    for event in events:
        match event:
            case SignalReceived(signal_id=signal_id):
                found.append(f"signal/{signal_id}")
            case MailRead() | CancelRequested() | Answered():
                found.append(event.mail_id)
            case Forked():
                found.clear()
            case _:
                pass
    return found


#: Ids of earlier mail that one process remembers, and records that are read at once to learn them.
IDS_REMEMBERED = 200_000
RECORDS_AT_ONCE = 500


class _Taken:
    """The ids of mail that a journal has read, up to where it was followed."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._chain = Chain(run_id, 1, LINK_START)
        self._seq = 0
        self.ids: set[str] = set()

    async def follow(self, store: Store, until: int) -> None:
        """Read on until this seq, which a chapter began at."""
        while self._seq < until:
            reading = await store.read(self._run_id, self._seq, limit=RECORDS_AT_ONCE)
            events = [] if reading is None else self._chain.follow(reading.records)
            if not events:
                return
            self.ids.update(mail_ids(events))
            self._seq += len(events)


#: Guards the next one: stores are asked by several threads.
_lock = threading.Lock()
_taken: WeakKeyDictionary[Store, dict[bytes, _Taken]] = WeakKeyDictionary()


async def without_copies(
    store: Store, run_id: str, chapter: ChapterBegan | None, mail: Sequence[Mail]
) -> Sequence[Mail]:
    """Mark sealed mail that was read before the run's last chapter began.

    A driver knows the mail of its own chapter. Earlier ones are read when a sealed letter comes,
    once per process: whoever has no key can't write a letter, but could put one back. Where nothing
    is sealed a copy is no more than any other letter that they could write.
    """
    if chapter is None or not any(each.is_sealed for each in mail):
        return mail
    with _lock:
        runs = _taken.setdefault(store, {})
        taken = runs.pop(chapter.start.seed, None) or _Taken(run_id)
    await taken.follow(store, chapter.seq - 1)
    with _lock:
        runs[chapter.start.seed] = taken  # the newest last
        count = sum(len(each.ids) for each in runs.values())
        while len(runs) > 1 and count > IDS_REMEMBERED:
            count -= len(runs.pop(next(iter(runs))).ids)
    return [_marked(each) if each.mail_id in taken.ids else each for each in mail]


def _marked(mail: Mail) -> Mail:
    return msgspec.structs.replace(mail, refused=READ_BEFORE, is_sealed=False)


async def new_mail(
    store: Store, chapters: Mapping[str, ChapterBegan | None]
) -> Mapping[str, Sequence[Mail]]:
    """By run: what was posted and not consumed, given its last chapter.

    Of a run whose earlier chapters are damaged nothing is taken: who loads it says so.
    """
    found: dict[str, Sequence[Mail]] = {}
    for run_id, mail in (await store.mail_of(list(chapters))).items():
        try:
            found[run_id] = await without_copies(store, run_id, chapters[run_id], mail)
        except CorruptRecord as error:
            logger.error("mail of run %s is not taken: %s", run_id, error)
            found[run_id] = ()
    return found


#: What goes with one flush, at most.
LETTERS_AT_ONCE = 500
BYTES_AT_ONCE = 16 * 1024 * 1024

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]
_Sent: TypeAlias = tuple[Posting, asyncio.Future[Posted]]


class Outbox:
    """Posts for everybody on one loop."""

    def __init__(self, store: Store, lane: Lane, spawn: Spawn) -> None:
        self._store, self._lane, self._spawn = store, lane, spawn
        self._waiting: deque[_Sent] = deque()
        #: Kept, so that nobody collects it.
        self._sending: object = None

    async def post(self, run_id: str, mail_id: str, body: bytes) -> Posted:
        """Leave mail for a run, durably when this returns."""
        answer: asyncio.Future[Posted] = asyncio.get_running_loop().create_future()
        self._waiting.append((Posting(run_id, mail_id, body), answer))
        if self._sending is None:
            self._sending = self._spawn(self._send_all())
        return await answer

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await self._send(self._next_batch())
        finally:
            self._sending = None

    def _next_batch(self) -> list[_Sent]:
        batch: list[_Sent] = []
        size = 0
        while self._waiting and len(batch) < LETTERS_AT_ONCE and size < BYTES_AT_ONCE:
            batch.append(self._waiting.popleft())
            size += len(batch[-1][0].body)
        return batch

    async def _send(self, batch: Sequence[_Sent]) -> None:
        letters = [letter for letter, _ in batch]
        try:
            told = await self._lane(post_each(self._store, letters))
        except Exception as error:
            told = [error] * len(batch)
        except BaseException:
            for _, answer in batch:
                answer.cancel()
            raise
        for (_, answer), said in zip(batch, told, strict=True):
            if answer.done():
                continue  # whoever posted it no longer waits
            if isinstance(said, Exception):
                answer.set_exception(said)
            else:
                answer.set_result(said)


async def post_each(store: Store, letters: Sequence[Posting]) -> list[Posted | Exception]:
    """An answer, or what went wrong, for each of these."""
    if len(letters) > 1:
        try:
            return [*await store.post(letters)]
        except OutliveError:
            raise
        except Exception as error:
            # It may be one letter's fault, and must not be everybody's.
            logger.warning("mail is posted one by one: %r", error)
    told: list[Posted | Exception] = []
    for letter in letters:
        try:
            told += await store.post([letter])
        except Exception as error:
            told.append(error)
    return told
