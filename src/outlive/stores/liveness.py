"""A file per worker, locked for as long as its process lives (R23).

The kernel frees an flock at the very death of its holder, however it died: a lock that can be
had is a certain death, found out at once and with no clock. A worker that holds its lock but
hangs is told by its beat counter, written into the same file: no database, no flush, so a beat
never queues behind a commit.

Two rules keep the files honest. A file is unlinked only by who holds its lock and has seen that
the path still leads to it; and who locks a file looks again whether the path leads to it. So no
living worker ever holds the lock of a file that nobody can find.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from outlive.errors import StoreUnavailable
from outlive.ports import Clock
from outlive.stores.types import Standing


class Silence:
    """Remembers since when each worker's beat counter has not moved."""

    def __init__(self, clock: Clock, lease_seconds: float) -> None:
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._seen: dict[str, tuple[int, float]] = {}

    def judge(self, worker: str, counter: int) -> Standing:
        """Alive, or silent if this counter has been seen for a whole lease."""
        now = self._clock.monotonic()
        seen = self._seen.get(worker)
        if seen is None or seen[0] != counter:
            self._seen[worker] = (counter, now)
            return "alive"
        return "silent" if now - seen[1] >= self._lease_seconds else "alive"

    def forget(self, worker: str) -> None:
        """The worker is gone: its next counter, if any, is news."""
        self._seen.pop(worker, None)


_COUNTER_BYTES = 8
_FILE_BYTES_MAX = 200_000
#: How often a watcher may get in the way of a worker's first beat before we give up.
_ENLIST_TRIES_MAX = 200
_ENLIST_PAUSE_SECONDS = 0.005
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


class Presence:
    """The workers of one store on one machine: our own, which beat, and all that are judged."""

    def __init__(self, folder: Path, clock: Clock, lease_seconds: float) -> None:
        self._folder = folder
        self._silence = Silence(clock, lease_seconds)
        self._lock = threading.Lock()
        self._own: dict[str, int] = {}
        self._counters: dict[str, int] = {}
        #: What is written in which of our files.
        self._told: dict[str, tuple[int, str]] = {}
        _drop_after_fork(self)

    def beat(self, worker: str, about: str = "") -> None:
        """Count one up in the worker's file; lock it first if this is the first beat.

        What it says of itself stands behind the counter, written when it is new.
        """
        with self._lock:
            fd = self._own.get(worker)
            if fd is None or not _leads_to(self._path(worker), fd):
                fd = self._enlist(worker)
            counter = self._counters.get(worker, 0) + 1
            self._counters[worker] = counter
            told = self._told.get(worker)
            body = counter.to_bytes(_COUNTER_BYTES, "big")
            if told != (fd, about):
                os.ftruncate(fd, _COUNTER_BYTES)
                body += json.dumps([worker, about]).encode()
                self._told[worker] = fd, about
            os.pwrite(fd, body, 0)

    def judge(self, worker: str) -> Standing:
        """What can be said of a worker from outside."""
        with self._lock:
            path = self._path(worker)
            try:
                fd = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                self._silence.forget(worker)
                return "dead"
            try:
                return self._judge_open(worker, path, fd)
            finally:
                os.close(fd)

    def _judge_open(self, worker: str, path: Path, fd: int) -> Standing:
        if not _try_lock(fd):
            counter = int.from_bytes(os.pread(fd, _COUNTER_BYTES, 0), "big")
            return self._silence.judge(worker, counter)
        if _leads_to(path, fd):
            path.unlink()
            self._silence.forget(worker)
            return "dead"
        return "alive"  # enlisted anew while we looked: the next look will tell

    def release(self, worker: str) -> None:
        """Stop being present as this worker."""
        with self._lock:
            self._let_go(worker)

    def close(self) -> None:
        """Stop being present at all."""
        with self._lock:
            for worker in list(self._own):
                self._let_go(worker)

    def _enlist(self, worker: str) -> int:
        self._let_go(worker)
        path = self._path(worker)
        for _ in range(_ENLIST_TRIES_MAX):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            if _try_lock(fd) and _leads_to(path, fd):
                self._own[worker] = fd
                return fd
            os.close(fd)
            time.sleep(_ENLIST_PAUSE_SECONDS)  # a watcher that looks at the file needs no longer
        raise StoreUnavailable(f"{path} is held by another process; each worker needs its own id")

    def _let_go(self, worker: str) -> None:
        fd = self._own.pop(worker, None)
        if fd is None:
            return
        path = self._path(worker)
        if _leads_to(path, fd):
            path.unlink()
        os.close(fd)

    def _path(self, worker: str) -> Path:
        return self._folder / f"{_file_name(worker)}.beat"

    def drop_in_child(self) -> None:
        """After a fork: the lock is our parent's, and must not live on in us."""
        self._lock = threading.Lock()
        for fd in self._own.values():
            os.close(fd)
        self._own.clear()


class Introduced(NamedTuple):
    """A worker's file."""

    worker: str
    about: str
    #: ms since 1970, by this machine.
    beat_at: int


def introduced(folder: Path) -> list[Introduced]:
    """The workers whose processes live, as they say who they are; those that can't be read not."""
    found = []
    for path in sorted(folder.glob("*.beat")):
        if _is_held(path):
            with suppress(OSError, ValueError, TypeError):
                body = path.read_bytes()[_COUNTER_BYTES:_FILE_BYTES_MAX]
                worker, about = json.loads(body) if body else (path.stem, "")
                if f"{_file_name(worker)}.beat" == path.name and isinstance(about, str):
                    beat_at = path.stat().st_mtime_ns // 1_000_000
                    found.append(Introduced(worker, about, beat_at))
    return found


def living(folder: Path) -> list[str]:
    """The files of workers whose processes live, by their names."""
    return sorted(path.stem for path in folder.glob("*.beat") if _is_held(path))


def _is_held(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(fd)
    finally:
        os.close(fd)


def _file_name(worker: str) -> str:
    """Worker ids are opaque; only plain ones are fit to be file names."""
    if _PLAIN_NAME.fullmatch(worker):
        return worker
    return "~" + hashlib.blake2b(worker.encode(errors="surrogatepass"), digest_size=20).hexdigest()


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _leads_to(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _drop_after_fork(presence: Presence) -> None:
    # A hook can't be taken back, so it must not keep the object alive.
    mine = weakref.ref(presence)

    def after_in_child() -> None:
        found = mine()
        if found is not None:
            found.drop_in_child()

    os.register_at_fork(after_in_child=after_in_child)
