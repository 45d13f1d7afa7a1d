"""One connection to PostgreSQL: statements in one round trip, each with a time limit.

Calls block, and are made from threads that may (the keeper's, the lane's, the pulse's); while they
wait, other threads run. No session is relied on, so a pooler that hands out a server per
transaction is fine; one of our own keeps what is asked all the time, parsed and planned, and may
forget it. A connection whose time ran out is closed, never cancelled: a cancelled commit that waits
for a standby would count as done without it. Others may cancel it: the server warns of that, so
each commit sees to it that warnings are shown, whatever roles and other sessions say.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import psycopg
from msgspec import Struct
from psycopg import pq

from outlive.ports import Clock
from outlive.stores.postgres.errors import ServerRefused, Unreachable
from outlive.stores.postgres.wire import Parameter, Row, boolean, int8, rows_of, text

T = TypeVar("T")

_BINARY = 1
_DONE = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY)
_UNKNOWN_STATE = "XX000"
_NOT_KEPT, _KEPT_ALREADY = "26000", "42P05"
#: Settings with which a commit is on the disk when it is answered.
_SETTINGS = (
    "SELECT current_setting('fsync'), current_setting('full_page_writes'),"
    " current_setting('synchronous_commit'), current_setting('server_version_num')::int8,"
    " pg_backend_pid()::int8, current_setting('server_encoding')"
)
#: Goes up when another server takes over, or a backup is restored: what it had may not be all.
TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int8"
#: The one sign that a commit did not wait for its standby is a warning.
_SHOW_WARNINGS = "SELECT set_config('client_min_messages', 'warning', $1)"
SERVER_VERSION_MIN = 130000
SERVER_ENCODING = "UTF8"


class Statement(Struct, frozen=True, gc=False):
    """One statement with its parameters."""

    sql: str
    parameters: Sequence[Parameter] = ()
    #: Under which a session may keep it, if it is asked all the time; no other text has this name.
    name: bytes = b""


class PostgresConnection:
    """A connection of psycopg, used through libpq's own calls."""

    def __init__(self, conninfo: str, clock: Clock, limit_seconds: float) -> None:
        try:
            self._driver = psycopg.connect(conninfo, autocommit=True)
        except psycopg.Error as error:
            raise _not_had(error) from error
        self._clock = clock
        self._limit = limit_seconds
        self._libpq = self._driver.pgconn
        self._libpq.nonblocking = 1
        self._warnings = 0
        self._driver.add_notice_handler(self._notice)
        self._poll = select.poll()
        self._poll.register(self._libpq.socket, select.POLLIN)
        self.problems: list[str] = []
        self.release = 0
        self.encoding = ""
        #: The server's; None: it does not say.
        self.timeline: int | None = None
        #: Through a pooler, any transaction may meet another server: only this timeline will do.
        self.expected: int | None = None
        #: A server's own connection, no pooler in between: a session is ours.
        self.is_direct = False
        #: Names of statements that were asked, and of those that the session keeps.
        self._asked: set[bytes] = set()
        self._kept: set[bytes] = set()

    def look_around(self) -> None:
        """Read back what durability depends on; give a session of our own what it needs."""
        fsync, full_pages, synchronous, self.release, process, self.encoding = self._settings()
        self.is_direct = process == self._libpq.backend_pid
        found = {"fsync": fsync, "full_page_writes": full_pages, "synchronous_commit": synchronous}
        self.problems = [f"{name} is off" for name, value in found.items() if value == "off"]
        if self.is_direct:
            limit = f"{round(self._limit * 1000)}ms"
            names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
            calls = ", ".join(f"set_config('{name}', $1, false)" for name in names)
            self.run(Statement(f"SELECT {calls}", [text(limit)]))
            self.run(Statement(_SHOW_WARNINGS, [boolean(False)]))

    def _settings(self) -> Row:
        try:
            ((row,),) = self.run(Statement(f"{_SETTINGS}, {TIMELINE}"))
        except ServerRefused:  # some that speak PostgreSQL's protocol have no such functions
            ((row,),) = self.run(Statement(f"{_SETTINGS}, NULL::int8"))
        self.timeline = row[-1]
        return row[:-1]

    def _notice(self, diagnostic: Any) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            self._warnings += 1

    # statements

    def run(self, *statements: Statement) -> list[list[Row]]:
        """Run all statements as one transaction, sent and flushed once; return the rows of each.

        Raises:
            ServerRefused: the server refused one, and so nothing was done.
            Unreachable: the connection is lost; what was sent may or may not have been done.
        """
        self._warnings = 0
        return self._answered(partial(self._exchange, statements))

    def run_at_once(self, statement: Statement, seconds: float) -> list[Row] | None:
        """The rows, if they come within this time; None: they are for ``finish``.

        Only for a session of our own: it needs no statement beside this one.

        Raises: as ``run``.
        """
        self._warnings = 0
        return self._answered(partial(self._exchange_at_once, statement, seconds))

    def finish(self) -> list[Row]:
        """The rows of the statement that was begun, however long they take. Raises: as ``run``."""
        until = self._clock.monotonic() + self._limit
        (result,) = self._answered(partial(self._results, until))
        return rows_of(result)

    def _answered(self, work: Callable[[], T]) -> T:
        answer = self._guarded(work)
        if self._warnings:
            # The one warning that these statements can give: done here, but not at the standby.
            self.close()
            raise Unreachable("the server did not wait for its standby")
        return answer

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except ServerRefused:
            if self._libpq.transaction_status != pq.TransactionStatus.IDLE:
                self.close()  # ends the transaction; whoever is next must not find it
            raise
        except (psycopg.Error, OSError) as error:
            self.close()
            raise Unreachable(str(error).strip() or repr(error)) from error

    def _exchange_at_once(self, statement: Statement, seconds: float) -> list[Row] | None:
        began = self._clock.monotonic()
        self._send(statement)
        self._flush(began + seconds)
        while self._libpq.is_busy():
            left = began + seconds - self._clock.monotonic()
            if left <= 0 or not self._poll.poll(left * 1000):
                return None
            self._libpq.consume_input()
        (result,) = self._results(began + self._limit)
        return rows_of(result)

    def _exchange(self, statements: Sequence[Statement]) -> list[list[Row]]:
        until = self._clock.monotonic() + self._limit
        if not self.is_direct:
            return self._exchange_pooled(statements, until)
        if len(statements) == 1:
            results = self._exchange_one(statements[0], until)
        else:
            results = self._exchange_many([partial(self._send, each) for each in statements], until)
        return [rows_of(result) for result in results]

    def _exchange_pooled(self, statements: Sequence[Statement], until: float) -> list[list[Row]]:
        """For a session that somebody else had before us: say in each transaction what we need."""
        show = Statement(_SHOW_WARNINGS, [boolean(True)])
        if self.expected is not None:
            sql = f"{_SHOW_WARNINGS}, 1 / ({TIMELINE} = $2)::int"
            show = Statement(sql, [boolean(True), int8(self.expected)])
        place = 1 if statements[0].sql.startswith("BEGIN") else 0  # before a query, or not at all
        all_ = [*statements[:place], show, *statements[place:]]
        results = self._exchange_many([partial(self._send, each) for each in all_], until)
        return [rows_of(result) for number, result in enumerate(results) if number != place]

    def _exchange_one(self, statement: Statement, until: float) -> list[Any]:
        name = statement.name
        if name and self.is_direct and name not in self._kept:
            if name in self._asked:
                return self._exchange_kept(statement, until)
            self._asked.add(name)
        try:
            return self._exchange_plainly(statement, until)
        except ServerRefused as error:
            if error.state != _NOT_KEPT or name not in self._kept:
                raise
        self._kept.discard(name)  # the session was told to forget; nothing was done
        return self._exchange_plainly(statement, until)

    def _exchange_kept(self, statement: Statement, until: float) -> list[Any]:
        """Let the session keep what it is asked again, and ask it, in one round trip."""
        self._kept.add(statement.name)
        sends = [partial(self._prepare, statement), partial(self._send, statement)]
        try:
            return self._exchange_many(sends, until)[1:]
        except ServerRefused as error:
            if error.state != _KEPT_ALREADY:
                self._kept.discard(statement.name)
                raise
        # What it has under this name is the same text, for the name is made of it.
        return self._exchange_plainly(statement, until)

    def _exchange_plainly(self, statement: Statement, until: float) -> list[Any]:
        self._send(statement)
        self._flush(until)
        return self._results(until)

    def _exchange_many(self, sends: Sequence[Callable[[], None]], until: float) -> list[Any]:
        self._libpq.enter_pipeline_mode()
        for send in sends:
            send()
        self._libpq.pipeline_sync()
        self._flush(until)
        found: list[Any] = []
        refusal: ServerRefused | None = None
        for _ in sends:
            try:
                found += self._results(until)
            except ServerRefused as error:
                refusal = refusal or error
        self._results(until)  # the end of it
        self._libpq.exit_pipeline_mode()
        if refusal is not None:
            raise refusal
        return found

    def _prepare(self, statement: Statement) -> None:
        kinds = [kind for kind, _ in statement.parameters]
        self._libpq.send_prepare(statement.name, statement.sql.encode(), kinds)

    def _send(self, statement: Statement) -> None:
        parameters = statement.parameters
        values, forms = [value for _, value in parameters], [_BINARY] * len(parameters)
        if statement.name in self._kept:
            self._libpq.send_query_prepared(statement.name, values, forms, _BINARY)
            return
        kinds = [kind for kind, _ in parameters]
        self._libpq.send_query_params(statement.sql.encode(), values, kinds, forms, _BINARY)

    def _flush(self, until: float) -> None:
        while self._libpq.flush():
            self._poll.modify(self._libpq.socket, select.POLLIN | select.POLLOUT)
            try:
                if self._wait(until) & select.POLLIN:
                    self._libpq.consume_input()
            finally:
                self._poll.modify(self._libpq.socket, select.POLLIN)

    def _results(self, until: float) -> list[Any]:
        found: list[Any] = []
        while True:
            while self._libpq.is_busy():
                self._wait(until)
                self._libpq.consume_input()
            result = self._libpq.get_result()
            if result is None:
                return self._checked(found)
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                return []
            found.append(result)

    def _checked(self, found: list[Any]) -> list[Any]:
        for result in found:
            if result.status == pq.ExecStatus.PIPELINE_ABORTED:
                raise ServerRefused(_UNKNOWN_STATE, "the statement before it was refused")
            if result.status not in _DONE:
                raise self._failure(result)
        return found

    def _failure(self, result: Any) -> Exception:
        state = result.error_field(pq.DiagnosticField.SQLSTATE)
        if state is None or self._libpq.status != pq.ConnStatus.OK:
            return psycopg.OperationalError(result.get_error_message())
        message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
        return ServerRefused(state.decode(), message.decode(errors="replace"))

    def _wait(self, until: float) -> int:
        left = until - self._clock.monotonic()
        ready = self._poll.poll(max(0.0, left) * 1000)
        if not ready:
            raise TimeoutError(f"no answer for {self._limit:g} s")
        return ready[0][1]

    # news

    def listen(self, channel: str) -> None:
        """Be told what others notify on a channel, from now on."""
        self.run(Statement(f'LISTEN "{channel}"'))

    def wait_for_news(self, seconds: float, bell: int) -> list[str]:
        """What was notified since, as soon as there is something; nothing in time, or at the bell.

        Raises:
            Unreachable: the connection is lost.
        """
        both = select.poll()
        for each in (self._libpq.socket, bell):
            both.register(each, select.POLLIN)
        try:
            if self._libpq.socket in [each for each, _ in both.poll(seconds * 1000)]:
                self._libpq.consume_input()
        except (psycopg.Error, OSError) as error:
            self.close()
            raise Unreachable(str(error).strip()) from error
        news: list[str] = []
        while (notify := self._libpq.notifies()) is not None:
            news.append(notify.extra.decode(errors="replace"))
        return news

    @property
    def is_open(self) -> bool:
        """Not closed here; the server may have, unnoticed."""
        return not self._driver.closed

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._driver.close()


def _not_had(error: psycopg.Error) -> Exception:
    reason = str(error).strip() or repr(error)
    state = error.sqlstate
    return Unreachable(reason) if state is None else ServerRefused(state, reason)
