"""Limits of queues in PostgreSQL, for those who set them or look at them."""

from __future__ import annotations

from outlive.store import QueueLimits, QueueState
from outlive.stores.postgres_mail import Ask
from outlive.stores.postgres_wire import int8, text
from outlive.stores.tables import LIMITS, limit_values, limits_of

_LIMITS = ", ".join(f"q.{name}" for name in LIMITS)
_STATES = f"""
WITH waiting AS (
    SELECT r.queue, count(*) AS runs, min(coalesce(nullif(r.wake_at, 0), c.now)) AS oldest
    FROM {{s}}.runs r, (SELECT {{s}}.now_v1($1) AS now) AS c
    WHERE r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default'
        AND (r.wake_at <= c.now OR r.posted <> r.consumed) GROUP BY r.queue
), held AS (
    SELECT r.queue, count(*) AS runs FROM {{s}}.runs r
    WHERE r.worker IS NOT NULL AND r.queue <> 'default' GROUP BY r.queue
), names AS (
    SELECT name FROM {{s}}.queues UNION SELECT queue FROM waiting UNION SELECT queue FROM held
)
SELECT n.name, q.name IS NOT NULL, {_LIMITS}, coalesce(w.runs, 0), coalesce(h.runs, 0),
    CASE WHEN q.rate IS NULL THEN 0
        ELSE {{s}}.spent_v1(q.name, q.rate_ms, {{s}}.now_v1($1)) END, w.oldest
FROM names n LEFT JOIN {{s}}.queues q ON q.name = n.name
    LEFT JOIN waiting w ON w.queue = n.name LEFT JOIN held h ON h.queue = n.name ORDER BY n.name
"""


def set_limits(
    ask: Ask, name: str, limits: QueueLimits, now: int | None, *, replace: bool
) -> QueueLimits:
    """Put limits in force; answer with those that are."""
    is_new = "true" if replace else "false"
    (row,) = ask(
        f"SELECT {_LIMITS} FROM {{s}}.set_queue_v1($1, $2, $3, $4, $5, $6, {is_new}, $7) q",
        text(name),
        *(int8(value) for value in limit_values(limits)),
        int8(now),
    )
    return limits_of(row)


def find_limits(ask: Ask, name: str) -> QueueLimits | None:
    """The limits of a queue, if any are set."""
    rows = ask(f"SELECT {_LIMITS} FROM {{s}}.queues q WHERE q.name = $1", text(name))
    return limits_of(rows[0]) if rows else None


def queue_states(ask: Ask, now: int | None) -> list[QueueState]:
    """All queues that have limits or runs."""
    return [
        QueueState(
            name=name,
            limits=limits_of(limits) if is_limited else None,
            waiting=waiting,
            held=held,
            spent=spent,
            oldest_at=oldest,
        )
        for name, is_limited, *limits, waiting, held, spent, oldest in ask(_STATES, int8(now))
    ]
