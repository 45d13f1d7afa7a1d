-- Schema 10: runs are found by what they are, and what moved is found by who moved it.
--
-- Every index that ends with (started_at, id) lists its runs in the order of their starts. A run that
-- is held and running, as most are until they complete, is in no index of statuses. Conditions of
-- partial indexes are repeated to the letter by whoever goes by them (stores/plans.py).

ALTER TABLE {s}.runs ADD COLUMN error text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN published text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN questions text COLLATE "C" NOT NULL DEFAULT ''
;
-- What runs of earlier releases ask only their journals know.
UPDATE {s}.runs SET questions = '?' WHERE {is_run} AND ended_at IS NULL
;
ALTER TABLE {s}.workers ADD COLUMN about text COLLATE "C" NOT NULL DEFAULT ''
;

CREATE TABLE {s}.tags (
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    run bigint NOT NULL,
    status text COLLATE "C" NOT NULL,
    PRIMARY KEY (name, value, started_at, run)
)
;
CREATE INDEX tags_by_status ON {s}.tags (name, value, status, started_at, run) WHERE status <> ''
;

-- How a tag is indexed: its first characters, without NUL. Who finds a run by its tags compares the
-- tags themselves.
CREATE FUNCTION {s}.tags_of_v1(tags text) RETURNS TABLE (name text, value text) LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN QUERY SELECT DISTINCT left(t.key, 200), left(t.value, 200)
        FROM json_each_text(replace(tags, E'\\u0000', E'\\ufffd')::json) AS t WHERE t.value IS NOT NULL;
EXCEPTION WHEN data_exception THEN
    RETURN;
END $$
;

CREATE FUNCTION {s}.keep_tags_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM {s}.tags t USING {s}.tags_of_v1(OLD.tags) AS o
            WHERE t.name = o.name AND t.value = o.value AND t.started_at = OLD.started_at
            AND t.run = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO {s}.tags SELECT n.name, n.value, NEW.started_at, NEW.id,
            CASE WHEN (NEW.status = 'completed' OR NEW.status = 'running') THEN '' ELSE NEW.status END
            FROM {s}.tags_of_v1(NEW.tags) AS n ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$
;
INSERT INTO {s}.tags SELECT t.name, t.value, r.started_at, r.id, CASE WHEN (r.status = 'completed' OR r.status = 'running') THEN '' ELSE r.status END FROM {s}.runs r CROSS JOIN LATERAL {s}.tags_of_v1(r.tags) AS t WHERE r.tags <> '{}' ON CONFLICT DO NOTHING
;
CREATE TRIGGER tags_of_new AFTER INSERT ON {s}.runs FOR EACH ROW WHEN (NEW.tags <> '{}') EXECUTE FUNCTION {s}.keep_tags_v1()
;

CREATE TRIGGER tags_of_moved AFTER UPDATE OF tags, status ON {s}.runs FOR EACH ROW
WHEN ((NEW.tags <> '{}' OR OLD.tags <> '{}') AND (NEW.tags <> OLD.tags OR NEW.status <> OLD.status
    AND NOT ((NEW.status = 'completed' OR NEW.status = 'running')
        AND (OLD.status = 'completed' OR OLD.status = 'running'))))
EXECUTE FUNCTION {s}.keep_tags_v1()
;
CREATE TRIGGER tags_of_gone AFTER DELETE ON {s}.runs FOR EACH ROW WHEN (OLD.tags <> '{}') EXECUTE FUNCTION {s}.keep_tags_v1()
;
CREATE INDEX runs_by_start ON {s}.runs (started_at, id) WHERE {is_run}
;
CREATE INDEX runs_of_flow ON {s}.runs (flow, started_at, id) WHERE {is_run}
;
CREATE INDEX runs_of_version ON {s}.runs (version, started_at, id) WHERE {is_run}
;
CREATE INDEX runs_of_status ON {s}.runs (status, started_at, id) WHERE {is_listed}
;
CREATE INDEX runs_of_flow_by_status ON {s}.runs (flow, status, started_at, id) WHERE {is_listed}
;
CREATE INDEX runs_of_parent ON {s}.runs (parent, started_at, id) WHERE {has_parent}
;
CREATE INDEX runs_of_queue ON {s}.runs (queue, started_at, id) WHERE {is_queued}
;
CREATE INDEX runs_of_error ON {s}.runs (error, started_at, id) WHERE {has_error}
;
CREATE INDEX runs_asking ON {s}.runs (started_at, id) WHERE {is_asking}
;

-- Which transaction wrote a record: what has become visible between two looks is found by it,
-- whatever the order in which transactions end. Records of earlier releases have none. The index
-- only knows which pages hold which numbers: an append changes nothing in it.
ALTER TABLE {s}.records ADD COLUMN written_by bigint
;
ALTER TABLE {s}.records ALTER written_by SET DEFAULT txid_current()
;
CREATE INDEX records_by_writer ON {s}.records USING brin (written_by)
;

-- The heads that moved between two looks, each once: snapshots as texts, the runs after one.
CREATE FUNCTION {s}.moved_v1(since text, until text, after text, count bigint)
RETURNS SETOF text LANGUAGE plpgsql {probing} AS $$
BEGIN
    RETURN QUERY SELECT DISTINCT x.run_id FROM {s}.records x
        WHERE x.written_by >= txid_snapshot_xmin(since::txid_snapshot)
        AND x.written_by < txid_snapshot_xmax(until::txid_snapshot)
        AND NOT txid_visible_in_snapshot(x.written_by, since::txid_snapshot)
        AND txid_visible_in_snapshot(x.written_by, until::txid_snapshot)
        AND x.run_id > after ORDER BY 1 LIMIT count;
END $$
;

CREATE FUNCTION {s}.make_v3(
    run_ids text[], afters bigint[], lasts bigint[], epochs bigint[], links bytea[], bodies bytea[],
    leases bigint[], takers text[], given_flow text[], given_version text[], given_format bigint[], given_status text[], given_family text[], given_started_at bigint[], given_wake_at bigint[], given_ended_at bigint[], given_queue text[], given_queue_key text[], given_priority bigint[], given_units bigint[], given_parent text[], given_tags text[], given_reason text[], given_chapter bigint[], given_chapter_link bytea[], given_error text[], given_published text[], given_questions text[]
) RETURNS text[] LANGUAGE plpgsql {hashing} AS $$
DECLARE
    done text[];
BEGIN
    WITH g AS (
        -- Numbers in the order of the batch, rows (and so locks) in that of their ids.
        SELECT nextval('{s}.runs_id_seq') AS id, g.* FROM unnest(
                run_ids, afters, lasts, epochs, links, bodies, leases, takers, given_flow, given_version, given_format, given_status, given_family, given_started_at, given_wake_at, given_ended_at, given_queue, given_queue_key, given_priority, given_units, given_parent, given_tags, given_reason, given_chapter, given_chapter_link, given_error, given_published, given_questions)
            AS g (run_id, after, last, epoch, link, body, lease, taker, flow, version, format, status, family, started_at, wake_at, ended_at, queue, queue_key, priority, units, parent, tags, reason, chapter, chapter_link, error, published, questions)
        WHERE g.after = 0
    ), made AS (
        INSERT INTO {s}.runs AS r (run_id, id, seq, epoch, link, worker, flow, version, format, status, family, started_at, wake_at, ended_at, queue, queue_key, priority, units, parent, tags, reason, chapter, chapter_link, error, published, questions)
        SELECT g.run_id, g.id, g.last, g.epoch, g.link, CASE WHEN g.lease = 1 THEN g.taker END,
            g.flow, g.version, g.format, g.status, g.family, g.started_at, g.wake_at, g.ended_at, g.queue, g.queue_key, g.priority, g.units, g.parent, g.tags, g.reason, g.chapter, g.chapter_link, g.error, g.published, g.questions
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

CREATE FUNCTION {s}.move_v3(
    run_ids text[], afters bigint[], lasts bigint[], epochs bigint[], links bytea[], bodies bytea[],
    befores bigint[], leases bigint[], takers text[], given_flow text[], given_version text[], given_format bigint[], given_status text[], given_family text[], given_started_at bigint[], given_wake_at bigint[], given_ended_at bigint[], given_queue text[], given_queue_key text[], given_priority bigint[], given_units bigint[], given_parent text[], given_tags text[], given_reason text[], given_chapter bigint[], given_chapter_link bytea[], given_error text[], given_published text[], given_questions text[]
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
            chapter_link = CASE WHEN g.flow IS NULL THEN r.chapter_link ELSE g.chapter_link END,
            error = CASE WHEN g.flow IS NULL THEN r.error ELSE g.error END,
            published = CASE WHEN g.flow IS NULL THEN r.published ELSE g.published END,
            questions = CASE WHEN g.flow IS NULL THEN r.questions ELSE g.questions END
        FROM unnest(run_ids, afters, lasts, epochs, links, bodies, befores, leases, takers,
                given_flow, given_version, given_format, given_status, given_family, given_started_at, given_wake_at, given_ended_at, given_queue, given_queue_key, given_priority, given_units, given_parent, given_tags, given_reason, given_chapter, given_chapter_link, given_error, given_published, given_questions)
            AS g (run_id, after, last, epoch, link, body, before, lease, taker, flow, version, format, status, family, started_at, wake_at, ended_at, queue, queue_key, priority, units, parent, tags, reason, chapter, chapter_link, error, published, questions)
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

CREATE FUNCTION {s}.commit_v5(
    run_ids text[], afters bigint[], lasts bigint[], epochs bigint[], links bytea[], bodies bytea[],
    befores bigint[], leases bigint[], takers text[], given_flow text[], given_version text[], given_format bigint[], given_status text[], given_family text[], given_started_at bigint[], given_wake_at bigint[], given_ended_at bigint[], given_queue text[], given_queue_key text[], given_priority bigint[], given_units bigint[], given_parent text[], given_tags text[], given_reason text[], given_chapter bigint[], given_chapter_link bytea[], given_error text[], given_published text[], given_questions text[],
    node_runs text[], addresses bytea[], nodes bytea[], mail_runs text[], mail_ids text[],
    joins text[], at bigint, gated boolean
) RETURNS TABLE (place bigint, seq bigint, epoch bigint, gone boolean) LANGUAGE plpgsql {hashing} AS $$
DECLARE
    made text[];
    buried text[];
    done text[];
    min_after CONSTANT bigint := (SELECT min(a) FROM unnest(afters) AS a);
    max_after CONSTANT bigint := (SELECT max(a) FROM unnest(afters) AS a);
    asked CONSTANT bigint[] := afters;
BEGIN
    IF gated THEN
        befores := {s}.admit_v2(run_ids, afters, befores, leases, takers, at);
    END IF;
    IF min_after = 0 THEN
        afters := {s}.free_v1(run_ids, afters);
        IF cardinality(array_remove(joins, NULL)) > 0 THEN
            afters := {s}.join_v1(afters, joins);
        END IF;
        made := {s}.make_v3(
            run_ids, afters, lasts, epochs, links, bodies, leases, takers, given_flow, given_version, given_format, given_status, given_family, given_started_at, given_wake_at, given_ended_at, given_queue, given_queue_key, given_priority, given_units, given_parent, given_tags, given_reason, given_chapter, given_chapter_link, given_error, given_published, given_questions);
    END IF;
    -- After the insert, so that a deletion that it had to wait for is seen.
    IF made IS NOT NULL THEN
        SELECT array_agg(t.run_id) INTO buried FROM {s}.tombstones t
            WHERE t.run_id = ANY (made) AND t.keep_until > {s}.now_v1(at);
        IF buried IS NOT NULL THEN
            DELETE FROM {s}.records x WHERE x.run_id = ANY (buried);
            DELETE FROM {s}.runs r WHERE r.run_id = ANY (buried);
            made := ARRAY(SELECT unnest(made) EXCEPT SELECT unnest(buried));
        END IF;
    END IF;

    IF max_after > 0 THEN
        done := made || {s}.move_v3(
            run_ids, afters, lasts, epochs, links, bodies, befores, leases, takers, given_flow, given_version, given_format, given_status, given_family, given_started_at, given_wake_at, given_ended_at, given_queue, given_queue_key, given_priority, given_units, given_parent, given_tags, given_reason, given_chapter, given_chapter_link, given_error, given_published, given_questions);
    ELSE
        done := made;
    END IF;

    IF cardinality(node_runs) > 0 THEN
        IF made IS NOT NULL THEN
            PERFORM {s}.hold_families_v1(
                ARRAY(SELECT unnest(made) INTERSECT SELECT unnest(node_runs)));
        END IF;
        INSERT INTO {s}.nodes
        SELECT (SELECT r.family FROM {s}.runs r WHERE r.run_id = n.run_id), n.address, n.body
        FROM unnest(node_runs, addresses, nodes) AS n (run_id, address, body)
        JOIN unnest(done) AS d (run_id) USING (run_id)
        ORDER BY 1, 2 ON CONFLICT DO NOTHING;
    END IF;
    IF cardinality(mail_runs) > 0 THEN
        PERFORM {s}.consume_v1(array_agg(n.run_id), array_agg(n.mail_id))
        FROM unnest(mail_runs, mail_ids) AS n (run_id, mail_id)
        JOIN unnest(done) AS d (run_id) USING (run_id);
    END IF;
    IF coalesce(cardinality(done), 0) <> cardinality(run_ids) THEN
        RETURN QUERY SELECT * FROM {s}.refusals_v1(
            run_ids, asked, lasts, epochs, bodies, takers, at);
    END IF;
END $$
;
{enlist_v1}
;
