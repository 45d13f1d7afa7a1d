"""Deleting in SQLite: many runs in one transaction, with a handful of statements.

Python lets go of its global lock at every statement, and beside a busy loop it is long in getting
it back; and everybody who wants to write waits meanwhile. So none of this is a loop over runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from outlive.stores.sqlite.commit import rounded_up
from outlive.stores.sqlite.connections import Connection, Value
from outlive.stores.sqlite.rows import FOUND_COLUMNS, found_of, records_of
from outlive.stores.types import Deletion, Node, Reading

#: The runs of a family: those that joined it, and its root, which no index of families has.
OF_FAMILY = (
    "FROM runs INDEXED BY runs_of_family WHERE family <> run_id AND family",
    "FROM runs WHERE family = run_id AND run_id",
)
#: Runs in one statement.
_RUNS_MAX = 500
#: Tombstones whose time is over that go along with a deletion.
_FALLEN_MAX = 100


def delete_runs(db: Connection, batch: Sequence[Deletion], now: int) -> list[bool]:
    """Delete these inside the transaction that is open; an answer for each."""
    answers: list[bool] = []
    for begin in range(0, len(batch), _RUNS_MAX):
        answers += _delete_some(db, batch[begin : begin + _RUNS_MAX], now)
    return answers


def _delete_some(db: Connection, batch: Sequence[Deletion], now: int) -> list[bool]:
    there = {row[0]: row[1:] for row in _rows(db, {each.run_id for each in batch})}
    going = [each for each in batch if _is_as_seen(each, there)]
    stones = _stones(db, {each.run_id for each in batch} - there.keys())
    if going:
        runs = {each.run_id: there[each.run_id] for each in going}
        _forget(db, runs)
        _bury(db, [(each, there[each.run_id]) for each in going], now)
    gone = {(each.run_id, each.seq, each.digest) for each in going} | stones
    return [(each.run_id, each.seq, each.digest) in gone for each in batch]


def _rows(db: Connection, run_ids: Iterable[str]) -> list[Any]:
    return _ask(
        db, "SELECT run_id, id, seq, family, flow, ended_at FROM runs WHERE run_id IN", run_ids
    )


def _is_as_seen(seen: Deletion, there: Mapping[str, Sequence[Any]]) -> bool:
    if seen.run_id not in there:
        return False
    _, seq, _, _, ended_at = there[seen.run_id]
    return bool(seq == seen.seq and ended_at is not None)


def _stones(db: Connection, run_ids: Iterable[str]) -> set[tuple[str, int, bytes]]:
    """What was deleted before: who asks again may not have heard the answer."""
    return set(_ask(db, "SELECT run_id, seq, digest FROM tombstones WHERE run_id IN", run_ids))


def _forget(db: Connection, runs: Mapping[str, Sequence[Any]]) -> None:
    numbers = [row[0] for row in runs.values()]
    families = {row[2] for row in runs.values()}
    (last,) = db.execute("SELECT max(id) FROM records").fetchone()
    for table, column, values in (
        ("records", "run", numbers),
        ("mail", "run", numbers),
        ("runs", "id", numbers),
        ("outcomes", "run_id", list(runs)),
    ):
        _ask(db, f"DELETE FROM {table} WHERE {column} IN", values)
    if last is not None:
        # No number is given twice: those who follow what moved go by them.
        db.execute(
            "INSERT OR REPLACE INTO records (id, run, seq, body) SELECT ?, 0, 0, x''"
            " WHERE NOT EXISTS (SELECT 1 FROM records WHERE id >= ?)",
            (last, last),
        )
    living = {
        name for each in OF_FAMILY for (name,) in _ask(db, f"SELECT family {each} IN", families)
    }
    _ask(db, "DELETE FROM nodes WHERE family IN", families - living)


def _bury(db: Connection, gone: Sequence[tuple[Deletion, Sequence[Any]]], now: int) -> None:
    db.execute(
        "DELETE FROM tombstones WHERE run_id IN"
        " (SELECT run_id FROM tombstones WHERE keep_until <= ? LIMIT ?)",
        (now, _FALLEN_MAX + 2 * len(gone)),
    )
    values: list[Value] = []
    for each, (_, _, _, flow, ended_at) in gone:
        values += (each.run_id, each.seq, each.digest, flow, ended_at, each.keep_until)
    marks = ",".join("(?,?,?,?,?,?)" for _ in gone)
    db.execute(f"INSERT OR REPLACE INTO tombstones VALUES {marks}", values)


def _ask(db: Connection, sql: str, values: Iterable[Value]) -> list[Any]:
    """A statement over a list of values; none asks nothing."""
    filled = list(values)
    if not filled:
        return []
    filled += [None] * (rounded_up(len(filled)) - len(filled))
    marks = ",".join("?" * len(filled))
    return db.execute(f"{sql} ({marks})", filled).fetchall()


def read_runs(db: Connection, run_ids: Sequence[str]) -> dict[str, Reading]:
    """These journals as they are at this instant, without mail.

    Raises:
        CorruptRecord: a row holds what was never written.
    """
    readings: dict[str, Reading] = {}
    for begin in range(0, len(run_ids), _RUNS_MAX):
        part = run_ids[begin : begin + _RUNS_MAX]
        rows = _ask(db, f"SELECT id, {FOUND_COLUMNS} FROM runs WHERE run_id IN", part)
        records: dict[int, list[Any]] = {row[0]: [] for row in rows}
        for run, seq, body in _ask(db, "SELECT run, seq, body FROM records WHERE run IN", records):
            records[run].append((seq, body))
        for row in rows:
            found = found_of(row)
            head, header = found.head, found.header
            listed = records_of(head.run_id, records[row[0]])
            listed.sort(key=lambda record: record.seq)
            readings[head.run_id] = Reading(head=head, header=header, records=listed, mail=())
    return readings


#: Addresses in one statement.
_ADDRESSES_MAX = 500


def put_node(db: Connection, family: str, node: Node) -> None:
    """Keep a node, unless it is there."""
    db.execute(
        "INSERT OR IGNORE INTO nodes (family, address, body) VALUES (?, ?, ?)",
        (family, node.address, node.body),
    )


def get_nodes(db: Connection, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
    """Those that there are."""
    found: dict[bytes, bytes] = {}
    for begin in range(0, len(addresses), _ADDRESSES_MAX):
        part = list[bytes | None](addresses[begin : begin + _ADDRESSES_MAX])
        part += [None] * (rounded_up(len(part)) - len(part))
        marks = ",".join("?" * len(part))
        rows = db.execute(
            f"SELECT address, body FROM nodes WHERE family = ? AND address IN ({marks})",
            (family, *part),
        ).fetchall()
        found.update(rows)
    return found


def drop_nodes(db: Connection, family: str, addresses: Sequence[bytes]) -> None:
    """Forget these."""
    for address in addresses:
        db.execute("DELETE FROM nodes WHERE family = ? AND address = ?", (family, address))


def families_after(db: Connection, after: str, limit: int) -> list[str]:
    """Each is a step through the index, however many nodes there are."""
    found: list[str] = []
    while len(found) < limit:
        row = db.execute(
            "SELECT family FROM nodes WHERE family > ? ORDER BY family LIMIT 1", (after,)
        ).fetchone()
        if row is None:
            break
        after = row[0]
        found.append(after)
    return found


def is_alive(db: Connection, family: str) -> bool:
    """Whether a run belongs to it."""
    return any(
        db.execute(f"SELECT 1 {each} = ? LIMIT 1", (family,)).fetchone() for each in OF_FAMILY
    )


def drop_family(db: Connection, family: str) -> bool:
    """Forget all nodes of a family that has no run."""
    if is_alive(db, family):
        return False
    db.execute("DELETE FROM nodes WHERE family = ?", (family,))
    return True
