"""Transactions of the user's in the store's database, each committed with a step's outcome.

The body gets psycopg's own connection, one that awaits if the body does. BEGIN comes with limits
for what it does (a host that is gone must not keep its locks) and with a mark, by which the end
finds out whether it is still the same transaction. The end is one message: whatever was put off
until then, the outcome, the epoch's lock and COMMIT. Behind that lock nothing may wait. If its
answer is lost, or one that a server may give without its standby, nobody knows.

Connections are kept for the next transaction, and there are only so many at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, adapters, pq
from psycopg.adapt import AdaptersMap
from psycopg.rows import tuple_row

from outlive.errors import LeaseLost, UsageError
from outlive.ports import Ports
from outlive.stores.postgres.commit import Ask, table_statement
from outlive.stores.postgres.connection import Statement
from outlive.stores.postgres.enlist import enlist, enlist_async
from outlive.stores.postgres.errors import ServerRefused, translate
from outlive.stores.postgres.pool import Pool
from outlive.stores.postgres.regression import Regression
from outlive.stores.postgres.wire import Parameter, Row, int8, text, texts, writable
from outlive.stores.shared import check_headers
from outlive.stores.transactions import (
    Attempt,
    KeptOutcome,
    NotInTime,
    Unsure,
)
from outlive.stores.types import Answers, Conflict, Entry, Reading
from outlive.stores.types import Statement as TableStatement

_IDLE_SECONDS_MAX = 60.0

OURS = (
    "this transaction belongs to the step: it is committed when the body returns and rolled back "
    "when it raises; connection.transaction() makes savepoints"
)

C = TypeVar("C", "PostgresStepConnection", "AsyncStepConnection")


class Lent:
    """What the body of one step has registered with its connection is not the next one's."""

    _registered: AdaptersMap | None = None

    @property
    def adapters(self) -> AdaptersMap:
        """How values are written and read; psycopg's own until a body changes it."""
        if self._registered is None:
            self._registered = AdaptersMap(adapters)
        return self._registered

    def forget_adapters(self) -> None:
        """Begin again with psycopg's own."""
        self._registered = None


class PostgresStepConnection(Lent, Connection[Any]):
    """A connection whose transaction the engine begins and ends; the body only writes."""

    def commit(self) -> NoReturn:
        raise UsageError(OURS)

    def rollback(self) -> NoReturn:
        raise UsageError(OURS)

    def close(self) -> NoReturn:
        raise UsageError(OURS)

    def __enter__(self) -> NoReturn:
        raise UsageError(f"`with connection` would commit: {OURS}")


class AsyncStepConnection(Lent, AsyncConnection[Any]):
    """The same for a body that awaits."""

    async def commit(self) -> NoReturn:
        raise UsageError(OURS)

    async def rollback(self) -> NoReturn:
        raise UsageError(OURS)

    async def close(self) -> NoReturn:
        raise UsageError(OURS)

    async def __aenter__(self) -> NoReturn:
        raise UsageError(f"`async with connection` would commit: {OURS}")


class Kept(Generic[C]):
    """Connections that nobody uses; the one used last is the next. Safe from any thread."""

    def __init__(self, ports: Ports) -> None:
        self._clock = ports.clock
        self._lock = threading.Lock()
        self._idle: deque[tuple[float, C]] = deque()

    def take(self) -> C | None:
        with self._lock:
            return self._idle.pop()[1] if self._idle else None

    def give_back(self, db: C) -> None:
        """For the next who needs one, if it is as good as new."""
        db.row_factory = tuple_row  # what a body has set is its own
        db.forget_adapters()
        if db.pgconn.transaction_status == pq.TransactionStatus.IDLE:
            with self._lock:
                self._idle.append((self._clock.monotonic(), db))
        else:
            finish(db)
        self.close_idle()

    def close_idle(self) -> None:
        """Those that were not used for long."""
        self.close(before=self._clock.monotonic() - _IDLE_SECONDS_MAX)

    def close(self, before: float = float("inf")) -> None:
        """Those that were not used since then."""
        with self._lock:
            while self._idle and self._idle[0][0] < before:
                finish(self._idle.popleft()[1])


def finish(db: PostgresStepConnection | AsyncStepConnection) -> None:
    """Close it, from any thread: a connection that awaits elsewhere has nothing to await here."""
    if isinstance(db, PostgresStepConnection):
        Connection.close(db)
        return
    with suppress(StopIteration):
        AsyncConnection.close(db).send(None)


#: What ``keep_v1`` raises: the body ended the transaction; another epoch; it is too late.
NOT_OURS, FENCED, TOO_LATE = "OL001", "OL002", "OL003"
#: The name of a setting of the transaction that says for which attempt it was begun.
MARK = "outlive.attempt"


#: Transactions at once, in plain code and on each loop: each has a connection.
TRANSACTIONS_MAX = 8
_PAUSE_FIRST, _PAUSE_MAX = 0.02, 1.0
#: The longest limit that a server can count.
_LIMIT_MS_MAX = 2**31 - 1
#: A body may have taken another role; RESET ALL says nothing about that.
_OWN_ROLE = ("RESET SESSION AUTHORIZATION", "RESET ROLE")
#: Nor about these, by which one body could mislead the next.
_LEFT_BEHIND = ("DISCARD TEMP", "UNLISTEN *", "SELECT pg_advisory_unlock_all()")
#: A commit that did not wait for its standby is told by a warning; a body may want none.
_SHOW_WARNINGS = "SET LOCAL client_min_messages = warning"
_OPTIONS: dict[str, Any] = {"autocommit": True, "prepare_threshold": None}


class _Words:
    """What is said to the server about one attempt, and what its answers mean."""

    def __init__(self, schema: str, attempt: Attempt, seconds: float) -> None:
        self._schema, self._attempt = schema, attempt
        self._limit = min(max(1, round(seconds * 1000)), _LIMIT_MS_MAX)

    @property
    def begin(self) -> bytes:
        """BEGIN, with its mark and its limits; what a body before has set is its own.

        That is forgotten in a transaction before: by some of it the next one begins.
        """
        mark = _literal(f"{writable(self._attempt.step)} {self._attempt.seq}")
        limits = ("statement_timeout", "idle_in_transaction_session_timeout")
        said = [f"SET LOCAL {name} = {self._limit}" for name in limits]
        afresh = ["BEGIN", "RESET ALL", *_OWN_ROLE, *_LEFT_BEHIND, "COMMIT"]
        return "; ".join([*afresh, "BEGIN", f"SET LOCAL {MARK} = {mark}", *said]).encode()

    def commit(self, outcome: bytes) -> bytes:
        """What the body has put off, the outcome in our own name, the epoch's lock, COMMIT."""
        given = self._attempt
        place = f"{_literal(writable(given.run_id))}, {_literal(writable(given.step))}"
        kept = f"{place}, {given.seq}, {given.epoch}, decode('{outcome.hex()}', 'hex')"
        keep = f'SELECT "{self._schema}".keep_v1({kept})'
        end = ["SET CONSTRAINTS ALL IMMEDIATE", *_OWN_ROLE, keep, _SHOW_WARNINGS, "COMMIT"]
        return "; ".join(end).encode()

    def meaning(
        self, error: psycopg.Error, db: Connection[Any] | AsyncConnection[Any]
    ) -> Exception:
        """What it means that the end was answered so."""
        if error.sqlstate == FENCED:
            return LeaseLost(self._attempt.run_id)
        if error.sqlstate == NOT_OURS:
            return UsageError(f"a statement of the body ended its transaction; {OURS}")
        if error.sqlstate == TOO_LATE or db.broken or db.closed:
            return Unsure(str(error))
        return error  # the server has refused it, and rolls back


class _Ending:
    """What both kinds of transaction know of their end."""

    def __init__(self, words: _Words, db: Any, leave: Callable[[], None]) -> None:
        self.connection = db
        self._words, self._leave = words, leave
        self._is_aborted = self._is_left = False
        self._warnings = 0
        db.add_notice_handler(self._notice)

    @property
    def is_lost(self) -> bool:
        """See ``Transaction``."""
        return bool(self.connection.broken)

    def _notice(self, diagnostic: Any) -> None:
        self._warnings += diagnostic.severity_nonlocalized == "WARNING"

    def abort(self) -> None:
        """Its statements have limits of their own; what is left is not to commit it."""
        self._is_aborted = True

    def _check(self) -> None:
        if self._is_aborted:
            raise TimeoutError("the transaction was open for too long")
        self._warnings = 0

    def _check_answer(self) -> None:
        if self._warnings:
            raise Unsure("the server did not wait for its standby")

    def _must_roll_back(self) -> bool:
        open_states = (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR)
        return self.connection.pgconn.transaction_status in open_states

    def _let_go(self) -> None:
        if not self._is_left:
            self._is_left = True
            self.connection.remove_notice_handler(self._notice)
            self._leave()


class PostgresPlainTransaction(_Ending):
    """For a body in a thread of its own."""

    def __init__(
        self,
        words: _Words,
        db: PostgresStepConnection,
        leave: Callable[[], None],
        failpoint: Failpoint,
    ) -> None:
        super().__init__(words, db, leave)
        self._failpoint = failpoint

    def commit(self, outcome: bytes) -> None:
        """See ``Transaction``."""
        try:
            self._check()
            self._failpoint("transaction.before")
            Cursor(self.connection, row_factory=tuple_row).execute(self._words.commit(outcome))
            self._check_answer()
            self._failpoint("transaction.after")
        except psycopg.Error as error:
            meant = self._words.meaning(error, self.connection)
            raise meant from (None if meant is error else error)
        finally:
            self.roll_back()

    def roll_back(self) -> None:
        """See ``Transaction``."""
        if not self._is_left and self._must_roll_back():
            with suppress(psycopg.Error):
                self.connection.execute("ROLLBACK")
        self._let_go()


class PostgresLoopTransaction(_Ending):
    """For a body on a loop."""

    def __init__(
        self,
        words: _Words,
        db: AsyncStepConnection,
        leave: Callable[[], None],
        failpoint: Failpoint,
    ) -> None:
        super().__init__(words, db, leave)
        self._failpoint = failpoint

    async def commit(self, outcome: bytes) -> None:
        """See ``AsyncTransaction``."""
        try:
            self._check()
            self._failpoint("transaction.before")
            cursor = AsyncCursor(self.connection, row_factory=tuple_row)
            await cursor.execute(self._words.commit(outcome))
            self._check_answer()
            self._failpoint("transaction.after")
        except psycopg.Error as error:
            meant = self._words.meaning(error, self.connection)
            raise meant from (None if meant is error else error)
        finally:
            await self.roll_back()

    async def roll_back(self) -> None:
        """See ``AsyncTransaction``."""
        if not self._is_left and self._must_roll_back():
            with suppress(psycopg.Error):
                await self.connection.execute("ROLLBACK")
        self._let_go()


Failpoint = Callable[[str], None]


class _LoopPlaces:
    """The places for transactions on one loop, and the connections kept there."""

    def __init__(self, ports: Ports) -> None:
        self.places = asyncio.Semaphore(TRANSACTIONS_MAX)
        self.kept: Kept[AsyncStepConnection] = Kept(ports)


class PostgresTransactions:
    """The transactions of one store's users: see ``Transactional``."""

    seconds_max = float("inf")

    def __init__(
        self,
        pool: Pool,
        ports: Ports,
        regression: Regression,
        store_id: str,
        commit: Callable[[Sequence[Entry], Ask], Answers],
    ) -> None:
        self._pool, self._ports = pool, ports
        self._regression, self._id, self._commit = regression, store_id, commit
        self._places = threading.BoundedSemaphore(TRANSACTIONS_MAX)
        self._kept: Kept[PostgresStepConnection] = Kept(ports)
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopPlaces] = WeakKeyDictionary()

    def begin(self, attempt: Attempt, seconds: float) -> PostgresPlainTransaction:
        """Waits for a place, and for a server if it is away, about as long as the body may take."""
        self._regression.admit()
        self._pool.check_open()
        words = _Words(self._pool.place.schema, attempt, seconds)
        until = self._ports.clock.monotonic() + seconds
        if not self._places.acquire(timeout=seconds):
            raise self._no_place()
        try:
            db = self._begun(words, until)
        except BaseException:
            self._places.release()
            raise

        def leave() -> None:
            self._kept.give_back(db)
            self._places.release()

        return PostgresPlainTransaction(words, db, leave, self._ports.failpoint)

    def _begun(self, words: _Words, until: float) -> PostgresStepConnection:
        pause = _PAUSE_FIRST
        while True:
            db: PostgresStepConnection | None = None
            try:
                db = self._kept.take() or PostgresStepConnection.connect(
                    self._pool.place.conninfo, **_OPTIONS
                )
                Cursor(db, row_factory=tuple_row).execute(words.begin)
                return db
            except psycopg.Error as error:
                self._lost(db, self._kept, error, until)
            if self._pool.wait_closed(pause):
                self._pool.check_open()
            pause = min(2 * pause, _PAUSE_MAX)

    async def begin_async(self, attempt: Attempt, seconds: float) -> PostgresLoopTransaction:
        """The same; the loop goes on meanwhile."""
        if not self._regression.is_settled:
            await asyncio.to_thread(self._regression.admit)
        self._pool.check_open()
        words = _Words(self._pool.place.schema, attempt, seconds)
        until = self._ports.clock.monotonic() + seconds
        here = self._loops.setdefault(asyncio.get_running_loop(), _LoopPlaces(self._ports))
        await _within(seconds, here.places.acquire(), self._no_place)
        try:
            db = await self._begun_async(words, until, here.kept)
        except BaseException:
            here.places.release()
            raise

        def leave() -> None:
            here.kept.give_back(db)
            here.places.release()

        return PostgresLoopTransaction(words, db, leave, self._ports.failpoint)

    async def _begun_async(
        self, words: _Words, until: float, kept: Kept[AsyncStepConnection]
    ) -> AsyncStepConnection:
        pause = _PAUSE_FIRST
        while True:
            db: AsyncStepConnection | None = None
            try:
                db = kept.take() or await AsyncStepConnection.connect(
                    self._pool.place.conninfo, **_OPTIONS
                )
                await AsyncCursor(db, row_factory=tuple_row).execute(words.begin)
                return db
            except psycopg.Error as error:
                self._lost(db, kept, error, until)
            except BaseException:
                if db is not None:
                    finish(db)
                raise
            await asyncio.sleep(pause)
            self._pool.check_open()
            pause = min(2 * pause, _PAUSE_MAX)

    def _lost(self, db: Any, kept: Kept[Any], error: psycopg.Error, until: float) -> None:
        """What was kept is most likely lost with it: the next one is a new one."""
        if db is not None:
            finish(db)
        kept.close()
        state = error.sqlstate
        if (
            state is not None
            and not (refused := ServerRefused(state, str(error).strip())).is_passing
        ):
            raise translate(refused, self._pool.place.name) from error
        if self._ports.clock.monotonic() >= until:
            reason = str(error).strip()
            raise NotInTime(f"{self._pool.place.name} has no connection for it: {reason}")

    def _no_place(self) -> NotInTime:
        return NotInTime(
            f"{TRANSACTIONS_MAX} transactions are open at {self._pool.place.name}, and none ended"
        )

    async def outcome_of(self, attempt: Attempt) -> bytes | None:
        ((outcome,),) = self._run(
            "SELECT {s}.outcome_v1($1, $2, $3, $4)",
            *(text(attempt.run_id), text(attempt.step), int8(attempt.seq), int8(attempt.epoch)),
        )
        return None if outcome is None else bytes(outcome)

    async def outcomes_of(self, run_id: str) -> Sequence[KeptOutcome]:
        """A row without a body says that there was none."""
        rows = self._run(
            "SELECT o.step, o.body FROM {s}.outcomes o"
            " WHERE o.run_id = $1 AND o.body IS NOT NULL ORDER BY o.step",
            text(run_id),
        )
        return [KeptOutcome(step=str(step), body=bytes(body)) for step, body in rows]

    async def forget_outcomes(self, steps: Sequence[tuple[str, str]]) -> None:
        run_ids, names = texts([run_id for run_id, _ in steps]), texts([step for _, step in steps])
        self._run("SELECT {s}.forget_v1($1, $2)", run_ids, names)

    def _run(self, sql: str, *parameters: Parameter) -> list[Row]:
        asked = sql.replace("{s}", f'"{self._pool.place.schema}"')
        return self._pool.run("other", Statement(asked, parameters))[0]

    def enlist(self, connection: Any, entry: Entry) -> tuple[bool, Reading | None]:
        check_headers([entry])
        return enlist(self._pool.place, self._id, connection, entry)

    async def enlist_async(self, connection: Any, entry: Entry) -> tuple[bool, Reading | None]:
        check_headers([entry])
        return await enlist_async(self._pool.place, self._id, connection, entry)

    async def commit_with(
        self, entry: Entry | None, statements: Sequence[TableStatement]
    ) -> Conflict | None:
        """All is sent at once: what is refused makes no row either."""
        schema = self._pool.place.schema
        if entry is None:
            lock = Statement("SELECT pg_advisory_xact_lock(hashtext('outlive tables'))")
            tables = [table_statement(schema, *each) for each in statements]
            self._pool.run("other", lock, *tables)
            return None
        rows = [table_statement(schema, *each, entry=entry) for each in statements]

        def run(_: Sequence[Entry], statement: Statement) -> list[Row]:
            return self._pool.run("commit", statement, *rows)[0]

        return self._commit([entry], run)[0]

    def close_idle(self) -> None:
        """Let go of what was not used for long: after a burst nobody else comes by."""
        for kept in self._all_kept():
            kept.close_idle()

    def close(self) -> None:
        """Let go of all that nobody uses."""
        for kept in self._all_kept():
            kept.close()

    def _all_kept(self) -> list[Kept[Any]]:
        return [self._kept, *(here.kept for here in list(self._loops.values()))]


async def _within(seconds: float, work: Awaitable[Any], late: Callable[[], Exception]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        raise late() from None


def _literal(words: str) -> str:
    """The text in SQL that means the same with any standard_conforming_strings and any encoding."""
    return "E'" + "".join(map(_escaped, words)) + "'"


def _escaped(letter: str) -> str:
    is_plain = letter.isascii() and letter.isprintable() and letter not in "'\\"
    return letter if is_plain else f"\\U{ord(letter):08x}"
