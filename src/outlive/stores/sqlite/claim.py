"""Which runs may be claimed: those that are due, and those whose holder is gone.

Asked for every (flow, version) that the worker can drive, so that the index leads straight to
them however many runs of others wait; or run by run, when only a few runs are wanted. Of many that
are wanted most sleep: then the index tells first which ones may be due. Runs in queues are found
through their queue (``sqlite_lanes``), and all that are found have their turn (``fair``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from outlive.stores.queues import FAIR_TURNS, Load, Turn, Turns, crowded
from outlive.stores.shared import SoundRows
from outlive.stores.sqlite.connections import Connection, Value
from outlive.stores.sqlite.queues import load_queues
from outlive.stores.sqlite.rows import FOUND_COLUMNS
from outlive.stores.types import DEFAULT_QUEUE, Found, Header, Offer, Standing, Wanted

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


_DRIVABLE = "flow = ? AND version = ? AND format <= ? AND ended_at IS NULL"
_UNQUEUED = f"{_DRIVABLE} AND worker IS NULL AND queue = 'default'"
_UNHELD = f"{_DRIVABLE} AND worker IS NULL"

_BY_TIME = f"SELECT {FOUND_COLUMNS} FROM runs WHERE {_UNQUEUED} AND wake_at <= ? ORDER BY wake_at"
_BY_MAIL = f"SELECT {FOUND_COLUMNS} FROM runs WHERE {_UNQUEUED} AND posted <> consumed"
_BY_HOLDER = f"SELECT {FOUND_COLUMNS} FROM runs WHERE {_DRIVABLE} AND worker = ?"
_NEXT = f"SELECT wake_at FROM runs WHERE {_UNQUEUED} AND wake_at > ? ORDER BY wake_at LIMIT 1"
_IDS_BY_TIME = f"SELECT run_id FROM runs WHERE {_UNQUEUED} AND wake_at <= ?"
_IDS_QUEUED = (
    f"SELECT run_id FROM runs INDEXED BY runs_{{index}} WHERE queue = ? AND {_UNHELD}"
    " AND queue <> 'default' AND epoch {epoch}"
)
_IDS_BY_MAIL = f"SELECT run_id FROM runs WHERE {_UNHELD} AND posted <> consumed"
_IDS_BY_HOLDER = f"SELECT run_id FROM runs WHERE {_DRIVABLE} AND worker = ?"
_NEXT_IDS = f"SELECT wake_at, run_id FROM runs WHERE {_UNQUEUED} AND wake_at > ? ORDER BY wake_at"
_BY_ID = f"SELECT {FOUND_COLUMNS} FROM runs WHERE run_id = ? AND ended_at IS NULL"
#: Rows that are read past those that can't be.
_ROWS_MAX = 100_000
#: Wanted runs that are looked up one by one.
_FEW = 50
#: Runs that are looked at for the next one that gets due.
_NEXT_LOOKS_MAX = 100

# A worker may hold many runs; those with mail are few.
_OWN_MAIL = """
    SELECT run_id FROM runs INDEXED BY runs_with_mail
    WHERE worker = ? AND ended_at IS NULL AND posted <> consumed ORDER BY id
"""


def runs_by_holder(db: Connection) -> dict[str, int]:
    """How many runs each worker holds."""
    rows = db.execute(
        "SELECT worker, count(*) FROM runs WHERE worker IS NOT NULL GROUP BY worker"
    ).fetchall()
    return {worker: count for worker, count in rows if type(worker) is str}


def holders(db: Connection) -> list[str]:
    """Every worker that holds a lease, by jumping from one to the next in the index."""
    found: list[str] = []
    after = ""
    while True:
        row = db.execute(
            "SELECT worker FROM runs WHERE worker > ? ORDER BY worker LIMIT 1", (after,)
        ).fetchone()
        if row is None or type(row[0]) is not str:
            return found  # what is no text comes last, and is nobody
        after = row[0]
        found.append(after)


def own_mail(db: Connection, worker: str) -> list[str]:
    """Runs that the worker holds and that have mail waiting."""
    return [run_id for (run_id,) in db.execute(_OWN_MAIL, (worker,)).fetchall()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SQLiteSearch:
    """One look for runs to claim."""

    db: Connection
    wanted: Wanted
    now: int
    #: What is thought of each holder; those that are not named are alive.
    standing: Mapping[str, Standing]
    worker: str
    turns: Turns
    rows: SoundRows
    #: How many rows are asked for in addition, because so many can't be read.
    more: int

    def offers(self, limit: int) -> tuple[list[Offer], list[str]]:
        """The runs whose turn it is, at most ``limit`` of them; and the queues that are crowded."""
        if self.wanted.run_ids is None:
            queues = waiting_queues(self.db, self.wanted)
            loads = load_queues(self.db, queues, self.now)
            found = [*self._by_index(limit), *self._by_queue(queues, loads, limit)]
        else:
            found = [run for run in self._by_id() if self._is_due(run)]
            loads = {}
        due = {run.head.run_id: run for run in found}.values()
        missing = {run.header.queue for run in due}.difference(loads)
        loads |= load_queues(self.db, missing, self.now)
        full = crowded(loads, self.worker)
        first = self.turns.arrange(due, loads, self.worker, limit)
        offers = [Offer(head=r.head, header=r.header, certain=self._is_certain(r)) for r in first]
        return offers, full

    def _by_queue(
        self, queues: Sequence[str], loads: Mapping[str, Load], limit: int
    ) -> Iterator[Found]:
        for queue in queues:
            load = loads.get(queue)
            lanes = Lanes(
                db=self.db,
                queue=queue,
                pairs=list(self._pairs()),
                load=load,
                turn=self.turns.of(queue) if load is None else load.turn,
                now=self.now,
                room=limit if load is None else load.room(self.worker, limit),
                more=self.more,
            )
            yield from self.rows.found(list(lanes.rows()))

    def next_at(self) -> int | None:
        """When the next wanted run that nobody holds gets due."""
        if self.wanted.run_ids is None:
            pairs = list(self._pairs())
            own = [pair for pair in pairs if self.wanted.takes_unqueued(pair[0])]
            found = [self.db.execute(_NEXT, (*pair, self.now)) for pair in own]
            times = [wake_at for cursor in found for (wake_at,) in cursor.fetchall()]
            for queue in waiting_queues(self.db, self.wanted):
                times += next_wake_of(self.db, queue, pairs, self.now)
        elif len(self.wanted.run_ids) > _FEW:
            times = [at for pair in self._pairs() if (at := self._next_of_many(pair)) is not None]
        else:
            free = [run.header.wake_at for run in self._by_id() if run.head.worker is None]
            times = [wake_at for wake_at in free if wake_at is not None and wake_at > self.now]
        return min(times, default=None)

    def _next_of_many(self, pair: tuple[Value, ...]) -> int | None:
        """Not after the time when the next of the wanted runs gets due."""
        wanted = self.wanted.run_ids or frozenset()
        rows = self.db.execute(
            f"{_NEXT_IDS} LIMIT ?", (*pair, self.now, _NEXT_LOOKS_MAX)
        ).fetchall()
        found = next((wake_at for wake_at, run_id in rows if run_id in wanted), None)
        # Behind so many of others it may be much later: whoever asks then asks again.
        return rows[-1][0] if found is None and len(rows) == _NEXT_LOOKS_MAX else found

    def _by_index(self, limit: int) -> Iterator[Found]:
        gone = [holder for holder in self.standing if self.standing[holder] != "alive"]
        for pair in self._pairs():
            if self.wanted.takes_unqueued(pair[0]):
                yield from self._some(_BY_TIME, limit, (*pair, self.now))
                yield from self._some(_BY_MAIL, limit, pair)
            of_queues, names = self._of_queues(pair[0])
            for holder in gone:
                yield from self._some(_BY_HOLDER + of_queues, limit, (*pair, holder, *names))

    def _of_queues(self, flow: str) -> tuple[str, list[str]]:
        """A condition, and its values: only runs of the wanted queues."""
        if self.wanted.queues is None:
            return "", []
        own = {DEFAULT_QUEUE} if self.wanted.takes_unqueued(flow) else set()
        names = sorted(self.wanted.queues | own)
        return f" AND queue IN ({','.join('?' * len(names))})", names

    def _by_id(self) -> Iterator[Found]:
        for run_id in sorted(self._candidates(self.wanted.run_ids or frozenset())):
            for run in self.rows.found(self.db.execute(_BY_ID, (run_id,)).fetchall()):
                if self._is_drivable(run.header):
                    yield run

    def _candidates(self, wanted: frozenset[str]) -> frozenset[str]:
        """Those of the wanted runs that may be due: all, if that is hard to tell."""
        if len(wanted) <= _FEW:
            return wanted
        due: set[str] = set()
        queues = waiting_queues(self.db, self.wanted)
        gone = [holder for holder in self.standing if self.standing[holder] != "alive"]
        for pair in self._pairs():
            looks = [(_IDS_BY_TIME, (*pair, self.now)), (_IDS_BY_MAIL, pair)]
            looks += [(_IDS_BY_HOLDER, (*pair, holder)) for holder in gone]
            for queue in queues:
                queued = _IDS_QUEUED.format(index="queued", epoch="= 0")
                woken = _IDS_QUEUED.format(index="woken", epoch="> 0") + " AND wake_at <= ?"
                looks += [(queued, (queue, *pair)), (woken, (queue, *pair, self.now))]
            for sql, values in looks:
                rows = self.db.execute(f"{sql} LIMIT ?", (*values, len(wanted))).fetchall()
                if len(rows) == len(wanted):
                    return wanted  # as many of others may be due: looking at each costs no more
                due.update(run_id for (run_id,) in rows)
        return wanted & due

    def _pairs(self) -> Iterator[tuple[str, str, int]]:
        for flow, versions in self.wanted.flows.items():
            for version in versions:
                yield flow, version, self.wanted.format

    def _is_drivable(self, header: Header) -> bool:
        versions = self.wanted.flows.get(header.flow, frozenset())
        return header.version in versions and header.format <= self.wanted.format

    def _is_due(self, run: Found) -> bool:
        if run.head.worker is not None:
            return self.standing.get(run.head.worker, "alive") != "alive"
        wake_at = run.header.wake_at
        in_time = wake_at is not None and wake_at <= self.now
        return in_time or run.head.posted != run.head.consumed

    def _is_certain(self, run: Found) -> bool:
        return run.head.worker is None or self.standing[run.head.worker] == "dead"

    def _some(self, sql: str, limit: int, values: Sequence[Value]) -> list[Found]:
        rows = self.db.execute(f"{sql} LIMIT ?", (*values, limit + self.more)).fetchall()
        found = list(self.rows.found(rows))
        if len(found) < limit and len(rows) == limit + self.more:
            # So many can't be read that those behind them were not reached.
            rows = self.db.execute(f"{sql} LIMIT ?", (*values, _ROWS_MAX)).fetchall()
            found = list(self.rows.found(rows))
        return found[:limit]
