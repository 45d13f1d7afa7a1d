"""Deleting in PostgreSQL: many runs in one call, which is one transaction and one flush.

Rows are locked in the order of their ids, then families in an order of their own: of two who clear
the same store one waits for the other, and neither for ever. Of two who delete the last of a family
one sees that it is the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from outlive.stores.postgres.connection import Statement
from outlive.stores.postgres.rows import FOUND_COLUMNS, found_of
from outlive.stores.postgres.wire import Parameter, Row, blob, blobs, int8, int8s, text, texts
from outlive.stores.types import Deletion, Node, Reading, StoredRecord

#: Sends a statement, answers with its rows; sends some in one round trip.
Ask = Callable[..., list[Row]]
Run = Callable[..., list[list[Row]]]


def delete_runs(ask: Ask, batch: Sequence[Deletion], now: int | None) -> list[bool]:
    """Which of these are gone."""
    parameters: list[Parameter] = [
        texts([each.run_id for each in batch]),
        int8s([each.seq for each in batch]),
        blobs([each.digest for each in batch]),
        int8s([each.keep_until for each in batch]),
        int8(now),
    ]
    rows = ask("SELECT * FROM {s}.delete_v4($1, $2, $3, $4, $5)", *parameters)
    gone = {run_id for (run_id,) in rows}
    return [each.run_id in gone for each in batch]


def read_runs(
    run: Run, ask: Callable[..., Statement], run_ids: Sequence[str]
) -> Mapping[str, Reading]:
    """These journals as they are at one instant, without mail."""
    _, found, records, _ = run(
        Statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
        ask(f"SELECT {FOUND_COLUMNS} FROM {{s}}.runs r WHERE r.run_id = ANY ($1)", texts(run_ids)),
        ask(
            "SELECT x.run_id, x.seq, x.body FROM {s}.records x"
            " WHERE x.run_id = ANY ($1) ORDER BY x.run_id, x.seq",
            texts(run_ids),
        ),
        Statement("COMMIT"),
    )
    listed: dict[str, list[StoredRecord]] = {run_id: [] for run_id in run_ids}
    for run_id, seq, body in records:
        listed[run_id].append(StoredRecord(seq, body))
    there = [found_of(row) for row in found]
    return {
        each.head.run_id: Reading(
            head=each.head, header=each.header, records=listed[each.head.run_id], mail=()
        )
        for each in there
    }


#: Each is a step through the index, however many nodes there are.
NEXT_FAMILIES = """
    WITH RECURSIVE f (family, count) AS (
        (SELECT n.family, 1::bigint FROM {s}.nodes n WHERE n.family > $1
         ORDER BY n.family LIMIT 1)
        UNION ALL
        SELECT (SELECT n.family FROM {s}.nodes n WHERE n.family > f.family
                ORDER BY n.family LIMIT 1), f.count + 1
        FROM f WHERE f.family IS NOT NULL AND f.count < $2
    )
    SELECT f.family FROM f WHERE f.family IS NOT NULL
"""


#: Sends one statement with its values and answers with its rows.
RunStatement = Callable[..., list[Row]]


def put_node(run: RunStatement, family: str, node: Node) -> None:
    """Keep a node, unless it is there."""
    run(
        "INSERT INTO {s}.nodes VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        *(text(family), blob(node.address), blob(node.body)),
    )


def get_nodes(run: RunStatement, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
    """Those that there are."""
    if not addresses:
        return {}
    rows = run(
        "SELECT address, body FROM {s}.nodes WHERE family = $1 AND address = ANY ($2)",
        *(text(family), blobs(addresses)),
    )
    return dict(rows)


def drop_nodes(run: RunStatement, family: str, addresses: Sequence[bytes]) -> None:
    """Forget these."""
    run(
        "DELETE FROM {s}.nodes WHERE family = $1 AND address = ANY ($2)",
        *(text(family), blobs(addresses)),
    )


def families_after(run: RunStatement, after: str, limit: int) -> list[str]:
    """Families that have nodes."""
    return [family for (family,) in run(NEXT_FAMILIES, text(after), int8(limit))]


def without_runs(run: RunStatement, families: Sequence[str]) -> list[str]:
    """Those that no run belongs to."""
    rows = run(
        "SELECT f.family FROM unnest($1::text[]) WITH ORDINALITY AS f (family, place)"
        " WHERE NOT {s}.is_alive_v1(f.family) ORDER BY f.place",
        texts(families),
    )
    return [family for (family,) in rows]


def drop_family(run: RunStatement, family: str) -> bool:
    """Forget all nodes of a family that has no run."""
    ((is_dropped,),) = run("SELECT {s}.drop_family_v1($1)", text(family))
    return bool(is_dropped)
