-- Schema 2: outcomes of transactional steps, queues with limits, families, batches of deletions.
--
-- Whoever takes runs of a queue that has limits locks the queue's row first (queues by name, and
-- before any run), then counts. The rows are few and the lock is held for one commit. Candidates are
-- found by jumps through the index: from priority to priority, from key to key.

CREATE TABLE {s}.outcomes (
    run_id text COLLATE "C" NOT NULL,
    step text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    body bytea,
    PRIMARY KEY (run_id, step)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)
;
ALTER TABLE {s}.outcomes ALTER body SET STORAGE EXTERNAL
;

CREATE FUNCTION {s}.keep_v1(
    given_run_id text, given_step text, given_seq bigint, given_epoch bigint, given_body bytea
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('outlive.attempt', true) IS DISTINCT FROM given_step || ' ' || given_seq THEN
        RAISE EXCEPTION USING ERRCODE = 'OL001', MESSAGE = 'the transaction was ended inside';
    END IF;
    INSERT INTO {s}.outcomes AS o VALUES (
        given_run_id, given_step, given_seq, given_epoch, given_body)
        ON CONFLICT (run_id, step) DO UPDATE
        SET seq = excluded.seq, epoch = excluded.epoch, body = excluded.body
        WHERE o.body IS NULL AND o.seq < excluded.seq;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'OL003', MESSAGE = 'there is an outcome, or a verdict';
    END IF;
    PERFORM 1 FROM {s}.runs r
        WHERE r.run_id = given_run_id AND r.epoch = given_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'OL002', MESSAGE = 'another driver has the run';
    END IF;
END $$
;

-- Waits for one that is being committed. The row is locked in any case, so that the answer comes
-- after a flush (and a standby's word) that covers what it says.
CREATE FUNCTION {s}.outcome_v1(
    given_run_id text, given_step text, given_seq bigint, given_epoch bigint
) RETURNS bytea LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {s}.outcomes AS o VALUES (given_run_id, given_step, given_seq, given_epoch, NULL)
        ON CONFLICT (run_id, step) DO UPDATE SET seq = greatest(o.seq, excluded.seq);
    RETURN (
        SELECT o.body FROM {s}.outcomes o WHERE o.run_id = given_run_id AND o.step = given_step);
END $$
;

CREATE FUNCTION {s}.forget_v1(run_ids text[], steps text[]) RETURNS void LANGUAGE sql AS $$
    DELETE FROM {s}.outcomes o USING unnest(run_ids, steps) AS g (run_id, step)
    WHERE o.run_id = g.run_id AND o.step = g.step
$$
;
INSERT INTO {s}.meta VALUES ('outlive.id', gen_random_uuid()::text)
;

-- What a run that is alone does all the time: no arrays and no join, so far less work.
CREATE FUNCTION {s}.append_one_v1(
    given_run_id text, given_after bigint, given_last bigint, given_epoch bigint, given_link bytea,
    given_body bytea, at bigint
) RETURNS TABLE (place bigint, seq bigint, epoch bigint, gone boolean) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
    UPDATE {s}.runs r SET seq = given_last, link = given_link
        WHERE r.run_id = given_run_id AND r.seq = given_after AND r.epoch = given_epoch;
    IF FOUND THEN
        INSERT INTO {s}.records VALUES (given_run_id, given_after + 1, given_body);
    ELSE
        RETURN QUERY SELECT * FROM {s}.refusals_v1(
            ARRAY[given_run_id], ARRAY[given_after], ARRAY[given_last], ARRAY[given_epoch],
            ARRAY[given_body], ARRAY[NULL::text], at);
    END IF;
END $$
;
ALTER TABLE {s}.runs ADD COLUMN queue_key text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN priority bigint NOT NULL DEFAULT 0, ADD COLUMN units bigint NOT NULL DEFAULT 1
;

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
;

CREATE TABLE {s}.spent (
    queue text COLLATE "C" NOT NULL,
    slice_at bigint NOT NULL,
    units bigint NOT NULL,
    PRIMARY KEY (queue, slice_at)
) WITH (fillfactor = 20)
;
DROP INDEX {s}.runs_due
;
DROP INDEX {s}.runs_with_mail
;

CREATE INDEX runs_due ON {s}.runs (flow, version, wake_at)
WHERE worker IS NULL AND ended_at IS NULL AND wake_at IS NOT NULL AND queue = 'default'
;

CREATE INDEX runs_with_mail ON {s}.runs (coalesce(worker, ''), flow, version, queue)
WHERE ended_at IS NULL AND posted <> consumed
;

CREATE INDEX runs_queued ON {s}.runs (queue, flow, version, priority, queue_key, id)
WHERE worker IS NULL AND ended_at IS NULL AND queue <> 'default' AND epoch = 0
;

CREATE INDEX runs_oldest ON {s}.runs (queue, flow, version, id, queue_key)
WHERE worker IS NULL AND ended_at IS NULL AND queue <> 'default' AND epoch = 0
;

CREATE INDEX runs_woken ON {s}.runs (queue, flow, version, wake_at)
WHERE worker IS NULL AND ended_at IS NULL AND queue <> 'default' AND epoch > 0
;

CREATE INDEX runs_held_of_queue ON {s}.runs (queue, queue_key, worker)
WHERE worker IS NOT NULL AND queue <> 'default'
;
{spent_v1}
;
{spend_v1}
;
{admit_v1}
;

-- The queues that free runs are in, by jumping from one to the next.
CREATE FUNCTION {s}.queue_names_v1(names text[])
RETURNS text[] LANGUAGE plpgsql {probing} AS $$
DECLARE
    name text := '';
    found text[] := '{}';
BEGIN
    LOOP
        name := (SELECT least(
            (SELECT r.queue FROM {s}.runs r WHERE r.queue > name AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch = 0
                ORDER BY r.queue LIMIT 1),
            (SELECT r.queue FROM {s}.runs r WHERE r.queue > name AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch > 0
                ORDER BY r.queue LIMIT 1)));
        EXIT WHEN name IS NULL;
        IF names IS NULL OR name = ANY (names) THEN
            found := found || name;
        END IF;
    END LOOP;
    RETURN found;
END $$
;
{lane_keys_v1}
;

-- Free runs of queues: some of each priority and key, no more than there is room for.
CREATE FUNCTION {s}.queued_v1(
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
    full_keys text[];
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
        full_keys := ARRAY(SELECT h.queue_key FROM {s}.runs h
            WHERE q.per_key IS NOT NULL AND h.queue = queue_name AND h.worker IS NOT NULL AND h.queue <> 'default' AND h.queue_key <> ''
            GROUP BY h.queue_key HAVING count(*) >= q.per_key);
        FOR w IN SELECT * FROM unnest(flows, versions) AS w (flow, version) LOOP
            RETURN QUERY SELECT * FROM {s}.runs r
                WHERE r.queue = queue_name AND r.flow = w.flow AND r.version = w.version AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch > 0 AND r.wake_at <= instant
                AND r.format <= newest AND r.queue_key <> ALL (full_keys)
                ORDER BY r.wake_at LIMIT room FOR UPDATE SKIP LOCKED;
            RETURN QUERY SELECT * FROM {s}.runs r
                WHERE r.queue = queue_name AND r.flow = w.flow AND r.version = w.version AND coalesce(r.worker, '') = '' AND r.ended_at IS NULL
                AND r.posted <> r.consumed AND r.format <= newest
                AND r.queue_key <> ALL (full_keys) LIMIT room FOR UPDATE SKIP LOCKED;
            taken := 0;
            level := -2147483648;
            IF coalesce(q.turn, turns[array_position(turn_queues, queue_name)], 0) % 8
                + room >= 8
            THEN
                RETURN QUERY SELECT * FROM {s}.runs r WHERE r.queue = queue_name AND r.flow = w.flow AND r.version = w.version AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch = 0 AND r.format <= newest
                    AND r.queue_key <> ALL (full_keys)
                    ORDER BY r.id LIMIT 1 + room / 8 FOR UPDATE SKIP LOCKED;
            END IF;
            WHILE taken < room LOOP
                level := (SELECT r.priority FROM {s}.runs r WHERE r.queue = queue_name AND r.flow = w.flow AND r.version = w.version AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch = 0 AND r.priority > level
                    ORDER BY r.priority LIMIT 1);
                EXIT WHEN level IS NULL;
                keys := {s}.lane_keys_v1(queue_name, w.flow, w.version, level,
                    coalesce(q.turn_key, turn_keys[array_position(turn_queues, queue_name)], ''),
                    room, full_keys);
                more := 1 + room / greatest(1, cardinality(keys));
                RETURN QUERY SELECT r.* FROM unnest(keys) AS k (key) CROSS JOIN LATERAL (
                    SELECT * FROM {s}.runs r WHERE r.queue = queue_name AND r.flow = w.flow AND r.version = w.version AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch = 0 AND r.priority = level
                    AND r.queue_key = k.key AND r.format <= newest ORDER BY r.id LIMIT more FOR UPDATE SKIP LOCKED
                ) AS r;
                GET DIAGNOSTICS more = ROW_COUNT;
                taken := taken + more;
            END LOOP;
        END LOOP;
    END LOOP;
END $$
;

-- What is held and spent of every queue that has limits.
CREATE FUNCTION {s}.loads_v1(at bigint) RETURNS TABLE (
    name text, concurrency bigint, per_key bigint, per_worker bigint, rate bigint, rate_ms bigint,
    turn bigint, turn_key text, spent bigint, is_waited boolean,
    queue_key text, worker text, held bigint
) LANGUAGE plpgsql {probing} AS $$
DECLARE
    instant CONSTANT bigint := {s}.now_v1(at);
BEGIN
    RETURN QUERY SELECT q.name, q.concurrency, q.per_key, q.per_worker, q.rate, q.rate_ms,
        q.turn, q.turn_key,
        CASE WHEN q.rate IS NOT NULL THEN {s}.spent_v1(q.name, q.rate_ms, instant) ELSE 0 END,
        EXISTS (SELECT 1 FROM {s}.runs r WHERE r.queue = q.name AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch = 0)
            OR EXISTS (
                SELECT 1 FROM {s}.runs r WHERE r.queue = q.name AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch > 0),
        h.queue_key, h.worker, h.count
    FROM {s}.queues q LEFT JOIN LATERAL (
        SELECT h.queue_key, h.worker, count(*) FROM {s}.runs h
        WHERE h.queue = q.name AND h.worker IS NOT NULL AND h.queue <> 'default' GROUP BY 1, 2
    ) AS h ON true;
END $$
;

-- The limits that hold afterwards. What was spent in slices of another length counts as spent now.
CREATE FUNCTION {s}.set_queue_v1(
    given text, new_concurrency bigint, new_per_key bigint, new_per_worker bigint, new_rate bigint,
    new_rate_ms bigint, replaces boolean, at bigint
) RETURNS SETOF {s}.queues LANGUAGE plpgsql {probing} AS $$
DECLARE
    q {s}.queues%ROWTYPE;
    before bigint;
BEGIN
    INSERT INTO {s}.queues VALUES (given, new_concurrency, new_per_key, new_per_worker, new_rate,
        new_rate_ms) ON CONFLICT (name) DO NOTHING;
    SELECT * INTO q FROM {s}.queues x WHERE x.name = given FOR UPDATE;
    IF replaces THEN
        UPDATE {s}.queues x SET concurrency = new_concurrency, per_key = new_per_key,
            per_worker = new_per_worker, rate = new_rate, rate_ms = new_rate_ms
            WHERE x.name = given;
        IF q.rate_ms <> new_rate_ms THEN
            WITH gone AS (DELETE FROM {s}.spent x WHERE x.queue = given RETURNING x.units)
            SELECT coalesce(sum(gone.units), 0) INTO before FROM gone;
            PERFORM {s}.spend_v1(given, new_rate_ms, {s}.now_v1(at), before);
        END IF;
    END IF;
    RETURN QUERY SELECT * FROM {s}.queues x WHERE x.name = given;
END $$
;

-- Seqs to follow; -1, which none does, for an entry that joins a run which is not there.
CREATE FUNCTION {s}.join_v1(afters bigint[], joins text[])
RETURNS bigint[] LANGUAGE plpgsql {probing} AS $$
DECLARE
    there text[];
BEGIN
    SELECT array_agg(x.run_id) INTO there FROM (
        SELECT r.run_id FROM {s}.runs r WHERE r.run_id = ANY (joins)
        ORDER BY r.run_id FOR KEY SHARE
    ) AS x;
    RETURN ARRAY(
        SELECT CASE WHEN g.joined IS NULL OR g.joined = ANY (there) THEN g.after ELSE -1 END
        FROM unnest(afters, joins) WITH ORDINALITY AS g (after, joined, place) ORDER BY g.place
    );
END $$
;

CREATE FUNCTION {s}.hold_families_v1(run_ids text[])
RETURNS void LANGUAGE plpgsql {probing} AS $$
BEGIN
    -- In the order in which those who delete take them.
    PERFORM pg_advisory_xact_lock_shared(f.family) FROM (
        SELECT DISTINCT hashtextextended(r.family, 1) AS family FROM {s}.runs r
        WHERE r.run_id = ANY (run_ids) ORDER BY 1
    ) AS f;
END $$
;

CREATE FUNCTION {s}.is_alive_v1(given_family text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM {s}.runs r WHERE r.family = given_family AND r.family <> r.run_id
    ) OR EXISTS (
        SELECT 1 FROM {s}.runs r WHERE r.run_id = given_family AND r.family = r.run_id
    )
$$
;

CREATE FUNCTION {s}.drop_family_v1(given_family text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(given_family, 1));
    IF {s}.is_alive_v1(given_family) THEN
        RETURN false;
    END IF;
    DELETE FROM {s}.nodes n WHERE n.family = given_family;
    RETURN true;
END $$
;

CREATE FUNCTION {s}.make_v2(
    run_ids text[], afters bigint[], lasts bigint[], epochs bigint[], links bytea[], bodies bytea[],
    leases bigint[], takers text[], given_flow text[], given_version text[], given_format bigint[], given_status text[], given_family text[], given_started_at bigint[], given_wake_at bigint[], given_ended_at bigint[], given_queue text[], given_queue_key text[], given_priority bigint[], given_units bigint[], given_parent text[], given_tags text[], given_reason text[], given_chapter bigint[], given_chapter_link bytea[]
) RETURNS text[] LANGUAGE plpgsql {hashing} AS $$
DECLARE
    done text[];
BEGIN
    WITH g AS (
        -- Numbers in the order of the batch, rows (and so locks) in that of their ids.
        SELECT nextval('{s}.runs_id_seq') AS id, g.* FROM unnest(
                run_ids, afters, lasts, epochs, links, bodies, leases, takers, given_flow, given_version, given_format, given_status, given_family, given_started_at, given_wake_at, given_ended_at, given_queue, given_queue_key, given_priority, given_units, given_parent, given_tags, given_reason, given_chapter, given_chapter_link)
            AS g (run_id, after, last, epoch, link, body, lease, taker, flow, version, format, status, family, started_at, wake_at, ended_at, queue, queue_key, priority, units, parent, tags, reason, chapter, chapter_link)
        WHERE g.after = 0
    ), made AS (
        INSERT INTO {s}.runs AS r (run_id, id, seq, epoch, link, worker, flow, version, format, status, family, started_at, wake_at, ended_at, queue, queue_key, priority, units, parent, tags, reason, chapter, chapter_link)
        SELECT g.run_id, g.id, g.last, g.epoch, g.link, CASE WHEN g.lease = 1 THEN g.taker END,
            g.flow, g.version, g.format, g.status, g.family, g.started_at, g.wake_at, g.ended_at, g.queue, g.queue_key, g.priority, g.units, g.parent, g.tags, g.reason, g.chapter, g.chapter_link
        FROM g ORDER BY g.run_id
        ON CONFLICT (run_id) DO NOTHING RETURNING r.run_id
    ), kept AS (
        INSERT INTO {s}.records AS x SELECT g.run_id, 1, g.body FROM g JOIN made USING (run_id)
        RETURNING x.run_id
    )
    SELECT array_agg(k.run_id) INTO done FROM kept k;
    RETURN done;
END $$
;

CREATE FUNCTION {s}.move_v2(
    run_ids text[], afters bigint[], lasts bigint[], epochs bigint[], links bytea[], bodies bytea[],
    befores bigint[], leases bigint[], takers text[], given_flow text[], given_version text[], given_format bigint[], given_status text[], given_family text[], given_started_at bigint[], given_wake_at bigint[], given_ended_at bigint[], given_queue text[], given_queue_key text[], given_priority bigint[], given_units bigint[], given_parent text[], given_tags text[], given_reason text[], given_chapter bigint[], given_chapter_link bytea[]
) RETURNS text[] LANGUAGE plpgsql {probing} AS $$
DECLARE
    done text[];
BEGIN
    WITH moved AS (
        UPDATE {s}.runs r SET seq = g.last, epoch = g.epoch, link = g.link,
            worker = CASE g.lease WHEN 0 THEN r.worker WHEN 1 THEN g.taker END,
            flow = CASE WHEN g.flow IS NULL THEN r.flow ELSE g.flow END,
            version = CASE WHEN g.flow IS NULL THEN r.version ELSE g.version END,
            format = CASE WHEN g.flow IS NULL THEN r.format ELSE g.format END,
            status = CASE WHEN g.flow IS NULL THEN r.status ELSE g.status END,
            family = CASE WHEN g.flow IS NULL THEN r.family ELSE g.family END,
            started_at = CASE WHEN g.flow IS NULL THEN r.started_at ELSE g.started_at END,
            wake_at = CASE WHEN g.flow IS NULL THEN r.wake_at ELSE g.wake_at END,
            ended_at = CASE WHEN g.flow IS NULL THEN r.ended_at ELSE g.ended_at END,
            queue = CASE WHEN g.flow IS NULL THEN r.queue ELSE g.queue END,
            queue_key = CASE WHEN g.flow IS NULL THEN r.queue_key ELSE g.queue_key END,
            priority = CASE WHEN g.flow IS NULL THEN r.priority ELSE g.priority END,
            units = CASE WHEN g.flow IS NULL THEN r.units ELSE g.units END,
            parent = CASE WHEN g.flow IS NULL THEN r.parent ELSE g.parent END,
            tags = CASE WHEN g.flow IS NULL THEN r.tags ELSE g.tags END,
            reason = CASE WHEN g.flow IS NULL THEN r.reason ELSE g.reason END,
            chapter = CASE WHEN g.flow IS NULL THEN r.chapter ELSE g.chapter END,
            chapter_link = CASE WHEN g.flow IS NULL THEN r.chapter_link ELSE g.chapter_link END
        FROM unnest(run_ids, afters, lasts, epochs, links, bodies, befores, leases, takers,
                given_flow, given_version, given_format, given_status, given_family, given_started_at, given_wake_at, given_ended_at, given_queue, given_queue_key, given_priority, given_units, given_parent, given_tags, given_reason, given_chapter, given_chapter_link)
            AS g (run_id, after, last, epoch, link, body, before, lease, taker, flow, version, format, status, family, started_at, wake_at, ended_at, queue, queue_key, priority, units, parent, tags, reason, chapter, chapter_link)
        WHERE g.after > 0 AND r.run_id = g.run_id AND r.seq = g.after AND r.epoch = g.before
        RETURNING g.run_id, g.after, g.body
    ), kept AS (
        INSERT INTO {s}.records AS x SELECT m.run_id, m.after + 1, m.body FROM moved m
        RETURNING x.run_id
    )
    SELECT array_agg(k.run_id) INTO done FROM kept k;
    RETURN done;
END $$
;
{commit_v2}
;

-- Free runs whose time has come, at most so many of each kind, the longest waiting first.
CREATE FUNCTION {s}.due_v2(flows text[], versions text[], newest bigint, at bigint, count bigint)
RETURNS SETOF {s}.runs LANGUAGE plpgsql {probing} AS $$
DECLARE
    instant CONSTANT bigint := {s}.now_v1(at);
BEGIN
    RETURN QUERY SELECT r.* FROM unnest(flows, versions) AS w (flow, version) CROSS JOIN LATERAL (
        SELECT * FROM {s}.runs r WHERE r.flow = w.flow AND r.version = w.version AND r.format <= newest AND r.queue = 'default' AND r.worker IS NULL AND r.ended_at IS NULL
            AND r.wake_at <= instant
        ORDER BY r.wake_at LIMIT count FOR UPDATE SKIP LOCKED
    ) AS r;
END $$
;

-- When the next free run gets due.
CREATE FUNCTION {s}.next_v2(flows text[], versions text[], newest bigint, names text[], at bigint)
RETURNS bigint LANGUAGE plpgsql {probing} AS $$
DECLARE
    instant CONSTANT bigint := {s}.now_v1(at);
BEGIN
    RETURN least((SELECT min(r.wake_at) FROM unnest(flows, versions) AS w (flow, version) CROSS JOIN LATERAL (
        SELECT r.wake_at FROM {s}.runs r WHERE r.flow = w.flow AND r.version = w.version AND r.format <= newest AND r.queue = 'default' AND r.worker IS NULL
            AND r.ended_at IS NULL AND r.wake_at > instant
            AND (names IS NULL OR 'default' = ANY (names))
        ORDER BY r.wake_at LIMIT 1
    ) AS r), (SELECT min(r.wake_at) FROM unnest(flows, versions) AS w (flow, version)
        CROSS JOIN unnest({s}.queue_names_v1(names)) AS n (name) CROSS JOIN LATERAL (
        SELECT r.wake_at FROM {s}.runs r WHERE r.flow = w.flow AND r.version = w.version AND r.format <= newest AND r.queue = n.name
            AND r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default' AND r.epoch > 0
            AND r.wake_at > instant
        ORDER BY r.wake_at LIMIT 1
    ) AS r));
END $$
;

-- Free runs with mail.
CREATE FUNCTION {s}.mailed_v2(flows text[], versions text[], newest bigint, count bigint)
RETURNS SETOF {s}.runs LANGUAGE plpgsql {probing} AS $$
BEGIN
    RETURN QUERY SELECT r.* FROM unnest(flows, versions) AS w (flow, version) CROSS JOIN LATERAL (
        SELECT * FROM {s}.runs r WHERE r.flow = w.flow AND r.version = w.version AND r.format <= newest AND r.queue = 'default' AND coalesce(r.worker, '') = ''
            AND r.ended_at IS NULL AND r.posted <> r.consumed
        LIMIT count FOR UPDATE SKIP LOCKED
    ) AS r;
END $$
;

-- Runs that these workers hold.
CREATE FUNCTION {s}.left_v2(flows text[], versions text[], newest bigint, names text[], holders text[], count bigint)
RETURNS SETOF {s}.runs LANGUAGE plpgsql {probing} AS $$
BEGIN
    RETURN QUERY SELECT r.* FROM unnest(flows, versions) AS w (flow, version) CROSS JOIN LATERAL (
        SELECT * FROM {s}.runs r WHERE r.flow = w.flow AND r.version = w.version AND r.format <= newest AND r.worker = ANY (holders)
            AND r.ended_at IS NULL AND (names IS NULL OR r.queue = ANY (names))
        LIMIT count FOR UPDATE SKIP LOCKED
    ) AS r;
END $$
;
{delete_v2}
;
