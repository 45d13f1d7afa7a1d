"""Nodes in the file: by family and address, and families looked through one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outlive.store import Node
from outlive.stores.sqlite_commit import rounded_up
from outlive.stores.sqlite_connections import Connection

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
    found = db.execute("SELECT 1 FROM runs WHERE family = ? LIMIT 1", (family,)).fetchone()
    return found is not None


def drop_family(db: Connection, family: str) -> bool:
    """Forget all nodes of a family that has no run."""
    if is_alive(db, family):
        return False
    db.execute("DELETE FROM nodes WHERE family = ?", (family,))
    return True
