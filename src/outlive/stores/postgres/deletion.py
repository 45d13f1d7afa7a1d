"""Deleting in PostgreSQL: many runs in one call, which is one transaction and one flush.

Rows are locked in the order of their ids, then families in an order of their own: of two who clear
the same store one waits for the other, and neither for ever. Of two who delete the last of a family
one sees that it is the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from outlive.stores.postgres.connection import Statement
from outlive.stores.postgres.functions import PROBING
from outlive.stores.postgres.regression import KEPT_MS_MAX
from outlive.stores.postgres.rows import FOUND_COLUMNS, found_of
from outlive.stores.postgres.wire import Parameter, Row, blob, blobs, int8, int8s, text, texts
from outlive.stores.types import Deletion, Node, Reading, StoredRecord

#: Tombstones whose time is over that go along with a deletion.
_FALLEN_MAX = 100

_DELETE_V2 = f"""
CREATE FUNCTION {{s}}.delete_v2(
    run_ids text[], seqs bigint[], digests bytea[], untils bigint[], at bigint
) RETURNS SETOF text LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    gone text[];
    families text[];
BEGIN
    SELECT array_agg(x.run_id), array_agg(DISTINCT x.family) INTO gone, families FROM (
        SELECT r.run_id, r.family FROM unnest(run_ids, seqs) AS g (run_id, seq)
        JOIN {{s}}.runs r ON r.run_id = g.run_id
        WHERE r.seq = g.seq AND r.ended_at IS NOT NULL
        ORDER BY r.run_id FOR UPDATE OF r
    ) AS x;
    -- Those that were deleted before: who asks again may not have heard the answer.
    RETURN QUERY SELECT g.run_id FROM unnest(run_ids, seqs, digests) AS g (run_id, seq, digest)
        JOIN {{s}}.tombstones t ON t.run_id = g.run_id AND t.seq = g.seq AND t.digest = g.digest
        WHERE NOT EXISTS (SELECT 1 FROM {{s}}.runs r WHERE r.run_id = g.run_id);
    IF gone IS NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(x.family) FROM (
        SELECT hashtextextended(f.family, 1) AS family FROM unnest(families) AS f (family)
        ORDER BY 1
    ) AS x;
    DELETE FROM {{s}}.tombstones t WHERE t.run_id IN (
        SELECT o.run_id FROM {{s}}.tombstones o WHERE o.keep_until <= {{s}}.now_v1(at)
        LIMIT {_FALLEN_MAX} + 2 * cardinality(gone) FOR UPDATE SKIP LOCKED
    );
    INSERT INTO {{s}}.tombstones AS t
        SELECT DISTINCT ON (r.run_id) r.run_id, r.seq, g.digest, r.flow, r.ended_at, g.until
        FROM unnest(run_ids, digests, untils) AS g (run_id, digest, until)
        JOIN {{s}}.runs r ON r.run_id = g.run_id
        WHERE r.run_id = ANY (gone) ORDER BY r.run_id
        ON CONFLICT (run_id) DO UPDATE SET seq = excluded.seq, digest = excluded.digest,
            flow = excluded.flow, ended_at = excluded.ended_at, keep_until = excluded.keep_until;
    DELETE FROM {{s}}.records x WHERE x.run_id = ANY (gone);
    DELETE FROM {{s}}.mail m WHERE m.run_id = ANY (gone);
    DELETE FROM {{s}}.outcomes o WHERE o.run_id = ANY (gone);
    DELETE FROM {{s}}.runs r WHERE r.run_id = ANY (gone);
    families := ARRAY(
        SELECT f.family FROM unnest(families) AS f (family)
        WHERE NOT EXISTS (
            SELECT 1 FROM {{s}}.runs r WHERE r.family = f.family AND r.family <> r.run_id
        ) AND NOT EXISTS (
            SELECT 1 FROM {{s}}.runs r WHERE r.run_id = f.family AND r.family = r.run_id
        )
    );
    DELETE FROM {{s}}.nodes n WHERE n.family = ANY (families);
    RETURN QUERY SELECT unnest(gone);
END $$
"""
#: The same; a tombstone stays for as long as somebody may remember its run.
_DELETE_V3 = _DELETE_V2.replace("delete_v2", "delete_v3").replace(
    "o.keep_until <= {s}.now_v1(at)", f"o.keep_until <= {{s}}.now_v1(at) - {KEPT_MS_MAX}"
)
#: The same; the time is read once, so that an index finds the tombstones whose time is over. Asked
#: of each row, it was a look at all of them: 46 runs went per second without any, 3 with a million.
_DELETE = (
    _DELETE_V3.replace("delete_v3", "delete_v4")
    .replace(
        "DECLARE\n", f"DECLARE\n    fallen CONSTANT bigint := {{s}}.now_v1(at) - {KEPT_MS_MAX};\n"
    )
    .replace(f"o.keep_until <= {{s}}.now_v1(at) - {KEPT_MS_MAX}", "o.keep_until <= fallen")
)
DELETIONS = (_DELETE_V2,)
#: Since ids may be used again soon.
DELETIONS_REMEMBERED = (_DELETE_V3,)
#: Since there may be any number of tombstones; and ended runs are found by their end.
DELETIONS_AT_ANY_NUMBER = (
    _DELETE,
    "CREATE INDEX runs_by_end ON {s}.runs (ended_at) WHERE ended_at IS NOT NULL",
)

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


#: Seqs to follow; -1, which none does, for an entry that joins a run which is not there.
_JOIN = f"""
CREATE FUNCTION {{s}}.join_v1(afters bigint[], joins text[])
RETURNS bigint[] LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    there text[];
BEGIN
    SELECT array_agg(x.run_id) INTO there FROM (
        SELECT r.run_id FROM {{s}}.runs r WHERE r.run_id = ANY (joins)
        ORDER BY r.run_id FOR KEY SHARE
    ) AS x;
    RETURN ARRAY(
        SELECT CASE WHEN g.joined IS NULL OR g.joined = ANY (there) THEN g.after ELSE -1 END
        FROM unnest(afters, joins) WITH ORDINALITY AS g (after, joined, place) ORDER BY g.place
    );
END $$
"""

_HOLD = f"""
CREATE FUNCTION {{s}}.hold_families_v1(run_ids text[])
RETURNS void LANGUAGE plpgsql {PROBING} AS $$
BEGIN
    -- In the order in which those who delete take them.
    PERFORM pg_advisory_xact_lock_shared(f.family) FROM (
        SELECT DISTINCT hashtextextended(r.family, 1) AS family FROM {{s}}.runs r
        WHERE r.run_id = ANY (run_ids) ORDER BY 1
    ) AS f;
END $$
"""

_IS_ALIVE = """
CREATE FUNCTION {s}.is_alive_v1(given_family text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM {s}.runs r WHERE r.family = given_family AND r.family <> r.run_id
    ) OR EXISTS (
        SELECT 1 FROM {s}.runs r WHERE r.run_id = given_family AND r.family = r.run_id
    )
$$
"""

_DROP = """
CREATE FUNCTION {s}.drop_family_v1(given_family text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(given_family, 1));
    IF {s}.is_alive_v1(given_family) THEN
        RETURN false;
    END IF;
    DELETE FROM {s}.nodes n WHERE n.family = given_family;
    RETURN true;
END $$
"""

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

FAMILIES = (_JOIN, _HOLD, _IS_ALIVE, _DROP)


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
