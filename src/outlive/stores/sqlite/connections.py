"""Connections to one SQLite file: one per verb under way, never without WAL and a flush per commit.

The settings that keep acknowledged events over a power cut are set *and read back* on every
connection, since a connection has its own. A connection costs a millisecond or two, so whoever is
through with one leaves it to the next, on whatever thread. Writers of this process queue at one
lock, so that they take turns instead of polling the file. After a failed flush nobody knows what
the disk holds, so the file is never written again (*poisoned*). No connection crosses a fork.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeAlias, TypeVar

from outlive.errors import AppClosed, StoreError, StoreFailed, StoreUnavailable
from outlive.stores.sqlite.files import OpenFiles

BUSY_SECONDS = 30

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGE = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's error code without its extension; 0 if the error is not SQLite's own."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Somebody else is writing."""
    return primary_code(error) in _BUSY


def is_poison(error: sqlite3.Error, *, at_commit: bool) -> bool:
    """Whether nothing may be written after this: after a failed flush nobody knows the disk."""
    code = primary_code(error)
    return code in _DAMAGE or (at_commit and code != sqlite3.SQLITE_FULL)


def translate(error: sqlite3.Error, path: str) -> StoreError:
    """The error of a verb, as the seam has it."""
    code = primary_code(error)
    if code in _BUSY:
        return StoreUnavailable(
            f"{path} stayed locked for {BUSY_SECONDS} s; see which process holds it"
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreFailed(f"the disk is full: {path} can't grow; make room and start again")
    return StoreFailed(f"{path}: {error}; nothing after this was stored")


def translate_opening(error: sqlite3.Error, path: str) -> StoreError:
    """The error of opening the file."""
    code = primary_code(error)
    if code == sqlite3.SQLITE_NOTADB:
        return StoreUnavailable(f"{path} is not a SQLite database; choose another file")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StoreUnavailable(f"{path} can't be opened; see the rights of the file and folder")
    if code == sqlite3.SQLITE_READONLY:
        return StoreUnavailable(f"{path} can't be written; see the rights of the file and folder")
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreUnavailable(f"{path} is damaged; restore it from a backup")
    if code == sqlite3.SQLITE_IOERR:
        return StoreUnavailable(f"{path} can't be read: {error}; see the disk it is on")
    return translate(error, path)


T = TypeVar("T")
Value: TypeAlias = str | bytes | int | None

_STATEMENTS_CACHED_MAX = 256

_WAITING = f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}"
_NOT_WAITING = "PRAGMA busy_timeout = 0"


class Cursor(Protocol):
    """What the store needs of a cursor. Its rows have the types of the tables."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """What the store needs of a connection: sqlite3's own, or one that looks like it."""

    @property
    def in_transaction(self) -> bool: ...
    @property
    def total_changes(self) -> int: ...
    def execute(self, sql: str, parameters: Sequence[Value] = ..., /) -> Cursor: ...
    def close(self) -> None: ...


Connect: TypeAlias = Callable[[str], Connection]
Prepare: TypeAlias = Callable[[Connection], None]
CreateView: TypeAlias = Callable[[Connection, str], None]


def connect_sqlite3(path: str) -> sqlite3.Connection:
    """A connection of the standard library, in autocommit, that ``close`` may end from anywhere."""
    return sqlite3.connect(
        path,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS_CACHED_MAX,
    )


class _Own:
    """A connection, locked while a verb uses it."""

    def __init__(self, db: Connection) -> None:
        self.db = db
        self.lock = threading.Lock()
        self.ended = False
        self.waits = True
        #: The views that were made for what it has written so far.
        self.views: set[str] = set()

    def wait_for_others(self, waits: bool) -> None:
        """Whether it waits while another process writes; told to SQLite when that changes."""
        if waits is not self.waits:
            self.db.execute(_WAITING if waits else _NOT_WAITING)
            self.waits = waits

    def end(self) -> None:
        with self.lock:
            self.ended = True
            with suppress(sqlite3.Error):  # what was acknowledged is in the log, closed or not
                self.db.close()


class Connections:
    """The connections of one store, and who may use them when."""

    def __init__(
        self, path: str, connect: Connect, *, prepare: Prepare, create_view: CreateView
    ) -> None:
        self.path = path
        self._connect = connect
        self._prepare, self._create_view = prepare, create_view
        self._process = os.getpid()
        self._opening = threading.Lock()
        self._writing = threading.Lock()
        #: Held by the next writer until the one before it is through: nobody writes twice in
        #: a row while another waits, as whoever frees a lock could just take it again.
        self._next = threading.Lock()
        self._open: list[_Own] = []
        #: Those that no verb uses; the one used last is the next, for what it has in its cache.
        self._free: deque[_Own] = deque()
        self._closed = False
        self._poison = ""
        self._files = OpenFiles(path)
        _end_before_fork(self)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One instant of the file."""
        with self._using() as own:
            db = own.db
            try:
                db.execute("BEGIN")
                yield db
            except sqlite3.Error as error:
                raise translate(error, self.path) from error
            finally:
                _roll_back(db)

    def look(self, work: Callable[[Connection], T]) -> T:
        """Do this, a single statement that reads: it sees one instant by itself."""
        own = self._take()
        try:
            if not own.waits:
                own.wait_for_others(True)
            return work(own.db)
        except sqlite3.Error as error:
            raise translate(error, self.path) from error
        finally:
            self._give_back(own)

    @contextmanager
    def writing(self, views: Set[str] = frozenset()) -> Iterator[Connection]:
        """One transaction and one flush; durable when this is left without an error."""
        with self._alone(views) as db, self._committing(db):
            db.execute("BEGIN IMMEDIATE")
            yield db

    def write_once(self, views: Set[str], work: Callable[[Connection], T]) -> T:
        """Do this, a single statement that is its own transaction and flush."""
        release = self.hold()
        try:
            own = self._take()
            try:
                if not own.waits:
                    own.wait_for_others(True)
                self._make_ready(own, views)
                return work(own.db)
            except sqlite3.Error as error:
                raise self.failure(error, at_commit=False) from error
            finally:
                self._give_back(own)
        finally:
            release()

    @contextmanager
    def rolling_back(self) -> Iterator[Connection]:
        """A transaction that leaves nothing behind."""
        with self._alone(frozenset()) as db:
            try:
                db.execute("BEGIN IMMEDIATE")
                yield db
            except sqlite3.Error as error:
                raise self.failure(error, at_commit=False) from error
            finally:
                _roll_back(db)

    def flush_log(self) -> None:
        """Flush what is in the log, so that the next commit need not; none relies on it.

        Nothing is written any more if it fails, as after every flush that failed.
        """
        # SQLite has no locks on this file that closing it would drop.
        descriptor = os.open(f"{self.path}-wal", os.O_RDWR)
        try:
            os.fsync(descriptor)
        except OSError as error:
            self._poison = _poison(error)
            raise
        finally:
            os.close(descriptor)

    def write_at_once(
        self, views: Set[str], work: Callable[[Connection], T], *, is_single: bool
    ) -> T | None:
        """Do this, a single statement or a transaction, unless somebody writes: None then."""
        if self._next.locked() or not self._writing.acquire(blocking=False):
            self.check_open()
            return None
        try:
            own = self._take()
            try:
                self.check_files()
                if not views <= own.views:
                    self._create_views(own, views - own.views)
                if own.waits:
                    own.wait_for_others(False)
                if is_single:
                    return work(own.db)
                own.db.execute("BEGIN IMMEDIATE")
                with self._committing(own.db):
                    return work(own.db)
            except sqlite3.Error as error:
                if is_busy(error):
                    return None
                raise self.failure(error, at_commit=False) from error
            finally:
                self._give_back(own)
        finally:
            self._writing.release()

    @contextmanager
    def _committing(self, db: Connection) -> Iterator[None]:
        at_commit = False
        try:
            yield
            at_commit = True
            db.execute("COMMIT")
        except sqlite3.Error as error:
            raise self.failure(error, at_commit=at_commit) from error
        finally:
            _roll_back(db)

    def hold(self) -> Callable[[], None]:
        """Keep the other writers of this process out, until what this returns is called."""
        self.check_open()  # before the lock: in a forked child nobody would ever free it
        with self._next:
            self._writing.acquire()
        return self._writing.release

    def problems(self) -> list[str]:
        """What keeps the file from being written, if anything."""
        return [self._poison] if self._poison else []

    def check_open(self) -> None:
        """Refuse after ``close`` and in a forked child."""
        if os.getpid() != self._process:
            raise AppClosed("this process was forked; open the store again in the child")
        if self._closed:
            raise AppClosed("the store was closed; open it again")

    def close(self) -> None:
        """End every connection, each when the verb that uses it is through."""
        self._closed = True
        if os.getpid() == self._process:
            with self._opening:
                self._end_all()

    @contextmanager
    def _alone(self, views: Set[str]) -> Iterator[Connection]:
        release = self.hold()
        try:
            with self._using() as own:
                self._make_ready(own, views)
                yield own.db
        finally:
            release()

    def check_files(self) -> None:
        """See that the path still leads to the files that are open.

        Raises:
            StoreFailed: it does not; nothing is written any more.
        """
        moved = self._files.moved()
        if moved is not None and not self._poison:
            self._poison = f"{moved} was replaced, moved or deleted while it was in use"
        if self._poison:
            self.check_sound()

    def check_sound(self) -> None:
        """Refuse after a write that failed."""
        if self._poison:
            raise StoreFailed(
                f"{self.path} is not written any more: {self._poison}; see the file, start again"
            )

    def _make_ready(self, own: _Own, views: Set[str]) -> None:
        self.check_files()
        if not views <= own.views:
            self._create_views(own, views - own.views)

    def _create_views(self, own: _Own, missing: Set[str]) -> None:
        # Before the transaction, for one that fails would take them away again.
        try:
            for view in sorted(missing):
                self._create_view(own.db, view)
                own.views.add(view)
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    @contextmanager
    def _using(self) -> Iterator[_Own]:
        own = self._take()
        try:
            own.wait_for_others(True)
            yield own
        finally:
            self._give_back(own)

    def _take(self) -> _Own:
        """A connection that is locked for the caller."""
        while True:
            self.check_open()
            try:
                own = self._free.pop()
            except IndexError:
                own = None
            if own is None:
                own = self._open_own()  # outside of ``except``: what it raises has no context
            own.lock.acquire()
            if not own.ended:
                return own
            own.lock.release()

    def _give_back(self, own: _Own) -> None:
        self._free.append(own)
        own.lock.release()

    def _open_own(self) -> _Own:
        with self._opening:
            self.check_open()
            if self._open:
                self.check_files()  # or one would be opened that the others do not know
            own = _Own(open_connection(self.path, self._connect, self._prepare))
            self._open.append(own)
            return own

    def _end_all(self) -> None:
        for own in self._open:
            own.end()
        self._open.clear()
        self._free.clear()
        self._files.forget_log()

    def before_fork(self) -> None:
        """Leave no connection to the child: SQLite would take its parent's locks for its own."""
        if os.getpid() == self._process:
            self._opening.acquire()
            self._end_all()

    def after_fork_in_parent(self) -> None:
        """Connections are opened anew as they are needed."""
        if os.getpid() == self._process:
            self._opening.release()

    def failure(self, error: sqlite3.Error, *, at_commit: bool) -> StoreError:
        """What a failed write means for the store, which may not be written any more."""
        if is_poison(error, at_commit=at_commit):
            self._poison = _poison(error)
        return translate(error, self.path)


def _poison(error: Exception) -> str:
    return f"an earlier write failed ({error})"


def _end_before_fork(connections: Connections) -> None:
    # A hook can't be taken back, so it must not keep the object alive; and between the two
    # halves of a fork it must.
    mine = weakref.ref(connections)
    held: list[Connections] = []

    def before() -> None:
        found = mine()
        if found is not None:
            found.before_fork()
            held.append(found)

    def after_in_parent() -> None:
        while held:
            held.pop().after_fork_in_parent()

    os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=held.clear)


def open_connection(path: str, connect: Connect, prepare: Prepare) -> Connection:
    """A connection that keeps what it acknowledges, or none.

    Raises:
        StoreUnavailable: the file can't be used; the message says what to look at.
        UnsafeSettings: SQLite did not take the settings.
    """
    try:
        db = connect(path)
    except sqlite3.Error as error:
        raise translate_opening(error, path) from error
    try:
        db.execute(_WAITING)
        prepare(db)
        return db
    except sqlite3.Error as error:
        db.close()
        raise translate_opening(error, path) from error
    except UnicodeDecodeError as error:  # in SQLite's own words about a damaged schema
        db.close()
        raise StoreUnavailable(f"{path} is damaged; restore it from a backup") from error
    except BaseException:
        db.close()
        raise


def _roll_back(db: Connection) -> None:
    with suppress(sqlite3.Error):
        if db.in_transaction:
            db.execute("ROLLBACK")
