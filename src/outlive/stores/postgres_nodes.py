"""Nodes in PostgreSQL: by family and address, and families looked through one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from outlive.store import Node
from outlive.stores.postgres_families import NEXT_FAMILIES
from outlive.stores.postgres_wire import Row, blob, blobs, int8, text, texts

#: Sends one statement with its values and answers with its rows.
Run = Callable[..., list[Row]]


def put_node(run: Run, family: str, node: Node) -> None:
    """Keep a node, unless it is there."""
    run(
        "INSERT INTO {s}.nodes VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        *(text(family), blob(node.address), blob(node.body)),
    )


def get_nodes(run: Run, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
    """Those that there are."""
    if not addresses:
        return {}
    rows = run(
        "SELECT address, body FROM {s}.nodes WHERE family = $1 AND address = ANY ($2)",
        *(text(family), blobs(addresses)),
    )
    return dict(rows)


def drop_nodes(run: Run, family: str, addresses: Sequence[bytes]) -> None:
    """Forget these."""
    run(
        "DELETE FROM {s}.nodes WHERE family = $1 AND address = ANY ($2)",
        *(text(family), blobs(addresses)),
    )


def families_after(run: Run, after: str, limit: int) -> list[str]:
    """Families that have nodes."""
    return [family for (family,) in run(NEXT_FAMILIES, text(after), int8(limit))]


def without_runs(run: Run, families: Sequence[str]) -> list[str]:
    """Those that no run belongs to."""
    rows = run(
        "SELECT f.family FROM unnest($1::text[]) WITH ORDINALITY AS f (family, place)"
        " WHERE NOT {s}.is_alive_v1(f.family) ORDER BY f.place",
        texts(families),
    )
    return [family for (family,) in rows]


def drop_family(run: Run, family: str) -> bool:
    """Forget all nodes of a family that has no run."""
    ((is_dropped,),) = run("SELECT {s}.drop_family_v1($1)", text(family))
    return bool(is_dropped)
