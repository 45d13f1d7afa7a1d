"""Families in PostgreSQL: who joins one, who deletes its last run, who clears what is left of it.

A run that joins locks the run that it joins, as a foreign key would: whoever deletes that one waits
and then finds who joined, and who comes after a deletion finds nothing to join. Whoever drops what
is left of a family excludes those who begin one with nodes: a node must not be found there by the
one and dropped by the other.
"""

from __future__ import annotations

from outlive.stores.postgres_functions import PROBING

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
