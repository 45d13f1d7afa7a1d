"""Limits of queues inside PostgreSQL: the gate that a claim goes through, and who is next.

Whoever takes runs of a queue that has limits locks the queue's row first (queues by name, and
before any run), then counts: of those who claim at once, one after the other sees what the one
before took. The rows are few and the lock is held for one commit.

Candidates are found by jumps through the index: from priority to priority, from key to key.
"""

from __future__ import annotations

from outlive.stores.postgres.functions import PROBING
from outlive.stores.postgres.rows import Ask
from outlive.stores.postgres.wire import int8, text
from outlive.stores.queues import FAIR_TURNS, SLICES
from outlive.stores.shared import LIMITS, limit_values, limits_of
from outlive.stores.types import QueueLimits, QueueState

_LEVEL_BELOW_ALL = -(1 << 31)

TABLES = (
    "ALTER TABLE {s}.runs ADD COLUMN queue_key text COLLATE \"C\" NOT NULL DEFAULT '',"
    " ADD COLUMN priority bigint NOT NULL DEFAULT 0, ADD COLUMN units bigint NOT NULL DEFAULT 1",
    """
    CREATE TABLE {s}.queues (
        name text COLLATE "C" PRIMARY KEY,
        concurrency bigint,
        per_key bigint,
        per_worker bigint,
        rate bigint,
        rate_ms bigint NOT NULL,
        turn bigint NOT NULL DEFAULT 0,
        turn_key text COLLATE "C" NOT NULL DEFAULT ''
    ) WITH (fillfactor = 20)
    """,
    """
    CREATE TABLE {s}.spent (
        queue text COLLATE "C" NOT NULL,
        slice_at bigint NOT NULL,
        units bigint NOT NULL,
        PRIMARY KEY (queue, slice_at)
    ) WITH (fillfactor = 20)
    """,
    "DROP INDEX {s}.runs_due",
    "DROP INDEX {s}.runs_with_mail",
    """
    CREATE INDEX runs_due ON {s}.runs (flow, version, wake_at)
    WHERE worker IS NULL AND ended_at IS NULL AND wake_at IS NOT NULL AND queue = 'default'
    """,
    """
    CREATE INDEX runs_with_mail ON {s}.runs (coalesce(worker, ''), flow, version, queue)
    WHERE ended_at IS NULL AND posted <> consumed
    """,
    """
    CREATE INDEX runs_queued ON {s}.runs (queue, flow, version, priority, queue_key, id)
    WHERE worker IS NULL AND ended_at IS NULL AND queue <> 'default' AND epoch = 0
    """,
    """
    CREATE INDEX runs_oldest ON {s}.runs (queue, flow, version, id, queue_key)
    WHERE worker IS NULL AND ended_at IS NULL AND queue <> 'default' AND epoch = 0
    """,
    """
    CREATE INDEX runs_woken ON {s}.runs (queue, flow, version, wake_at)
    WHERE worker IS NULL AND ended_at IS NULL AND queue <> 'default' AND epoch > 0
    """,
    """
    CREATE INDEX runs_held_of_queue ON {s}.runs (queue, queue_key, worker)
    WHERE worker IS NOT NULL AND queue <> 'default'
    """,
)

_HELD = "h.worker IS NOT NULL AND h.queue <> 'default'"
_FREE = "r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default'"
_KIND = "r.queue = queue_name AND r.flow = w.flow AND r.version = w.version"
NEW = f"{_KIND} AND {_FREE} AND r.epoch = 0"

#: What of a rate counts as spent; what was spent after now is not yet seen: the clock was set.
_SPENT = f"""
CREATE FUNCTION {{s}}.spent_v1(queue_name text, rate_ms bigint, instant bigint)
RETURNS bigint LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    width CONSTANT bigint := (rate_ms + {SLICES - 1}) / {SLICES};
    here CONSTANT bigint := instant - instant % width;
BEGIN
    RETURN (SELECT coalesce(sum(x.units), 0) FROM {{s}}.spent x
        WHERE x.queue = queue_name AND x.slice_at BETWEEN here - {SLICES + 1} * width AND here);
END $$
"""

#: Units are spent now; what counts no more is forgotten. What was spent before the clock was set
#: back counts as spent now.
_SPEND = f"""
CREATE FUNCTION {{s}}.spend_v1(queue_name text, rate_ms bigint, instant bigint, more bigint)
RETURNS void LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    width CONSTANT bigint := (rate_ms + {SLICES - 1}) / {SLICES};
    here CONSTANT bigint := instant - instant % width;
    ahead bigint;
BEGIN
    WITH gone AS (
        DELETE FROM {{s}}.spent x WHERE x.queue = queue_name
        AND (x.slice_at > here OR x.slice_at < here - {SLICES + 1} * width)
        RETURNING x.slice_at, x.units
    )
    SELECT coalesce(sum(gone.units), 0) INTO ahead FROM gone WHERE gone.slice_at > here;
    IF ahead + more > 0 THEN
        INSERT INTO {{s}}.spent AS x VALUES (queue_name, here, ahead + more)
        ON CONFLICT (queue, slice_at) DO UPDATE SET units = x.units + excluded.units;
    END IF;
END $$
"""

#: The epochs that entries must find, with one that no run has for those whose queue has no place.
_ADMIT_V1 = f"""
CREATE FUNCTION {{s}}.admit_v1(
    run_ids text[], afters bigint[], befores bigint[], leases bigint[], takers text[], at bigint
) RETURNS bigint[] LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    instant bigint;
    e record;
    q {{s}}.queues%ROWTYPE;
    keys text[];
    workers text[];
    held bigint;
    spent bigint;
BEGIN
    PERFORM 1 FROM {{s}}.queues x WHERE x.name = ANY (ARRAY(
        SELECT r.queue FROM unnest(run_ids, leases) AS g (run_id, lease)
        JOIN {{s}}.runs r ON r.run_id = g.run_id WHERE g.lease = 1 AND r.queue <> 'default'
    )) ORDER BY x.name FOR UPDATE;
    IF NOT FOUND THEN
        RETURN befores;
    END IF;
    instant := {{s}}.now_v1(at);
    FOR e IN
        SELECT g.place, g.taker, r.queue, r.queue_key, r.units, r.worker, r.epoch
        FROM unnest(run_ids, afters, befores, leases, takers) WITH ORDINALITY
            AS g (run_id, after, before, lease, taker, place)
        JOIN {{s}}.runs r ON r.run_id = g.run_id
        WHERE g.lease = 1 AND r.seq = g.after AND r.epoch = g.before
        AND EXISTS (SELECT 1 FROM {{s}}.queues x WHERE x.name = r.queue)
        ORDER BY r.queue, g.place
    LOOP
        IF q.name IS DISTINCT FROM e.queue THEN
            SELECT * INTO q FROM {{s}}.queues x WHERE x.name = e.queue;
            keys := '{{}}';
            workers := '{{}}';
            held := 0;
            IF q.concurrency IS NOT NULL THEN
                held := (SELECT count(*) FROM {{s}}.runs h WHERE h.queue = q.name AND {_HELD});
            END IF;
            IF q.rate IS NOT NULL THEN
                PERFORM {{s}}.spend_v1(q.name, q.rate_ms, instant, 0);
                spent := {{s}}.spent_v1(q.name, q.rate_ms, instant);
            END IF;
        END IF;
        IF (q.per_worker <= (
                SELECT count(*) FROM {{s}}.runs h
                WHERE h.queue = q.name AND {_HELD} AND h.worker = e.taker
            ) + cardinality(array_positions(workers, e.taker))) IS TRUE
        OR (e.worker IS NULL AND (
            (q.concurrency <= held) IS TRUE
            OR (e.queue_key <> '' AND q.per_key <= (
                    SELECT count(*) FROM {{s}}.runs h
                    WHERE h.queue = q.name AND {_HELD} AND h.queue_key = e.queue_key
                ) + cardinality(array_positions(keys, e.queue_key))) IS TRUE
            OR (e.epoch = 0 AND spent + e.units > q.rate) IS TRUE))
        THEN
            befores[e.place] := -1;
            CONTINUE;
        END IF;
        workers := workers || e.taker;
        IF e.worker IS NULL THEN
            held := held + 1;
            keys := keys || e.queue_key;
            UPDATE {{s}}.queues x SET turn = x.turn + 1, turn_key = CASE
                WHEN x.turn % {FAIR_TURNS} = {FAIR_TURNS - 1} THEN x.turn_key ELSE e.queue_key END
                WHERE x.name = q.name;
            IF e.epoch = 0 AND q.rate IS NOT NULL THEN
                spent := spent + e.units;
                PERFORM {{s}}.spend_v1(q.name, q.rate_ms, instant, e.units);
            END IF;
        END IF;
    END LOOP;
    RETURN befores;
END $$
"""
#: The same; a run that exceeds the rate alone takes all of it.
_ADMIT = _ADMIT_V1.replace("admit_v1", "admit_v2").replace("e.units", "least(e.units, q.rate)")

#: The queues that free runs are in, by jumping from one to the next.
_NAMES = f"""
CREATE FUNCTION {{s}}.queue_names_v1(names text[])
RETURNS text[] LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    name text := '';
    found text[] := '{{}}';
BEGIN
    LOOP
        name := (SELECT least(
            (SELECT r.queue FROM {{s}}.runs r WHERE r.queue > name AND {_FREE} AND r.epoch = 0
                ORDER BY r.queue LIMIT 1),
            (SELECT r.queue FROM {{s}}.runs r WHERE r.queue > name AND {_FREE} AND r.epoch > 0
                ORDER BY r.queue LIMIT 1)));
        EXIT WHEN name IS NULL;
        IF names IS NULL OR name = ANY (names) THEN
            found := found || name;
        END IF;
    END LOOP;
    RETURN found;
END $$
"""

#: The next keys of a lane, in a round that begins behind the last one; not those that are full.
KEYS_V1 = f"""
CREATE FUNCTION {{s}}.lane_keys_v1(
    queue_name text, flow text, version text, level bigint, last text, count bigint,
    full_keys text[]
) RETURNS text[] LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    key text := last;
    found text[] := '{{}}';
    has_wrapped boolean := false;
BEGIN
    WHILE cardinality(found) < count LOOP
        IF key IS NULL THEN
            SELECT min(r.queue_key) INTO key FROM {{s}}.runs r, (SELECT $2, $3) AS w (flow, version)
                WHERE {NEW} AND r.priority = level;
        ELSE
            key := (SELECT r.queue_key FROM {{s}}.runs r, (SELECT $2, $3) AS w (flow, version)
                WHERE {NEW} AND r.priority = level AND r.queue_key > key
                ORDER BY r.queue_key LIMIT 1);
        END IF;
        IF key IS NULL OR (has_wrapped AND key > last) THEN
            EXIT WHEN has_wrapped;
            has_wrapped := true;
            key := NULL;
        ELSIF key <> ALL (full_keys) THEN
            found := found || key;
        END IF;
    END LOOP;
    RETURN found;
END $$
"""

#: Those of which no more may be held.
FULL_KEYS_V1 = f"""ARRAY(SELECT h.queue_key FROM {{s}}.runs h
            WHERE q.per_key IS NOT NULL AND h.queue = queue_name AND {_HELD} AND h.queue_key <> ''
            GROUP BY h.queue_key HAVING count(*) >= q.per_key)"""
OF_KEY_V1 = "r.queue_key = k.key AND r.format <= newest ORDER BY r.id"
#: The runs of a kind that have waited longest.
OLDEST_V1 = f"""RETURN QUERY SELECT * FROM {{s}}.runs r WHERE {NEW} AND r.format <= newest
                    AND r.queue_key <> ALL (full_keys)
                    ORDER BY r.id LIMIT 1 + room / {FAIR_TURNS} FOR UPDATE SKIP LOCKED;"""

#: Free runs of queues: some of each priority and key, no more than there is room for.
QUEUED_V1 = f"""
CREATE FUNCTION {{s}}.queued_v1(
    flows text[], versions text[], newest bigint, names text[], asker text,
    turn_queues text[], turn_keys text[], turns bigint[], at bigint, count bigint
) RETURNS SETOF {{s}}.runs LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    instant CONSTANT bigint := {{s}}.now_v1(at);
    queue_name text;
    q {{s}}.queues%ROWTYPE;
    w record;
    room bigint;
    level bigint;
    taken bigint;
    more bigint;
    keys text[];
    full_keys text[];
BEGIN
    FOREACH queue_name IN ARRAY {{s}}.queue_names_v1(names) LOOP
        SELECT * INTO q FROM {{s}}.queues x WHERE x.name = queue_name;
        room := least(count,
            q.concurrency - (SELECT count(*) FROM {{s}}.runs h
                WHERE q.concurrency IS NOT NULL AND h.queue = queue_name AND {_HELD}),
            q.per_worker - (SELECT count(*) FROM {{s}}.runs h
                WHERE q.per_worker IS NOT NULL AND h.queue = queue_name AND {_HELD}
                AND h.worker = asker));
        CONTINUE WHEN room <= 0;
        full_keys := {FULL_KEYS_V1};
        FOR w IN SELECT * FROM unnest(flows, versions) AS w (flow, version) LOOP
            RETURN QUERY SELECT * FROM {{s}}.runs r
                WHERE {_KIND} AND {_FREE} AND r.epoch > 0 AND r.wake_at <= instant
                AND r.format <= newest AND r.queue_key <> ALL (full_keys)
                ORDER BY r.wake_at LIMIT room FOR UPDATE SKIP LOCKED;
            RETURN QUERY SELECT * FROM {{s}}.runs r
                WHERE {_KIND} AND coalesce(r.worker, '') = '' AND r.ended_at IS NULL
                AND r.posted <> r.consumed AND r.format <= newest
                AND r.queue_key <> ALL (full_keys) LIMIT room FOR UPDATE SKIP LOCKED;
            taken := 0;
            level := {_LEVEL_BELOW_ALL};
            IF coalesce(q.turn, turns[array_position(turn_queues, queue_name)], 0) % {FAIR_TURNS}
                + room >= {FAIR_TURNS}
            THEN
                {OLDEST_V1}
            END IF;
            WHILE taken < room LOOP
                level := (SELECT r.priority FROM {{s}}.runs r WHERE {NEW} AND r.priority > level
                    ORDER BY r.priority LIMIT 1);
                EXIT WHEN level IS NULL;
                keys := {{s}}.lane_keys_v1(queue_name, w.flow, w.version, level,
                    coalesce(q.turn_key, turn_keys[array_position(turn_queues, queue_name)], ''),
                    room, full_keys);
                more := 1 + room / greatest(1, cardinality(keys));
                RETURN QUERY SELECT r.* FROM unnest(keys) AS k (key) CROSS JOIN LATERAL (
                    SELECT * FROM {{s}}.runs r WHERE {NEW} AND r.priority = level
                    AND {OF_KEY_V1} LIMIT more FOR UPDATE SKIP LOCKED
                ) AS r;
                GET DIAGNOSTICS more = ROW_COUNT;
                taken := taken + more;
            END LOOP;
        END LOOP;
    END LOOP;
END $$
"""

#: What is held and spent of every queue that has limits.
_LOADS = f"""
CREATE FUNCTION {{s}}.loads_v1(at bigint) RETURNS TABLE (
    name text, concurrency bigint, per_key bigint, per_worker bigint, rate bigint, rate_ms bigint,
    turn bigint, turn_key text, spent bigint, is_waited boolean,
    queue_key text, worker text, held bigint
) LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    instant CONSTANT bigint := {{s}}.now_v1(at);
BEGIN
    RETURN QUERY SELECT q.name, q.concurrency, q.per_key, q.per_worker, q.rate, q.rate_ms,
        q.turn, q.turn_key,
        CASE WHEN q.rate IS NOT NULL THEN {{s}}.spent_v1(q.name, q.rate_ms, instant) ELSE 0 END,
        EXISTS (SELECT 1 FROM {{s}}.runs r WHERE r.queue = q.name AND {_FREE} AND r.epoch = 0)
            OR EXISTS (
                SELECT 1 FROM {{s}}.runs r WHERE r.queue = q.name AND {_FREE} AND r.epoch > 0),
        h.queue_key, h.worker, h.count
    FROM {{s}}.queues q LEFT JOIN LATERAL (
        SELECT h.queue_key, h.worker, count(*) FROM {{s}}.runs h
        WHERE h.queue = q.name AND {_HELD} GROUP BY 1, 2
    ) AS h ON true;
END $$
"""

#: The limits that hold afterwards. What was spent in slices of another length counts as spent now.
_SET = f"""
CREATE FUNCTION {{s}}.set_queue_v1(
    given text, new_concurrency bigint, new_per_key bigint, new_per_worker bigint, new_rate bigint,
    new_rate_ms bigint, replaces boolean, at bigint
) RETURNS SETOF {{s}}.queues LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    q {{s}}.queues%ROWTYPE;
    before bigint;
BEGIN
    INSERT INTO {{s}}.queues VALUES (given, new_concurrency, new_per_key, new_per_worker, new_rate,
        new_rate_ms) ON CONFLICT (name) DO NOTHING;
    SELECT * INTO q FROM {{s}}.queues x WHERE x.name = given FOR UPDATE;
    IF replaces THEN
        UPDATE {{s}}.queues x SET concurrency = new_concurrency, per_key = new_per_key,
            per_worker = new_per_worker, rate = new_rate, rate_ms = new_rate_ms
            WHERE x.name = given;
        IF q.rate_ms <> new_rate_ms THEN
            WITH gone AS (DELETE FROM {{s}}.spent x WHERE x.queue = given RETURNING x.units)
            SELECT coalesce(sum(gone.units), 0) INTO before FROM gone;
            PERFORM {{s}}.spend_v1(given, new_rate_ms, {{s}}.now_v1(at), before);
        END IF;
    END IF;
    RETURN QUERY SELECT * FROM {{s}}.queues x WHERE x.name = given;
END $$
"""

#: The same, whatever nonsense the length of a stretch is: who reads the limits lets nothing begin.
_ANY_WIDTH = tuple(
    function.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION").replace(
        f":= (rate_ms + {SLICES - 1}) / {SLICES};",
        f":= greatest(1, (least(rate_ms, 1::bigint << 50) + {SLICES - 1}) / {SLICES});",
    )
    for function in (_SPENT, _SPEND)
)

QUEUES = (_SPENT, _SPEND, _ADMIT_V1, _NAMES, KEYS_V1, QUEUED_V1, _LOADS, _SET)
#: Since no run is too much for its queue.
QUEUES_OF_ANY_COST = (_ADMIT,)
#: Since limits may be nonsense.
QUEUES_OF_ANY_WIDTH = _ANY_WIDTH


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
