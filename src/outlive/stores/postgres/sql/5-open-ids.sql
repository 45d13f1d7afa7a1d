-- Schema 5: ids that an open transaction of a user holds.

-- Seqs to follow; -1, which none does, for a new run whose id is held by an open transaction. What
-- is locked for a look is let go at once: a server has only so many locks.
CREATE FUNCTION {s}.free_v1(run_ids text[], afters bigint[])
RETURNS bigint[] LANGUAGE sql VOLATILE AS $$
    SELECT array_agg(CASE
        WHEN g.after <> 0 THEN g.after
        WHEN pg_try_advisory_lock_shared(g.id) THEN
            CASE WHEN pg_advisory_unlock_shared(g.id) THEN 0 ELSE -1 END
        ELSE -1 END ORDER BY g.place)
    FROM (
        SELECT x.after, x.place, hashtextextended('{s} ' || x.run_id, 2) AS id
        FROM unnest(run_ids, afters) WITH ORDINALITY AS x (run_id, after, place)
    ) AS g
$$
;

CREATE FUNCTION {s}.commit_v4(
    run_ids text[], afters bigint[], lasts bigint[], epochs bigint[], links bytea[], bodies bytea[],
    befores bigint[], leases bigint[], takers text[], given_flow text[], given_version text[], given_format bigint[], given_status text[], given_family text[], given_started_at bigint[], given_wake_at bigint[], given_ended_at bigint[], given_queue text[], given_queue_key text[], given_priority bigint[], given_units bigint[], given_parent text[], given_tags text[], given_reason text[], given_chapter bigint[], given_chapter_link bytea[],
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
        made := {s}.make_v2(
            run_ids, afters, lasts, epochs, links, bodies, leases, takers, given_flow, given_version, given_format, given_status, given_family, given_started_at, given_wake_at, given_ended_at, given_queue, given_queue_key, given_priority, given_units, given_parent, given_tags, given_reason, given_chapter, given_chapter_link);
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
        done := made || {s}.move_v2(
            run_ids, afters, lasts, epochs, links, bodies, befores, leases, takers, given_flow, given_version, given_format, given_status, given_family, given_started_at, given_wake_at, given_ended_at, given_queue, given_queue_key, given_priority, given_units, given_parent, given_tags, given_reason, given_chapter, given_chapter_link);
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
