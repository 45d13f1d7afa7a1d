"""The outside world of a test: a receiver that records what happened, and fails on demand.

A ledger is one file, a line per event, synced before it counts; any number of processes use it at
once. Each request is handled in a *manner*: the receiver answers, refuses, breaks the connection
afterwards, hangs, or is late. A late event is recorded at once with the instant at which it will
have happened: until then ``find`` does not see it, and the caller's death does not stop it, like a
bank that completes a request when its client is gone.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from outlive.testing.audit.auditor import Receipt

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Receipt)


class ReceiverRefused(ConnectionRefusedError):
    """The receiver was not reached: nothing happened."""


class ReplyLost(ConnectionResetError):
    """The connection broke; the caller can't know what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """The receiver's behaviour for one request."""

    #: Whether it happens.
    commits: bool = True
    #: The delay after which it happens.
    delay_seconds: float = 0.0
    #: The treatment of the caller after that.
    then: Literal["answer", "refuse", "break", "hang"] = "answer"


ANSWERS = Manner()
#: Nothing happens, and the caller can tell.
REFUSES = Manner(commits=False, then="refuse")
#: Nothing happens, and the caller can't tell.
BREAKS_BEFORE = Manner(commits=False, then="break")
BREAKS_AFTER = Manner(then="break")
HANGS_BEFORE = Manner(commits=False, then="hang")
HANGS_AFTER = Manner(then="hang")


class Ledger:
    """A receiver and its records, in one file."""

    def __init__(self, path: str | os.PathLike[str], *, settle_seconds: float = 5.0) -> None:
        self._path = Path(path)
        #: The receiver's promise: it finishes or refuses every request within this time.
        self._settle_seconds = settle_seconds

    async def perform(
        self, request: Receipt, manner: Manner = ANSWERS, *, honours_key: bool = False
    ) -> Receipt:
        """Handle a request in this manner."""
        done = self.enter(request, manner, honours_key=honours_key)
        if manner.then == "answer":
            await asyncio.sleep(manner.delay_seconds)
            return done
        if manner.then == "hang":
            await asyncio.Event().wait()
        raise _error(manner)

    def enter(
        self, request: Receipt, manner: Manner = ANSWERS, *, honours_key: bool = False
    ) -> Receipt:
        """Record that it happens; where keys are honoured, the same key is the same event."""
        if manner.delay_seconds > self._settle_seconds:
            raise ValueError("this receiver promises to be done sooner than that")
        if not manner.commits:
            return request
        with self._locked() as file:
            known = _find(_read(file), request.key) if honours_key else None
            if known is not None:
                return known
            done = replace(request, at=_now_ms() + round(manner.delay_seconds * 1000))
            _append(file, done)
            return done

    def find(self, key: str) -> Receipt | None:
        """Find the receipt of this key, as of now."""
        now = _now_ms()
        with self._locked() as file:
            return _find([each for each in _read(file) if each.at <= now], key)

    def receipts(self) -> list[Receipt]:
        """All that happened, and all that will."""
        with self._locked() as file:
            return list(_read(file))

    @contextmanager
    def _locked(self) -> Iterator[int]:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def _error(manner: Manner) -> ConnectionError:
    if manner.then == "refuse":
        return ReceiverRefused("nobody is at home")
    return ReplyLost("the connection broke")


def _read(file: int) -> Sequence[Receipt]:
    """Read complete lines; one that was cut off by a kill never counted."""
    text = os.pread(file, os.fstat(file).st_size, 0)
    return [_decoder.decode(line) for line in text.split(b"\n")[:-1]]


def _append(file: int, receipt: Receipt) -> None:
    text = os.pread(file, os.fstat(file).st_size, 0)
    os.ftruncate(file, text.rfind(b"\n") + 1)
    os.write(file, _encode(receipt) + b"\n")
    os.fsync(file)


def _find(receipts: Sequence[Receipt], key: str) -> Receipt | None:
    return next((each for each in receipts if each.key == key), None)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
