"""Candidates of queues: some of each key and priority, without looking at all that wait.

A queue may have a long line of one key and a short one of another. So the index is walked in jumps:
from priority to priority and from key to key, beginning behind the key that was served last, and
of each key only the first few are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outlive.store import DEFAULT_QUEUE, Wanted
from outlive.stores.gate import FAIR_TURNS, Load, Turn
from outlive.stores.sqlite_connections import Connection, Value
from outlive.stores.sqlite_rows import FOUND_COLUMNS

_KIND = "queue = ? AND flow = ? AND version = ?"
_FREE = f"{_KIND} AND worker IS NULL AND ended_at IS NULL AND queue <> 'default'"
_NEW = f"{_FREE} AND epoch = 0"
_OLD = f"{_FREE} AND epoch > 0"
_FULL_KEYS = """
    SELECT queue_key FROM runs
    WHERE queue = ? AND worker IS NOT NULL AND queue <> 'default' AND queue_key <> ''
    GROUP BY queue_key HAVING count(*) >= ?
"""
_NEXT_QUEUE = """
    SELECT queue FROM runs WHERE queue > ? AND worker IS NULL AND ended_at IS NULL
    AND queue <> 'default' AND epoch {epoch} ORDER BY queue LIMIT 1
"""
_NEXT_LEVEL = f"SELECT priority FROM runs WHERE {_NEW} AND priority > ? ORDER BY priority LIMIT 1"
_NEXT_KEY = (
    f"SELECT queue_key FROM runs WHERE {_NEW} AND priority = ? AND queue_key > ?"
    " ORDER BY queue_key LIMIT 1"
)
_FIRST_KEY = f"SELECT min(queue_key) FROM runs WHERE {_NEW} AND priority = ?"
_OF_KEY = (
    f"SELECT {FOUND_COLUMNS} FROM runs WHERE {_NEW} AND priority = ? AND queue_key = ?"
    " AND format <= ? ORDER BY id LIMIT ?"
)
_WOKEN = (
    f"SELECT {FOUND_COLUMNS} FROM runs WHERE {_OLD} AND wake_at <= ? AND format <= ?"
    f" AND queue_key NOT IN ({_FULL_KEYS}) ORDER BY wake_at LIMIT ?"
)
_MAILED = (
    f"SELECT {FOUND_COLUMNS} FROM runs WHERE {_FREE} AND posted <> consumed AND format <= ?"
    f" AND queue_key NOT IN ({_FULL_KEYS}) LIMIT ?"
)
_OLDEST = (
    f"SELECT {FOUND_COLUMNS} FROM runs INDEXED BY runs_oldest WHERE {_NEW} AND format <= ?"
    f" AND queue_key NOT IN ({_FULL_KEYS}) ORDER BY id LIMIT ?"
)
_NEXT_TIME = f"SELECT wake_at FROM runs WHERE {_OLD} AND wake_at > ? ORDER BY wake_at LIMIT 1"
#: So many runs of one key are never held.
_ANY_NUMBER = 1 << 62
_BELOW_ALL = -(1 << 62)


def waiting_queues(db: Connection, wanted: Wanted) -> list[str]:
    """The wanted queues that free runs are in, by jumping from one to the next."""
    found: set[str] = set()
    for epoch in ("= 0", "> 0"):
        after = ""
        while row := db.execute(_NEXT_QUEUE.format(epoch=epoch), (after,)).fetchone():
            after = row[0]
            if type(after) is not str:
                break  # what is no text comes last, and is no queue
            found.add(after)
    return sorted(found if wanted.queues is None else found & wanted.queues)


def next_wake_of(
    db: Connection, queue: str, pairs: Sequence[tuple[Value, ...]], now: int
) -> list[int]:
    """When the next run of each kind in this queue gets due."""
    rows = [db.execute(_NEXT_TIME, (queue, *pair[:2], now)).fetchone() for pair in pairs]
    return [row[0] for row in rows if row is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """One queue, as one worker looks at it."""

    db: Connection
    queue: str
    #: Flow, version and newest format, of each that the worker drives.
    pairs: Sequence[tuple[Value, ...]]
    load: Load | None
    turn: Turn
    now: int
    room: int
    #: How many rows are asked for in addition, because so many can't be read.
    more: int = 0

    def rows(self) -> Iterator[Sequence[Value]]:
        """Rows of runs that may be taken: no more of each priority than there is room for."""
        if self.room <= 0 or self.queue == DEFAULT_QUEUE:
            return
        full = (self.queue, self._per_key())
        for flow, version, newest in self.pairs:
            kind = (self.queue, flow, version)
            yield from self._all(_WOKEN, (*kind, self.now, newest, *full, self.room + self.more))
            yield from self._all(_MAILED, (*kind, newest, *full, self.room + self.more))
            yield from self._new_of(kind, newest)
            if self.turn.number % FAIR_TURNS + self.room >= FAIR_TURNS:
                some = 1 + self.room // FAIR_TURNS + self.more
                yield from self._all(_OLDEST, (*kind, newest, *full, some))

    def _per_key(self) -> int:
        limit = None if self.load is None else self.load.limits.per_key
        return _ANY_NUMBER if limit is None else limit

    def _new_of(self, kind: tuple[Value, ...], newest: Value) -> Iterator[Sequence[Value]]:
        found, level = 0, _BELOW_ALL
        while found < self.room + self.more:
            row = self.db.execute(_NEXT_LEVEL, (*kind, level)).fetchone()
            if row is None:
                return
            level = row[0]
            keys = self._keys((*kind, level), self.room)
            each = -(-self.room // max(1, len(keys)))
            for key in keys:
                rows = self._all(_OF_KEY, (*kind, level, key, newest, each + self.more))
                found += len(rows)
                yield from rows

    def _keys(self, lane: tuple[Value, ...], count: int) -> list[str]:
        """The next keys in the round that may have more runs held."""
        keys: list[str] = []
        after: str | None = self.turn.key
        has_wrapped = False
        while len(keys) < count:
            row = self._key_after(lane, after)
            if row is None or (has_wrapped and row > self.turn.key):
                if has_wrapped:
                    break
                has_wrapped, after = True, None
                continue
            after = row
            if self.load is None or not self.load.is_full(row):
                keys.append(row)
        return keys

    def _key_after(self, lane: tuple[Value, ...], after: str | None) -> str | None:
        if after is None:
            row = self.db.execute(_FIRST_KEY, lane).fetchone()
        else:
            row = self.db.execute(_NEXT_KEY, (*lane, after)).fetchone()
        return row[0] if row is not None and type(row[0]) is str else None

    def _all(self, sql: str, values: Sequence[Value]) -> list[Sequence[Value]]:
        return list(self.db.execute(sql, values).fetchall())
