"""Limits of queues in the SQLite file, and the gate that keeps them.

A commit that takes leases is one transaction, and on one file only one writes at a time: what is
counted here holds until the commit is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from outlive.stores.queues import Load, Turn, first_slice_at, is_gated, slice_at, spent_at
from outlive.stores.shared import LIMITS, limit_values, limits_of
from outlive.stores.sqlite.connections import Connection
from outlive.stores.sqlite.rows import FOUND_COLUMNS, found_of
from outlive.stores.types import DEFAULT_QUEUE, Entry, Found, QueueLimits, QueueState

_LIMITS = ", ".join(LIMITS)
_HELD = "worker IS NOT NULL AND queue <> 'default'"
_HELD_BY = f"SELECT queue_key, worker, count(*) FROM runs WHERE queue = ? AND {_HELD} GROUP BY 1, 2"
_FREE = "worker IS NULL AND ended_at IS NULL AND queue <> 'default'"


def load_queues(db: Connection, queues: Iterable[str], now: int) -> dict[str, Load]:
    """What is taken of these queues, as far as they have limits."""
    loads = {queue: _load(db, queue, now) for queue in queues if queue != DEFAULT_QUEUE}
    return {queue: load for queue, load in loads.items() if load is not None}


def _load(db: Connection, queue: str, now: int) -> Load | None:
    row = db.execute(
        f"SELECT turn, turn_key, {_LIMITS} FROM queues WHERE name = ?", (queue,)
    ).fetchone()
    if row is None:
        return None
    turn, turn_key, *given = row
    limits = limits_of(given)
    is_turn = type(turn) is int and type(turn_key) is str
    load = Load(limits=limits, turn=Turn(turn, turn_key) if is_turn else Turn(), is_waited=True)
    if (limits.concurrency, limits.per_key, limits.per_worker) != (None, None, None):
        for key, worker, count in db.execute(_HELD_BY, (queue,)).fetchall():
            load.held += count
            load.by_key[key] += count
            load.by_worker[worker] += count
    if limits.rate is not None:
        load.spent = spent_at(limits, _slices(db, queue), now)
    return load


def _slices(db: Connection, queue: str) -> dict[int, int]:
    rows = db.execute("SELECT slice_at, units FROM spent WHERE queue = ?", (queue,)).fetchall()
    return {at: units for at, units in rows if type(at) is type(units) is int}


# ---------------------------------------------------------------------- the gate


def refused_by_queues(db: Connection, wave: Sequence[Entry], now: int) -> set[str]:
    """Runs that may not be taken now; all others of the wave count as taken from here on."""
    gate = _Gate(db, now)
    refused = {entry.run_id for entry in wave if is_gated(entry) and not gate.passes(entry)}
    gate.write()
    return refused


class _Gate:
    """The queues of one commit."""

    def __init__(self, db: Connection, now: int) -> None:
        self._db, self._now = db, now
        self._loads: dict[str, Load | None] = {}
        self._turns: dict[str, Turn] = {}
        self._spent: Counter[str] = Counter()

    def passes(self, entry: Entry) -> bool:
        """Whether its queue has a place for the run; one whose fence refuses it anyway passes."""
        row = self._db.execute(
            f"SELECT {FOUND_COLUMNS} FROM runs"
            " WHERE run_id = ? AND seq = ? AND epoch = ? AND queue <> 'default'",
            (entry.run_id, entry.after, entry.epoch - 1),
        ).fetchone()
        if row is None:
            return True
        run, worker = found_of(row), entry.worker or ""
        load = self._load(run.header.queue)
        if load is None:
            return True
        if not load.admits(run, worker):
            return False
        load.add(run, worker)
        self._note(run, load)
        return True

    def _load(self, queue: str) -> Load | None:
        if queue not in self._loads:
            _mend_clock(self._db, queue, self._now)
            self._loads[queue] = _load(self._db, queue, self._now)
        return self._loads[queue]

    def _note(self, run: Found, load: Load) -> None:
        if run.head.worker is not None:
            return
        queue = run.header.queue
        self._turns[queue] = self._turns.get(queue, load.turn).after(run.header.queue_key)
        if run.head.epoch == 0 and load.limits.rate is not None:
            self._spent[queue] += load.cost(run.header.units)

    def write(self) -> None:
        """Keep whose turn it is, and what was spent."""
        for queue, turn in self._turns.items():
            self._db.execute(
                "UPDATE queues SET turn = ?, turn_key = ? WHERE name = ?",
                (turn.number, turn.key, queue),
            )
        for queue, units in self._spent.items():
            load = self._loads[queue]
            assert load is not None, "only a rate is spent"
            self._db.execute(
                "DELETE FROM spent WHERE queue = ? AND slice_at < ?",
                (queue, first_slice_at(load.limits, self._now)),
            )
            _spend(self._db, queue, slice_at(load.limits, self._now), units)


def _spend(db: Connection, queue: str, at: int, units: int) -> None:
    db.execute(
        "INSERT INTO spent VALUES (?, ?, ?)"
        " ON CONFLICT (queue, slice_at) DO UPDATE SET units = units + excluded.units",
        (queue, at, units),
    )


def _mend_clock(db: Connection, queue: str, now: int) -> None:
    """What was spent before the clock was set back counts as spent now."""
    row = db.execute(
        f"SELECT {_LIMITS} FROM queues WHERE name = ? AND rate IS NOT NULL", (queue,)
    ).fetchone()
    if row is None:
        return
    here = slice_at(limits_of(row), now)
    (ahead,) = db.execute(
        "SELECT sum(units) FROM spent WHERE queue = ? AND slice_at > ?", (queue, here)
    ).fetchone()
    if ahead:
        db.execute("DELETE FROM spent WHERE queue = ? AND slice_at > ?", (queue, here))
        _spend(db, queue, here, ahead)


# ---------------------------------------------------------------------- limits and states


def find_limits(db: Connection, name: str) -> QueueLimits | None:
    """The limits of a queue, if any are set."""
    row = db.execute(f"SELECT {_LIMITS} FROM queues WHERE name = ?", (name,)).fetchone()
    return None if row is None else limits_of(row)


def set_limits(
    db: Connection, name: str, limits: QueueLimits, now: int, *, replace: bool
) -> QueueLimits:
    """Put limits in force; answer with those that are."""
    before = find_limits(db, name)
    if before is not None and not replace:
        return before
    db.execute(
        f"INSERT INTO queues (name, {_LIMITS}) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET concurrency = excluded.concurrency,"
        " per_key = excluded.per_key, per_worker = excluded.per_worker, rate = excluded.rate,"
        " rate_ms = excluded.rate_ms",
        (name, *limit_values(limits)),
    )
    if before is not None and before.rate_ms != limits.rate_ms:
        # In slices of another length: as if all of it were spent now.
        spent = sum(_slices(db, name).values())
        db.execute("DELETE FROM spent WHERE queue = ?", (name,))
        _spend(db, name, slice_at(limits, now), spent)
    return limits


def queue_states(db: Connection, now: int) -> list[QueueState]:
    """All queues that have limits or runs."""
    limits = {
        name: limits_of(row)
        for name, *row in db.execute(f"SELECT name, {_LIMITS} FROM queues").fetchall()
    }
    due = "(wake_at <= ? OR posted <> consumed)"
    waiting = {
        queue: (count, oldest)
        for queue, count, oldest in db.execute(
            f"SELECT queue, count(*), min(coalesce(nullif(wake_at, 0), ?)) FROM runs"
            f" WHERE {_FREE} AND {due} GROUP BY queue",
            (now, now),
        ).fetchall()
    }
    held = dict(
        db.execute(f"SELECT queue, count(*) FROM runs WHERE {_HELD} GROUP BY queue").fetchall()
    )
    return [
        QueueState(
            name=name,
            limits=limits.get(name),
            waiting=waiting.get(name, (0, None))[0],
            held=held.get(name, 0),
            spent=spent_at(limits[name], _slices(db, name), now) if name in limits else 0,
            oldest_at=waiting.get(name, (0, None))[1],
        )
        for name in sorted({*limits, *waiting, *held})
    ]
