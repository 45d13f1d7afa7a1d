-- Schema 6: the longest waiting runs, independent of queue length.

-- The free runs of a kind that have waited longest and whose keys are not full. Planned as whoever
-- calls it has set.
CREATE FUNCTION {s}.oldest_v1(
    queue_name text, flow text, version text, newest bigint, full_keys jsonb, count bigint
) RETURNS SETOF {s}.runs LANGUAGE plpgsql AS $$
DECLARE
    found bigint[];
    seen bigint;
BEGIN
    SELECT (array_agg(r.id ORDER BY r.id)
        FILTER (WHERE r.format <= newest AND NOT full_keys ? r.queue_key))[1:count], count(*)
        INTO found, seen FROM (
            SELECT r.* FROM {s}.runs r, (SELECT $2, $3) AS w (flow, version) WHERE r.queue = queue_name AND r.flow = w.flow AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch = 0 AND r.version BETWEEN w.version AND w.version ORDER BY r.version, r.id LIMIT 200
        ) AS r;
    IF seen = 200 AND coalesce(cardinality(found), 0) < count THEN
        found := ARRAY(
            WITH RECURSIVE lanes AS (
                (SELECT r.priority, r.queue_key AS key FROM {s}.runs r, (SELECT $2, $3) AS w (flow, version) WHERE r.queue = queue_name AND r.flow = w.flow AND r.version = w.version AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch = 0
                    ORDER BY r.priority, r.queue_key LIMIT 1)
                UNION ALL
                SELECT n.priority, n.queue_key FROM lanes k CROSS JOIN LATERAL (
                    SELECT r.priority, r.queue_key FROM {s}.runs r, (SELECT $2, $3) AS w (flow, version)
                    WHERE r.queue = queue_name AND r.flow = w.flow AND r.version = w.version AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch = 0 AND (r.priority, r.queue_key) > (k.priority, k.key)
                    ORDER BY r.priority, r.queue_key LIMIT 1
                ) AS n
            )
            SELECT r.id FROM lanes k CROSS JOIN LATERAL (
                SELECT r.id FROM {s}.runs r, (SELECT $2, $3) AS w (flow, version)
                WHERE r.queue = queue_name AND r.flow = w.flow AND r.version = w.version AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch = 0 AND r.priority = k.priority AND r.queue_key BETWEEN k.key AND k.key AND r.format <= newest ORDER BY r.queue_key, r.id LIMIT count
            ) AS r WHERE NOT full_keys ? k.key ORDER BY r.id LIMIT count);
    END IF;
    RETURN QUERY SELECT * FROM {s}.runs r WHERE r.id = ANY (found) AND r.worker IS NULL
        ORDER BY r.id FOR UPDATE SKIP LOCKED;
END $$
;

CREATE FUNCTION {s}.lane_keys_v2(
    queue_name text, flow text, version text, level bigint, last text, count bigint,
    full_keys jsonb
) RETURNS text[] LANGUAGE plpgsql {probing} AS $$
DECLARE
    key text := last;
    found text[] := '{}';
    has_wrapped boolean := false;
BEGIN
    WHILE cardinality(found) < count LOOP
        IF key IS NULL THEN
            SELECT min(r.queue_key) INTO key FROM {s}.runs r, (SELECT $2, $3) AS w (flow, version)
                WHERE r.queue = queue_name AND r.flow = w.flow AND r.version = w.version AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch = 0 AND r.priority = level;
        ELSE
            key := (SELECT r.queue_key FROM {s}.runs r, (SELECT $2, $3) AS w (flow, version)
                WHERE r.queue = queue_name AND r.flow = w.flow AND r.version = w.version AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch = 0 AND r.priority = level AND r.queue_key > key
                ORDER BY r.queue_key LIMIT 1);
        END IF;
        IF key IS NULL OR (has_wrapped AND key > last) THEN
            EXIT WHEN has_wrapped;
            has_wrapped := true;
            key := NULL;
        ELSIF NOT full_keys ? key THEN
            found := found || key;
        END IF;
    END LOOP;
    RETURN found;
END $$
;

CREATE FUNCTION {s}.queued_v2(
    flows text[], versions text[], newest bigint, names text[], asker text,
    turn_queues text[], turn_keys text[], turns bigint[], at bigint, count bigint
) RETURNS SETOF {s}.runs LANGUAGE plpgsql {probing} AS $$
DECLARE
    instant CONSTANT bigint := {s}.now_v1(at);
    queue_name text;
    q {s}.queues%ROWTYPE;
    w record;
    room bigint;
    level bigint;
    taken bigint;
    more bigint;
    keys text[];
    full_keys jsonb;
BEGIN
    FOREACH queue_name IN ARRAY {s}.queue_names_v1(names) LOOP
        SELECT * INTO q FROM {s}.queues x WHERE x.name = queue_name;
        room := least(count,
            q.concurrency - (SELECT count(*) FROM {s}.runs h
                WHERE q.concurrency IS NOT NULL AND h.queue = queue_name AND h.worker IS NOT NULL AND h.queue <> 'default'),
            q.per_worker - (SELECT count(*) FROM {s}.runs h
                WHERE q.per_worker IS NOT NULL AND h.queue = queue_name AND h.worker IS NOT NULL AND h.queue <> 'default'
                AND h.worker = asker));
        CONTINUE WHEN room <= 0;
        full_keys := CASE WHEN q.per_key IS NULL THEN '{}' ELSE coalesce((
            SELECT jsonb_object_agg(f.key, 1) FROM unnest(ARRAY(SELECT h.queue_key FROM {s}.runs h
            WHERE q.per_key IS NOT NULL AND h.queue = queue_name AND h.worker IS NOT NULL AND h.queue <> 'default' AND h.queue_key <> ''
            GROUP BY h.queue_key HAVING count(*) >= q.per_key)) AS f (key)
        ), '{}') END;
        FOR w IN SELECT * FROM unnest(flows, versions) AS w (flow, version) LOOP
            RETURN QUERY SELECT * FROM {s}.runs r
                WHERE r.queue = queue_name AND r.flow = w.flow AND r.version = w.version AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch > 0 AND r.wake_at <= instant
                AND r.format <= newest AND NOT full_keys ? r.queue_key
                ORDER BY r.wake_at LIMIT room FOR UPDATE SKIP LOCKED;
            RETURN QUERY SELECT * FROM {s}.runs r
                WHERE r.queue = queue_name AND r.flow = w.flow AND r.version = w.version AND coalesce(r.worker, '') = '' AND r.ended_at IS NULL
                AND r.posted <> r.consumed AND r.format <= newest
                AND NOT full_keys ? r.queue_key LIMIT room FOR UPDATE SKIP LOCKED;
            taken := 0;
            level := -2147483648;
            IF coalesce(q.turn, turns[array_position(turn_queues, queue_name)], 0) % 8
                + room >= 8
            THEN
                IF full_keys = '{}' THEN
                    RETURN QUERY SELECT * FROM {s}.runs r WHERE r.format <= newest AND r.queue = queue_name AND r.flow = w.flow AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch = 0 AND r.version BETWEEN w.version AND w.version ORDER BY r.version, r.id
                        LIMIT 1 + room / 8 FOR UPDATE SKIP LOCKED;
                ELSE
                    RETURN QUERY SELECT * FROM {s}.oldest_v1(
                        queue_name, w.flow, w.version, newest, full_keys, 1 + room / 8);
                END IF;
            END IF;
            WHILE taken < room LOOP
                level := (SELECT r.priority FROM {s}.runs r WHERE r.queue = queue_name AND r.flow = w.flow AND r.version = w.version AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch = 0 AND r.priority > level
                    ORDER BY r.priority LIMIT 1);
                EXIT WHEN level IS NULL;
                keys := {s}.lane_keys_v2(queue_name, w.flow, w.version, level,
                    coalesce(q.turn_key, turn_keys[array_position(turn_queues, queue_name)], ''),
                    room, full_keys);
                more := 1 + room / greatest(1, cardinality(keys));
                RETURN QUERY SELECT r.* FROM unnest(keys) AS k (key) CROSS JOIN LATERAL (
                    SELECT * FROM {s}.runs r WHERE r.queue = queue_name AND r.flow = w.flow AND r.version = w.version AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch = 0 AND r.priority = level
                    AND r.queue_key BETWEEN k.key AND k.key AND r.format <= newest ORDER BY r.queue_key, r.id LIMIT more FOR UPDATE SKIP LOCKED
                ) AS r;
                GET DIAGNOSTICS more = ROW_COUNT;
                taken := taken + more;
            END LOOP;
        END LOOP;
    END LOOP;
END $$
;
