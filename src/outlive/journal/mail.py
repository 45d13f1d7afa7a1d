"""Letters as mail: written for one run and id, and believed only there.

What can't be read is handled one way, whatever is wrong with it: it changes nothing, and the event
that takes it out of the mailbox keeps its bytes, its id and the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from outlive.envelope import SEAL_BROKEN_MAIL, disclose, enclose
from outlive.errors import OutliveError
from outlive.journal.lane import Lane
from outlive.model.events import (
    Answered,
    CancelRequested,
    Event,
    Forked,
    MailRead,
    SignalReceived,
)
from outlive.model.mail import Letter, encode_letter, parse_letter
from outlive.stores.seam import Mailroom, Store
from outlive.stores.types import Mail, Posted, Posting

_UNSEALED = "its seal does not hold: damaged, moved, forged or not sealed"
_UNBOUND = "its checksum does not hold: damaged, moved, or of an earlier format"


class Unreadable(NamedTuple):
    """Mail that is not what somebody posted under this id to this run."""

    why: str
    #: The bytes that were found.
    body: bytes
    #: It is whole, and of a kind that only a later release knows.
    is_newer: bool = False


def write_letter(run_id: str, mail_id: str, letter: Letter) -> bytes:
    """The letter as mail of this id to this run."""
    return enclose(run_id, mail_id, encode_letter(letter))


def read_letter(run_id: str, mail: Mail) -> Letter | Unreadable:
    """What was posted, if it is whole and at its place."""
    body = mail.body
    if type(body) is not bytes or type(mail.mail_id) is not str:
        return Unreadable("its row is damaged", repr(body).encode())
    if body.startswith(SEAL_BROKEN_MAIL):
        return Unreadable(_UNSEALED, body[len(SEAL_BROKEN_MAIL) :])
    raw = body if mail.is_sealed else disclose(run_id, mail.mail_id, body)
    if raw is None:
        return Unreadable(_UNBOUND, body)
    try:
        letter: Letter = parse_letter(raw)
        return letter
    except msgspec.ValidationError as error:
        return Unreadable(f"this release does not know its kind ({error})", body, is_newer=True)
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


logger = logging.getLogger("outlive")

#: Behind every seq.
_AFTER_ALL = 1 << 62
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
    if isinstance(store, Mailroom) and len(letters) > 1:
        try:
            return [*await store.post_all(letters)]
        except OutliveError:
            raise
        except Exception as error:
            # It may be one letter's fault, and must not be everybody's.
            logger.warning("mail is posted one by one: %r", error)
    told: list[Posted | Exception] = []
    for letter in letters:
        try:
            told.append(await store.post(letter.run_id, letter.mail_id, letter.body))
        except Exception as error:
            told.append(error)
    return told


async def mail_of_each(store: Store, run_ids: Iterable[str]) -> Mapping[str, Sequence[Mail]]:
    """What was posted to these runs and not consumed."""
    wanted = list(run_ids)
    if isinstance(store, Mailroom):
        return await store.mail_of(wanted)
    found: dict[str, Sequence[Mail]] = {}
    for run_id in wanted:
        reading = await store.read(run_id, _AFTER_ALL)
        found[run_id] = () if reading is None else reading.mail
    return found
