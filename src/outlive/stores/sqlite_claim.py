"""Which runs may be claimed: those that are due, and those whose holder is gone.

Asked for every (flow, version) that the worker can drive, so that the index leads straight to
them however many runs of others wait; or run by run, when only a few runs are wanted. Of many that
are wanted most sleep: then the index tells first which ones may be due.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from outlive.errors import CorruptRecord
from outlive.store import Found, Header, Offer, Wanted
from outlive.stores.silence import Standing
from outlive.stores.sqlite_connections import Connection, Value
from outlive.stores.sqlite_rows import FOUND_COLUMNS, found_of

_DRIVABLE = "flow = ? AND version = ? AND format <= ? AND ended_at IS NULL"
_FREE = f"{_DRIVABLE} AND worker IS NULL"

_BY_TIME = f"SELECT {FOUND_COLUMNS} FROM runs WHERE {_FREE} AND wake_at <= ? ORDER BY wake_at"
_BY_MAIL = f"SELECT {FOUND_COLUMNS} FROM runs WHERE {_FREE} AND posted <> consumed"
_BY_HOLDER = f"SELECT {FOUND_COLUMNS} FROM runs WHERE {_DRIVABLE} AND worker = ?"
_NEXT = f"SELECT wake_at FROM runs WHERE {_FREE} AND wake_at > ? ORDER BY wake_at LIMIT 1"
_IDS_BY_TIME = f"SELECT run_id FROM runs WHERE {_FREE} AND wake_at <= ?"
_IDS_BY_MAIL = f"SELECT run_id FROM runs WHERE {_FREE} AND posted <> consumed"
_IDS_BY_HOLDER = f"SELECT run_id FROM runs WHERE {_DRIVABLE} AND worker = ?"
_NEXT_IDS = f"SELECT wake_at, run_id FROM runs WHERE {_FREE} AND wake_at > ? ORDER BY wake_at"
_BY_ID = f"SELECT {FOUND_COLUMNS} FROM runs WHERE run_id = ? AND ended_at IS NULL"
#: Wanted runs that are looked up one by one.
_FEW = 50
#: Runs that are looked at for the next one that gets due.
_NEXT_LOOKS_MAX = 100

# A worker may hold many runs; those with mail are few.
_OWN_MAIL = """
    SELECT run_id FROM runs INDEXED BY runs_with_mail
    WHERE worker = ? AND ended_at IS NULL AND posted <> consumed ORDER BY id
"""


def holders(db: Connection) -> list[str]:
    """Every worker that holds a lease, by jumping from one to the next in the index."""
    found: list[str] = []
    after = ""
    while True:
        row = db.execute(
            "SELECT worker FROM runs WHERE worker > ? ORDER BY worker LIMIT 1", (after,)
        ).fetchone()
        if row is None:
            return found
        after = row[0]
        found.append(after)


def own_mail(db: Connection, worker: str) -> list[str]:
    """Runs that the worker holds and that have mail waiting."""
    return [run_id for (run_id,) in db.execute(_OWN_MAIL, (worker,)).fetchall()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One look for runs to claim."""

    db: Connection
    wanted: Wanted
    now: int
    #: What is thought of each holder; those that are not named are alive.
    standing: Mapping[str, Standing]

    def offers(self, limit: int) -> list[Offer]:
        """The runs that have waited longest, at most ``limit`` of them."""
        if self.wanted.run_ids is None:
            found = {run.head.run_id: run for run in self._by_index(limit)}
        else:
            found = {run.head.run_id: run for run in self._by_id() if self._is_due(run)}
        first = sorted(found.values(), key=lambda run: run.header.wake_at or 0)[:limit]
        return [Offer(head=r.head, header=r.header, certain=self._is_certain(r)) for r in first]

    def next_at(self) -> int | None:
        """When the next wanted run that nobody holds gets due."""
        if self.wanted.run_ids is None:
            found = [self.db.execute(_NEXT, (*pair, self.now)) for pair in self._pairs()]
            times = [wake_at for cursor in found for (wake_at,) in cursor.fetchall()]
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
            yield from self._some(_BY_TIME, limit, (*pair, self.now))
            yield from self._some(_BY_MAIL, limit, pair)
            for holder in gone:
                yield from self._some(_BY_HOLDER, limit, (*pair, holder))

    def _by_id(self) -> Iterator[Found]:
        for run_id in sorted(self._candidates(self.wanted.run_ids or frozenset())):
            for run in _sound(self.db.execute(_BY_ID, (run_id,)).fetchall()):
                if self._is_drivable(run.header):
                    yield run

    def _candidates(self, wanted: frozenset[str]) -> frozenset[str]:
        """Those of the wanted runs that may be due: all, if that is hard to tell."""
        if len(wanted) <= _FEW:
            return wanted
        due: set[str] = set()
        gone = [holder for holder in self.standing if self.standing[holder] != "alive"]
        for pair in self._pairs():
            looks = [(_IDS_BY_TIME, (*pair, self.now)), (_IDS_BY_MAIL, pair)]
            looks += [(_IDS_BY_HOLDER, (*pair, holder)) for holder in gone]
            for sql, values in looks:
                rows = self.db.execute(f"{sql} LIMIT ?", (*values, len(wanted))).fetchall()
                if len(rows) == len(wanted):
                    return wanted  # as many of others may be due: looking at each costs no more
                due.update(run_id for (run_id,) in rows)
        return wanted & due

    def _pairs(self) -> Iterator[tuple[Value, ...]]:
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
        return list(_sound(self.db.execute(f"{sql} LIMIT ?", (*values, limit)).fetchall()))


def _sound(rows: Sequence[Any]) -> Iterator[Found]:
    # Whoever reads or lists a damaged run is told; others must not wait for that to be mended.
    for row in rows:
        with suppress(CorruptRecord):
            yield found_of(row)
