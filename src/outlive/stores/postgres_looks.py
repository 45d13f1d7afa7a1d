"""What is asked of PostgreSQL to find runs that may be claimed.

These are functions for the sake of their plans: the time is read once, so that an index can be
searched with it, and no table is ever read from end to end, whatever the estimates say.
"""

from __future__ import annotations

from outlive.stores.postgres_functions import PROBING

_WANTED = "flows text[], versions text[], newest bigint"
_PAIRS = "unnest(flows, versions) AS w (flow, version)"
_DRIVABLE = "r.flow = w.flow AND r.version = w.version AND r.format <= newest"
_UNQUEUED = f"{_DRIVABLE} AND r.queue = 'default'"

#: Free runs whose time has come, at most so many of each kind, the longest waiting first.
_DUE = f"""
CREATE FUNCTION {{s}}.due_v2({_WANTED}, at bigint, count bigint)
RETURNS SETOF {{s}}.runs LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    instant CONSTANT bigint := {{s}}.now_v1(at);
BEGIN
    RETURN QUERY SELECT r.* FROM {_PAIRS} CROSS JOIN LATERAL (
        SELECT * FROM {{s}}.runs r WHERE {_UNQUEUED} AND r.worker IS NULL AND r.ended_at IS NULL
            AND r.wake_at <= instant
        ORDER BY r.wake_at LIMIT count FOR UPDATE SKIP LOCKED
    ) AS r;
END $$
"""

#: When the next free run gets due.
_NEXT = f"""
CREATE FUNCTION {{s}}.next_v2({_WANTED}, names text[], at bigint)
RETURNS bigint LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    instant CONSTANT bigint := {{s}}.now_v1(at);
BEGIN
    RETURN least((SELECT min(r.wake_at) FROM {_PAIRS} CROSS JOIN LATERAL (
        SELECT r.wake_at FROM {{s}}.runs r WHERE {_UNQUEUED} AND r.worker IS NULL
            AND r.ended_at IS NULL AND r.wake_at > instant
            AND (names IS NULL OR 'default' = ANY (names))
        ORDER BY r.wake_at LIMIT 1
    ) AS r), (SELECT min(r.wake_at) FROM {_PAIRS}
        CROSS JOIN unnest({{s}}.queue_names_v1(names)) AS n (name) CROSS JOIN LATERAL (
        SELECT r.wake_at FROM {{s}}.runs r WHERE {_DRIVABLE} AND r.queue = n.name
            AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch > 0
            AND r.wake_at > instant
        ORDER BY r.wake_at LIMIT 1
    ) AS r));
END $$
"""

#: Free runs with mail.
_MAILED = f"""
CREATE FUNCTION {{s}}.mailed_v2({_WANTED}, count bigint)
RETURNS SETOF {{s}}.runs LANGUAGE plpgsql {PROBING} AS $$
BEGIN
    RETURN QUERY SELECT r.* FROM {_PAIRS} CROSS JOIN LATERAL (
        SELECT * FROM {{s}}.runs r WHERE {_UNQUEUED} AND coalesce(r.worker, '') = ''
            AND r.ended_at IS NULL AND r.posted <> r.consumed
        LIMIT count FOR UPDATE SKIP LOCKED
    ) AS r;
END $$
"""

#: Runs that these workers hold.
_LEFT = f"""
CREATE FUNCTION {{s}}.left_v2({_WANTED}, names text[], holders text[], count bigint)
RETURNS SETOF {{s}}.runs LANGUAGE plpgsql {PROBING} AS $$
BEGIN
    RETURN QUERY SELECT r.* FROM {_PAIRS} CROSS JOIN LATERAL (
        SELECT * FROM {{s}}.runs r WHERE {_DRIVABLE} AND r.worker = ANY (holders)
            AND r.ended_at IS NULL AND (names IS NULL OR r.queue = ANY (names))
        LIMIT count FOR UPDATE SKIP LOCKED
    ) AS r;
END $$
"""

LOOKS = (_DUE, _NEXT, _MAILED, _LEFT)
