"""Transactions of the user's in the store's file, each committed together with a step's outcome.

SQLite has one writer at a time: as long as such a transaction is open nobody else writes, and the
writers of this process wait at their lock. So it has a time limit, at which it is rolled back
wherever its body is. The connection is the body's own and lasts as long as the transaction. Only
SQLite itself knows all ways to end one, so it is asked to refuse them (its *authorizer*), and to
refuse everything once the transaction is over: no statement of a body is ever committed by itself.

A body that awaits runs on a loop, which must not wait for other writers, nor for the disk: two
threads do. Whoever ends a transaction never stands behind those who wait to begin one.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn

from outlive.errors import LeaseLost, UnsafeSettings, UsageError
from outlive.ports import Ports
from outlive.stores.shared import check_headers, header_values
from outlive.stores.sqlite.commit import commit_batch, views_for
from outlive.stores.sqlite.connections import Connections, open_connection, primary_code, translate
from outlive.stores.sqlite.health import SYNCHRONOUS_FULL, LogRoom, make_safe
from outlive.stores.sqlite.rows import FOUND_COLUMNS, HEADER_COLUMNS, bytes_of, found_of, records_of
from outlive.stores.transactions import Attempt, KeptOutcome, Unsure
from outlive.stores.types import Conflict, Entry, Reading, Statement

#: Well below the time that other processes wait for the file.
SECONDS_MAX = 10.0

#: How soon a statement that is under way at the limit is interrupted again.
_INTERRUPT_SECONDS = 0.005

_OURS = (
    "this transaction belongs to the step: it is committed when the body returns and rolled back "
    "when it raises"
)


class StepCursor(sqlite3.Cursor):
    """A cursor of a body's: while it is at work, nobody ends the transaction.

    The authorizer is called with SQLite's lock held and needs Python's; values are bound with
    Python's lock held and need SQLite's. Two threads on one connection could wait for each other.
    """

    connection: StepConnection

    def execute(self, sql: str, parameters: Any = (), /) -> StepCursor:
        with self.connection.at_work:
            return super().execute(sql, parameters)

    def executemany(self, sql: str, seq_of_parameters: Any, /) -> StepCursor:
        with self.connection.at_work:
            return super().executemany(sql, seq_of_parameters)

    def fetchone(self) -> Any:
        with self.connection.at_work:
            return super().fetchone()

    def fetchmany(self, size: int | None = None) -> list[Any]:
        with self.connection.at_work:
            return super().fetchmany(self.arraysize if size is None else size)

    def fetchall(self) -> list[Any]:
        with self.connection.at_work:
            return super().fetchall()

    def __next__(self) -> Any:
        with self.connection.at_work:
            return super().__next__()


class StepConnection(sqlite3.Connection):
    """A connection whose transaction the engine begins and ends; the body only writes."""

    #: A body has it.
    is_lent = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Held while a call of the body's is under way.
        self.at_work = threading.RLock()

    def cursor(self, factory: Any = StepCursor) -> Any:
        return super().cursor(factory)

    # Those of sqlite3 would not use ``StepCursor``.

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        return self.cursor().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> Any:
        return self.cursor().executemany(sql, parameters)

    def commit(self) -> NoReturn:
        raise UsageError(_OURS)

    def rollback(self) -> NoReturn:
        raise UsageError(_OURS)

    def close(self) -> None:
        if self.is_lent:
            raise UsageError(f"closing the connection would roll back: {_OURS}")
        super().close()

    def executescript(self, script: str, /) -> NoReturn:
        raise UsageError(f"executescript would commit; execute one statement at a time: {_OURS}")

    def __enter__(self) -> NoReturn:
        raise UsageError(f"`with connection` would commit: {_OURS}")


class SQLiteTransaction:
    """One transaction, from BEGIN to its end. It may be ended from any thread."""

    def __init__(self, db: StepConnection, attempt: Attempt, release: Callable[[], None]) -> None:
        self.connection = self._db = db
        self._attempt, self._release = attempt, release
        self._lock = threading.Lock()
        #: Nothing may be written any more.
        self._is_over = False
        self._is_released = self._is_closed = False
        db.set_authorizer(self._allow)
        db.is_lent = True

    def _allow(self, action: int, name: str | None, *_: object) -> int:
        if self._is_over or not self._db.in_transaction:
            return sqlite3.SQLITE_OK if name == "ROLLBACK" else sqlite3.SQLITE_DENY
        ends = action == sqlite3.SQLITE_TRANSACTION
        return sqlite3.SQLITE_DENY if ends else sqlite3.SQLITE_OK

    def write(self, outcome: bytes) -> None:
        """The outcome, if the epoch still stands; all that is left to do is to commit."""
        with self._lock:
            if self._is_over:
                raise TimeoutError("the transaction was open for too long")
            if not self._db.in_transaction:
                raise UsageError("the transaction was rolled back inside the body, by a statement")
            self._is_over = True
            self._db.set_authorizer(None)
        given = self._attempt
        (epoch,) = self._ask("SELECT epoch FROM runs WHERE run_id = ?", given.run_id) or (None,)
        if epoch != given.epoch:
            raise LeaseLost(given.run_id)
        self._ask(
            "INSERT OR IGNORE INTO outcomes (run_id, step, seq, epoch, body)"
            " VALUES (?, ?, ?, ?, ?)",
            *(given.run_id, given.step, given.seq, given.epoch, outcome),
        )
        if not self._ask("SELECT changes()")[0]:
            raise Unsure("there is an outcome already")

    def flush(self) -> None:
        """COMMIT."""
        self._ask("COMMIT")

    def _ask(self, sql: str, *values: Any) -> Any:
        cursor = sqlite3.Cursor(self._db)
        cursor.row_factory = None
        try:
            return cursor.execute(sql, values).fetchone()
        finally:
            cursor.close()

    def abort(self) -> None:
        """Roll back now, whatever the body is doing; whoever waits for the file can go on."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            while not self._db.at_work.acquire(timeout=_INTERRUPT_SECONDS):
                with suppress(sqlite3.Error):
                    self._db.interrupt()  # has no effect between two statements
            try:
                with suppress(sqlite3.Error):
                    # Statements that were compiled before are judged anew.
                    self._db.set_authorizer(self._allow)
                self._end()
            finally:
                self._db.at_work.release()

    def roll_back(self) -> None:
        """Leave nothing of it, and let go of the connection."""
        with self._lock:
            if not self._is_closed:
                self._is_over = self._is_closed = True
                with suppress(sqlite3.Error):
                    self._db.set_authorizer(None)
                self._end()
                self._db.is_lent = False
                self._db.close()

    def _end(self) -> None:
        if self._is_released:
            return
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._ask("ROLLBACK")
        self._is_released = True
        self._release()


class SQLitePlainTransaction:
    """For a body in a thread of its own."""

    is_lost = False  # a file is there as long as the process

    def __init__(self, own: SQLiteTransaction, transactions: SQLiteTransactions) -> None:
        self.connection = own.connection
        self.abort, self.roll_back = own.abort, own.roll_back
        self._own, self._transactions = own, transactions

    def commit(self, outcome: bytes) -> None:
        """See ``Transaction``."""
        self._transactions.commit(self._own, outcome)


class SQLiteLoopTransaction:
    """For a body on a loop."""

    is_lost = False

    def __init__(self, own: SQLiteTransaction, transactions: SQLiteTransactions) -> None:
        self.connection = own.connection
        self.abort = own.abort
        self._own, self._transactions = own, transactions

    async def commit(self, outcome: bytes) -> None:
        """See ``AsyncTransaction``."""
        await self._transactions.commit_beside(self._own, outcome)

    async def roll_back(self) -> None:
        """See ``AsyncTransaction``."""
        self._own.roll_back()


class SQLiteTransactions:
    """The transactions of one store's users: see ``Transactional``."""

    seconds_max = SECONDS_MAX

    def __init__(self, connections: Connections, ports: Ports, log: LogRoom) -> None:
        self._connections, self._log = connections, log
        self._clock, self._failpoint = ports.clock, ports.failpoint
        self._beginning = ThreadPoolExecutor(1, thread_name_prefix="outlive-begin")
        self._ending = ThreadPoolExecutor(1, thread_name_prefix="outlive-end")

    def begin(self, attempt: Attempt, seconds: float) -> SQLitePlainTransaction:
        """Waits until nobody else writes."""
        return SQLitePlainTransaction(self._begin(attempt), self)

    async def begin_async(self, attempt: Attempt, seconds: float) -> SQLiteLoopTransaction:
        """The same; the loop goes on meanwhile."""
        begun = self._beginning.submit(self._begin, attempt)
        try:
            return SQLiteLoopTransaction(await asyncio.wrap_future(begun), self)
        except asyncio.CancelledError:
            begun.add_done_callback(_roll_back_unused)
            raise

    def _begin(self, attempt: Attempt) -> SQLiteTransaction:
        path = self._connections.path
        db = open_connection(path, _connect, lambda each: _prepare(each, path))
        assert isinstance(db, StepConnection), "it was made above"
        try:
            release = self._connections.hold()
        except BaseException:
            db.close()
            raise
        try:
            self._connections.check_sound()
            db.execute("BEGIN IMMEDIATE")
            return SQLiteTransaction(db, attempt, release)
        except BaseException as error:
            db.close()
            release()
            if isinstance(error, sqlite3.Error):
                raise translate(error, path) from error
            raise

    def commit(self, own: SQLiteTransaction, outcome: bytes) -> None:
        """Both or neither; the transaction is over in any case."""
        try:
            own.write(outcome)
            self._failpoint("transaction.before")
            try:
                own.flush()
            except sqlite3.Error as error:
                if primary_code(error) == sqlite3.SQLITE_CONSTRAINT:
                    raise  # a constraint of the user's that is checked only now
                raise Unsure(str(error)) from self._connections.failure(error, at_commit=True)
            self._failpoint("transaction.after")
        finally:
            own.roll_back()

    async def commit_beside(self, own: SQLiteTransaction, outcome: bytes) -> None:
        """The same; the loop goes on meanwhile."""
        await asyncio.wrap_future(self._ending.submit(self.commit, own, outcome))

    async def outcome_of(self, attempt: Attempt) -> bytes | None:
        """What is missing is not under way: its epoch is over, or the attempt is."""
        with self._connections.reading() as db:
            row = db.execute(
                "SELECT body FROM outcomes WHERE run_id = ? AND step = ?",
                (attempt.run_id, attempt.step),
            ).fetchone()
            if row is None:
                # A missing outcome means that the step is done again: no index is trusted in that.
                row = db.execute(
                    "SELECT body FROM outcomes WHERE +run_id = ? AND +step = ?",
                    (attempt.run_id, attempt.step),
                ).fetchone()
        return None if row is None else bytes_of(row[0])

    async def outcomes_of(self, run_id: str) -> Sequence[KeptOutcome]:
        with self._connections.reading() as db:
            rows = db.execute(
                "SELECT step, body FROM outcomes WHERE +run_id = ? ORDER BY step", (run_id,)
            ).fetchall()
        return [KeptOutcome(step=str(step), body=bytes_of(body)) for step, body in rows]

    async def forget_outcomes(self, steps: Sequence[tuple[str, str]]) -> None:
        with self._connections.writing() as db:
            for step in steps:
                db.execute("DELETE FROM outcomes WHERE run_id = ? AND step = ?", step)

    def enlist(self, connection: Any, entry: Entry) -> tuple[bool, Reading | None]:
        check_headers([entry])
        return enlist(self._connections.path, connection, entry, self._clock.now_ms())

    async def enlist_async(self, connection: Any, entry: Entry) -> tuple[bool, Reading | None]:
        return self.enlist(connection, entry)

    async def commit_with(
        self, entry: Entry | None, statements: Sequence[Statement]
    ) -> Conflict | None:
        batch = [] if entry is None else [entry]
        check_headers(batch)
        self._failpoint("commit.before")
        with self._connections.writing(views_for(batch)) as db:
            refused = commit_batch(db, batch, self._clock.now_ms())
            if not any(refused):
                for sql, values in statements:
                    db.execute(sql.format(tables="", committed="true"), values)
        self._log.committed()
        self._failpoint("commit.after")
        return refused[0] if refused else None

    def close(self) -> None:
        """Nothing more is begun."""
        self._beginning.shutdown(wait=False)
        self._ending.shutdown(wait=False)


def _roll_back_unused(begun: Future[SQLiteTransaction]) -> None:
    """Whoever wanted it is gone."""
    if not begun.cancelled() and begun.exception() is None:
        begun.result().roll_back()


def _connect(path: str) -> StepConnection:
    # Compiled statements are not kept, so that each is judged by the authorizer.
    return sqlite3.connect(
        path,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=0,
        factory=StepConnection,
    )


def _prepare(db: Any, path: str) -> None:
    make_safe(db, path)
    db.execute("PRAGMA foreign_keys = ON")


_COLUMNS = f"run_id, seq, epoch, link, {HEADER_COLUMNS}"
_MARKS = ", ".join("?" for _ in _COLUMNS.split(", "))
_CREATE = f"""
    INSERT INTO runs ({_COLUMNS}) SELECT {_MARKS}
    WHERE NOT EXISTS (SELECT 1 FROM runs WHERE run_id = ?)
    AND NOT EXISTS (SELECT 1 FROM tombstones WHERE run_id = ? AND keep_until > ?)
"""


def enlist(path: str, connection: Any, entry: Entry, now: int) -> tuple[bool, Reading | None]:
    """Whether the run is in, else the run that has its id (None: one that was deleted)."""
    _check(path, connection)
    assert entry.header is not None, "a run begins with a header"
    run_id = entry.run_id
    head = (run_id, entry.last, entry.epoch, entry.link)
    values = (*head, *header_values(entry.header), run_id, run_id, now)
    if not _cursor(connection).execute(_CREATE, values).rowcount:
        return False, _reading(connection, run_id)
    _cursor(connection).execute(
        "INSERT INTO records (run, seq, body) SELECT id, 1, ? FROM runs WHERE run_id = ?",
        (entry.record, run_id),
    )
    for node in entry.nodes:
        _cursor(connection).execute(
            "INSERT OR IGNORE INTO nodes (family, address, body) VALUES (?, ?, ?)",
            (entry.header.family, node.address, node.body),
        )
    return True, None


def _check(path: str, connection: Any) -> None:
    if not isinstance(connection, sqlite3.Connection):
        raise UsageError(
            f"connection={connection!r} is none of sqlite3; the store is the file {path}"
        )
    (found,) = [
        file for _, name, file in _rows(connection, "PRAGMA database_list") if name == "main"
    ]
    if not found or not os.path.samefile(found, path):
        raise UsageError(f"the connection is to {found or 'memory'}, the store is {path}")
    if not connection.in_transaction and _is_autocommit(connection):
        raise UsageError(
            "the connection is in autocommit and has no transaction; execute BEGIN before, or the "
            "run would not begin together with what you write"
        )
    ((synchronous,),) = _rows(connection, "PRAGMA synchronous")
    if synchronous < SYNCHRONOUS_FULL:
        raise UnsafeSettings(
            f"the connection has synchronous={synchronous}, which would lose committed runs at a "
            "power cut; leave it at 2 (FULL)"
        )


def _is_autocommit(connection: sqlite3.Connection) -> bool:
    """No statement begins a transaction by itself; ``autocommit`` is there from Python 3.12 on."""
    return connection.isolation_level is None or getattr(connection, "autocommit", None) is True


def _cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None
    return cursor


def _rows(connection: sqlite3.Connection, sql: str, values: Sequence[Any] = ()) -> list[Any]:
    return _cursor(connection).execute(sql, values).fetchall()


def _reading(connection: sqlite3.Connection, run_id: str) -> Reading | None:
    rows = _rows(connection, f"SELECT id, {FOUND_COLUMNS} FROM runs WHERE run_id = ?", (run_id,))
    if not rows:
        return None
    found = found_of(rows[0])
    records = _rows(
        connection,
        "SELECT seq, body FROM records WHERE run = ? AND seq >= ? ORDER BY seq LIMIT 1",
        (rows[0][0], found.header.chapter),
    )
    return Reading(
        head=found.head, header=found.header, records=records_of(run_id, records), mail=()
    )
