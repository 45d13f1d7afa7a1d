"""Points at which a process can be killed, and the messages that lab, nursery and child exchange.

A point is the n-th call of a store's verb (before or after it), the n-th named moment of the
engine, or the n-th system call of one kind in one thread.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from outlive.errors import StoreUnavailable
from outlive.ports import Ports
from outlive.stores.open import check_there
from outlive.testing.crash.failing_store import CallFault

#: System calls that change a file or make it durable.
WRITE_CLASS = (
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "ftruncate",
    "fallocate",
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "renameat2",
    "mkdir",
    "mkdirat",
)

#: System calls by which a client talks to its server.
NETWORK_CLASS = ("connect", "sendto", "recvfrom", "write")


class MomentFault(msgspec.Struct, frozen=True, kw_only=True, tag="moment"):
    """Killed at the n-th named moment (from 1)."""

    number: int


class SyscallFault(msgspec.Struct, frozen=True, kw_only=True, tag="syscall"):
    """Killed on entering the n-th system call of this name in this thread (from 1)."""

    thread: str
    syscall: str
    number: int


Point: TypeAlias = CallFault | MomentFault | SyscallFault


def describe(point: Point) -> str:
    """The name of a point, for people."""
    match point:
        case CallFault():
            return f"{point.when} {point.verb or 'store'} call {point.number}"
        case MomentFault():
            return f"at moment {point.number}"
        case SyscallFault():
            return f"at {point.syscall} {point.number} of thread {point.thread}"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """An order to a child: run the scene in this folder, and die at this point."""

    number: int
    folder: str
    #: The URL of the store.
    store: str
    point: Point | None = None
    #: Let strace write down every system call of these.
    trace: tuple[str, ...] = ()
    lease_seconds: float = 1.0
    poll_seconds: float = 0.05
    idle_seconds: float = 0.0
    limit_seconds: float = 60.0


class ChildExit(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a child: its exit code, or minus the signal that killed it."""

    number: int
    status: int


class Diary(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a child that was not killed, in order."""

    calls: list[str]
    moments: list[str]
    #: native id -> name
    threads: dict[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The points of one undisturbed pass."""

    #: verb -> how many
    calls: Mapping[str, int]
    moments: int
    #: (thread, system call) -> how many
    syscalls: Mapping[tuple[str, str], int]

    def call_points(self) -> Iterator[CallFault]:
        """Before and after every store call."""
        for verb, count in sorted(self.calls.items()):
            for number in range(1, count + 1):
                yield CallFault(number=number, verb=verb, when="before")
                yield CallFault(number=number, verb=verb, when="after")

    def moment_points(self) -> Iterator[MomentFault]:
        """Every named moment."""
        for number in range(1, self.moments + 1):
            yield MomentFault(number=number)

    def syscall_points(self) -> Iterator[SyscallFault]:
        """Every system call that was traced."""
        for (thread, syscall), count in sorted(self.syscalls.items()):
            for number in range(1, count + 1):
                yield SyscallFault(thread=thread, syscall=syscall, number=number)


DATABASE = "journal.db"
_NAME_BYTES = 8


def url_of(folder: Path, server: str | None) -> str:
    """The store of the trial in this folder: a file there, or a schema of this server."""
    if server is None:
        return f"sqlite:///{folder / DATABASE}"
    name = hashlib.blake2b(str(folder).encode(), digest_size=_NAME_BYTES).hexdigest()
    return f"{server}{'&' if urlsplit(server).query else '?'}schema=crash_{name}"


def is_there(url: str) -> bool:
    """Whether the store exists yet."""
    try:
        check_there(url, Ports())
    except StoreUnavailable:
        return False
    return True


@contextmanager
def as_it_is(folder: Path, url: str) -> Iterator[str]:
    """The same journals where reading changes nothing: opening a file would repair it."""
    if not url.startswith("sqlite:"):
        yield url
        return
    copy = folder / "copy"
    copy.mkdir()
    try:
        for name in (DATABASE, f"{DATABASE}-wal"):
            if (folder / name).exists():
                shutil.copy(folder / name, copy / name)
        yield url_of(copy, None)
    finally:
        shutil.rmtree(copy)


def remove(folder: Path, url: str) -> None:
    """Remove what a trial made."""
    if not url.startswith("sqlite:"):
        _drop(url)
    shutil.rmtree(folder)


def _drop(url: str) -> None:
    from psycopg import connect, sql

    from outlive.stores.postgres.url import parse_place

    place = parse_place(url)
    gone = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(place.schema))
    with connect(place.conninfo, autocommit=True) as db:
        db.execute(gone)
