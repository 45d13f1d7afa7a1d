"""Candidates of queues inside PostgreSQL: what a look costs does not depend on how long lines are.

Jumps lead from priority to priority and from key to key. The one that has waited longest is among
the first of all, or behind a long line of full keys, where it is found by such jumps, too. Whether
a key is full is looked up, not searched for. So a look costs as much as there are keys.

Of indices that give the wanted order the planner likes the one by number best, which leads past
every run there ever was. So lines are asked for in an order that only their own index has: by a
column that is *between* two equal values, since one that is equal to a value would not count.
"""

from __future__ import annotations

from outlive.stores.gate import FAIR_TURNS
from outlive.stores.postgres_queues import (
    FULL_KEYS_V1,
    KEYS_V1,
    NEW,
    OF_KEY_V1,
    OLDEST_V1,
    QUEUED_V1,
)

#: So many at the front of a line are looked at one by one.
FRONT_MAX = 200

_PAIR = "(SELECT $2, $3) AS w (flow, version)"
_OF_KEY = "r.queue_key BETWEEN k.key AND k.key AND r.format <= newest ORDER BY r.queue_key, r.id"
_IN_LINE = f"{NEW} AND r.version BETWEEN w.version AND w.version ORDER BY r.version, r.id".replace(
    "r.version = w.version AND ", ""
)

#: The free runs of a kind that have waited longest and whose keys are not full. Planned as whoever
#: calls it has set.
_OLDEST = f"""
CREATE FUNCTION {{s}}.oldest_v1(
    queue_name text, flow text, version text, newest bigint, full_keys jsonb, count bigint
) RETURNS SETOF {{s}}.runs LANGUAGE plpgsql AS $$
DECLARE
    found bigint[];
    seen bigint;
BEGIN
    SELECT (array_agg(r.id ORDER BY r.id)
        FILTER (WHERE r.format <= newest AND NOT full_keys ? r.queue_key))[1:count], count(*)
        INTO found, seen FROM (
            SELECT r.* FROM {{s}}.runs r, {_PAIR} WHERE {_IN_LINE} LIMIT {FRONT_MAX}
        ) AS r;
    IF seen = {FRONT_MAX} AND coalesce(cardinality(found), 0) < count THEN
        found := ARRAY(
            WITH RECURSIVE lanes AS (
                (SELECT r.priority, r.queue_key AS key FROM {{s}}.runs r, {_PAIR} WHERE {NEW}
                    ORDER BY r.priority, r.queue_key LIMIT 1)
                UNION ALL
                SELECT n.priority, n.queue_key FROM lanes k CROSS JOIN LATERAL (
                    SELECT r.priority, r.queue_key FROM {{s}}.runs r, {_PAIR}
                    WHERE {NEW} AND (r.priority, r.queue_key) > (k.priority, k.key)
                    ORDER BY r.priority, r.queue_key LIMIT 1
                ) AS n
            )
            SELECT r.id FROM lanes k CROSS JOIN LATERAL (
                SELECT r.id FROM {{s}}.runs r, {_PAIR}
                WHERE {NEW} AND r.priority = k.priority AND {_OF_KEY} LIMIT count
            ) AS r WHERE NOT full_keys ? k.key ORDER BY r.id LIMIT count);
    END IF;
    RETURN QUERY SELECT * FROM {{s}}.runs r WHERE r.id = ANY (found) AND r.worker IS NULL
        ORDER BY r.id FOR UPDATE SKIP LOCKED;
END $$
"""

_KEYS = (
    KEYS_V1.replace("lane_keys_v1", "lane_keys_v2")
    .replace("full_keys text[]", "full_keys jsonb")
    .replace("key <> ALL (full_keys)", "NOT full_keys ? key")
)

_FULL_KEYS = f"""CASE WHEN q.per_key IS NULL THEN '{{}}' ELSE coalesce((
            SELECT jsonb_object_agg(f.key, 1) FROM unnest({FULL_KEYS_V1}) AS f (key)
        ), '{{}}') END"""
_OLDEST_OF_ALL = f"""IF full_keys = '{{}}' THEN
                    RETURN QUERY SELECT * FROM {{s}}.runs r WHERE r.format <= newest AND {_IN_LINE}
                        LIMIT 1 + room / {FAIR_TURNS} FOR UPDATE SKIP LOCKED;
                ELSE
                    RETURN QUERY SELECT * FROM {{s}}.oldest_v1(
                        queue_name, w.flow, w.version, newest, full_keys, 1 + room / {FAIR_TURNS});
                END IF;"""
_QUEUED = (
    QUEUED_V1.replace("queued_v1", "queued_v2")
    .replace("lane_keys_v1", "lane_keys_v2")
    .replace("full_keys text[]", "full_keys jsonb")
    .replace(FULL_KEYS_V1, _FULL_KEYS)
    .replace(OF_KEY_V1, _OF_KEY)
    .replace(OLDEST_V1, _OLDEST_OF_ALL)
    .replace("r.queue_key <> ALL (full_keys)", "NOT full_keys ? r.queue_key")
)

LANES = (_OLDEST, _KEYS, _QUEUED)
