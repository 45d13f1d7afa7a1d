"""A run that begins in the user's own transaction, in the same database: there if that commits.

The same function does it as for any batch. Workers hear of it by a NOTIFY in that transaction,
which PostgreSQL sends when it commits: nobody else knows when that is.

A user's transaction may be open for long, so nobody must wait for it. A run that is there is read
and never locked. A new one's id is locked, by a lock that others can look at: whoever would begin a
run of that id in a batch with others is told that it can't be done now.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, pq
from psycopg.errors import InvalidSchemaName, UndefinedTable
from psycopg.rows import tuple_row

from outlive.errors import UnsafeSettings, UsageError
from outlive.stores.postgres.notify import ANYBODY, channel_of
from outlive.stores.postgres.rows import FOUND_COLUMNS, HEADER_NAMES, HEADER_TYPES, found_of
from outlive.stores.postgres.url import Place
from outlive.stores.postgres.wire import Row, readable, writable
from outlive.stores.shared import header_values
from outlive.stores.types import Entry, Reading, StoredRecord

T = TypeVar("T")

#: A statement with its values, answered by its rows.
Talk: TypeAlias = Generator[tuple[str, Sequence[Any]], list[Row], T]
Answer: TypeAlias = tuple[bool, Reading | None]

_TYPES = ("text", "bigint", "bigint", "bigint", "bytea", "bytea", "bigint", "bigint", "text")
_ARRAYS = (
    *_TYPES,
    *(HEADER_TYPES.get(name, "text") for name in HEADER_NAMES),
    *("text", "bytea", "bytea", "text", "text", "text"),
)
_MARKS = ", ".join(f"%s::{kind}[]" for kind in _ARRAYS)
_WHOSE = (
    "SELECT value, current_setting('synchronous_commit') FROM {s}.meta WHERE name = 'outlive.id'"
)
#: The lock that ``free_v1`` looks at.
_HOLD = "SELECT pg_advisory_xact_lock(hashtextextended('{s} ' || %s, 2))"
_FIRST = "SELECT seq, body FROM {s}.records WHERE run_id = %s AND seq >= %s ORDER BY seq LIMIT 1"


def enlist(place: Place, store_id: str, connection: Any, entry: Entry) -> Answer:
    """Whether the run is in, else the run that has its id (None: one that was deleted)."""
    if not isinstance(connection, Connection):
        raise _no_connection(connection, place)
    _check_transaction(connection)
    talk = _talk(place, store_id, entry)
    cursor = Cursor(connection, row_factory=tuple_row)
    try:
        asked = next(talk)
        while True:
            cursor.execute(*asked)
            asked = talk.send(cursor.fetchall() if cursor.description else [])
    except StopIteration as end:
        answer: Answer = end.value
        return answer
    except (UndefinedTable, InvalidSchemaName) as error:
        raise _elsewhere(place) from error
    finally:
        cursor.close()


async def enlist_async(place: Place, store_id: str, connection: Any, entry: Entry) -> Answer:
    """The same over a connection that awaits; one that does not is fine, too."""
    if not isinstance(connection, AsyncConnection):
        return enlist(place, store_id, connection, entry)
    _check_transaction(connection)
    talk = _talk(place, store_id, entry)
    cursor = AsyncCursor(connection, row_factory=tuple_row)
    try:
        asked = next(talk)
        while True:
            await cursor.execute(*asked)
            asked = talk.send(await cursor.fetchall() if cursor.description else [])
    except StopIteration as end:
        answer: Answer = end.value
        return answer
    except (UndefinedTable, InvalidSchemaName) as error:
        raise _elsewhere(place) from error
    finally:
        await cursor.close()


def _check_transaction(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    is_idle = connection.pgconn.transaction_status == pq.TransactionStatus.IDLE
    if connection.autocommit and is_idle:
        raise UsageError(
            "the connection is in autocommit and has no transaction; open one with "
            "connection.transaction(), or the run would not begin together with what you write"
        )


def _talk(place: Place, store_id: str, entry: Entry) -> Talk[Answer]:
    schema = f'"{place.schema}"'
    found = yield _WHOSE.replace("{s}", schema), ()
    if [store_id] != [value for value, _ in found]:
        raise _elsewhere(place)
    if found[0][1] == "off" and not place.allow_unsafe:
        raise UnsafeSettings(
            "the connection has synchronous_commit=off, which would lose committed runs with the "
            "server; leave it on, or add unsafe=yes to the store's URL if it may"
        )
    there = yield from _read(schema, entry.run_id)
    if there is not None:
        return False, there
    yield "SAVEPOINT outlive_run", ()
    yield _HOLD.replace("{s}", schema), (writable(entry.run_id),)
    refused = yield (
        f"SELECT seq, gone FROM {schema}.enlist_v1({_MARKS}, NULL, false)",
        _values(entry),
    )
    if refused:  # somebody was faster; what was locked to find that out is let go
        yield "ROLLBACK TO SAVEPOINT outlive_run", ()
    yield "RELEASE SAVEPOINT outlive_run", ()
    if refused:
        return False, (yield from _read(schema, entry.run_id))
    yield "SELECT pg_notify(%s, %s)", (channel_of(place.schema), ANYBODY)
    return True, None


def _read(schema: str, run_id: str) -> Talk[Reading | None]:
    """The run of that id as the transaction sees it, with its first record."""
    named = writable(run_id)
    rows = yield f"SELECT {FOUND_COLUMNS} FROM {schema}.runs r WHERE run_id = %s", (named,)
    if not rows:
        return None
    there = found_of(tuple(_readable(each) for each in rows[0]))
    records = yield _FIRST.replace("{s}", schema), (named, there.header.chapter)
    first = [StoredRecord(seq, body) for seq, body in records]
    return Reading(head=there.head, header=there.header, records=first, mail=())


def _values(entry: Entry) -> list[list[Any]]:
    """What the function takes, for a batch of one."""
    assert entry.header is not None, "a run begins with a header"
    head = (
        entry.run_id,
        0,
        entry.last,
        entry.epoch,
        entry.link,
        entry.record,
        entry.epoch,
        0,
        None,
    )
    row = (*head, *header_values(entry.header))
    nodes = entry.nodes
    return [
        *([_written(value)] for value in row),
        [writable(entry.run_id)] * len(nodes),
        [node.address for node in nodes],
        [node.body for node in nodes],
        [],
        [],
        [_written(entry.joins)],
    ]


def _readable(value: Any) -> Any:
    return readable(value) if isinstance(value, str) else value


def _written(value: Any) -> Any:
    return writable(value) if isinstance(value, str) else value


def _no_connection(connection: Any, place: Place) -> UsageError:
    return UsageError(
        f"connection={connection!r} is none of psycopg (Connection or AsyncConnection); "
        f"the store is {place.name}"
    )


def _elsewhere(place: Place) -> UsageError:
    return UsageError(
        f"the connection is to another database than the store, which is {place.name}"
    )
