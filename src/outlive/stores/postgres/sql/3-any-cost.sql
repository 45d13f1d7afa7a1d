-- Schema 3: a run that exceeds its queue's rate alone takes all of it.

-- The same; a run that exceeds the rate alone takes all of it.
CREATE FUNCTION {s}.admit_v2(
    run_ids text[], afters bigint[], befores bigint[], leases bigint[], takers text[], at bigint
) RETURNS bigint[] LANGUAGE plpgsql {probing} AS $$
DECLARE
    instant bigint;
    e record;
    q {s}.queues%ROWTYPE;
    keys text[];
    workers text[];
    held bigint;
    spent bigint;
BEGIN
    PERFORM 1 FROM {s}.queues x WHERE x.name = ANY (ARRAY(
        SELECT r.queue FROM unnest(run_ids, leases) AS g (run_id, lease)
        JOIN {s}.runs r ON r.run_id = g.run_id WHERE g.lease = 1 AND r.queue <> 'default'
    )) ORDER BY x.name FOR UPDATE;
    IF NOT FOUND THEN
        RETURN befores;
    END IF;
    instant := {s}.now_v1(at);
    FOR e IN
        SELECT g.place, g.taker, r.queue, r.queue_key, r.units, r.worker, r.epoch
        FROM unnest(run_ids, afters, befores, leases, takers) WITH ORDINALITY
            AS g (run_id, after, before, lease, taker, place)
        JOIN {s}.runs r ON r.run_id = g.run_id
        WHERE g.lease = 1 AND r.seq = g.after AND r.epoch = g.before
        AND EXISTS (SELECT 1 FROM {s}.queues x WHERE x.name = r.queue)
        ORDER BY r.queue, g.place
    LOOP
        IF q.name IS DISTINCT FROM e.queue THEN
            SELECT * INTO q FROM {s}.queues x WHERE x.name = e.queue;
            keys := '{}';
            workers := '{}';
            held := 0;
            IF q.concurrency IS NOT NULL THEN
                held := (SELECT count(*) FROM {s}.runs h WHERE h.queue = q.name AND h.worker IS NOT NULL AND h.queue <> 'default');
            END IF;
            IF q.rate IS NOT NULL THEN
                PERFORM {s}.spend_v1(q.name, q.rate_ms, instant, 0);
                spent := {s}.spent_v1(q.name, q.rate_ms, instant);
            END IF;
        END IF;
        IF (q.per_worker <= (
                SELECT count(*) FROM {s}.runs h
                WHERE h.queue = q.name AND h.worker IS NOT NULL AND h.queue <> 'default' AND h.worker = e.taker
            ) + cardinality(array_positions(workers, e.taker))) IS TRUE
        OR (e.worker IS NULL AND (
            (q.concurrency <= held) IS TRUE
            OR (e.queue_key <> '' AND q.per_key <= (
                    SELECT count(*) FROM {s}.runs h
                    WHERE h.queue = q.name AND h.worker IS NOT NULL AND h.queue <> 'default' AND h.queue_key = e.queue_key
                ) + cardinality(array_positions(keys, e.queue_key))) IS TRUE
            OR (e.epoch = 0 AND spent + least(e.units, q.rate) > q.rate) IS TRUE))
        THEN
            befores[e.place] := -1;
            CONTINUE;
        END IF;
        workers := workers || e.taker;
        IF e.worker IS NULL THEN
            held := held + 1;
            keys := keys || e.queue_key;
            UPDATE {s}.queues x SET turn = x.turn + 1, turn_key = CASE
                WHEN x.turn % 8 = 7 THEN x.turn_key ELSE e.queue_key END
                WHERE x.name = q.name;
            IF e.epoch = 0 AND q.rate IS NOT NULL THEN
                spent := spent + least(e.units, q.rate);
                PERFORM {s}.spend_v1(q.name, q.rate_ms, instant, least(e.units, q.rate));
            END IF;
        END IF;
    END LOOP;
    RETURN befores;
END $$
;
{commit_v3}
;
