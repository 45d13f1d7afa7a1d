-- Schema 7: deletions of any number, found by their end.

-- The same; the time is read once, so that an index finds the tombstones whose time is over. Asked
-- of each row, it was a look at all of them: 46 runs went per second without any, 3 with a million.
CREATE FUNCTION {s}.delete_v4(
    run_ids text[], seqs bigint[], digests bytea[], untils bigint[], at bigint
) RETURNS SETOF text LANGUAGE plpgsql {probing} AS $$
DECLARE
    fallen CONSTANT bigint := {s}.now_v1(at) - 7200000;
    gone text[];
    families text[];
BEGIN
    SELECT array_agg(x.run_id), array_agg(DISTINCT x.family) INTO gone, families FROM (
        SELECT r.run_id, r.family FROM unnest(run_ids, seqs) AS g (run_id, seq)
        JOIN {s}.runs r ON r.run_id = g.run_id
        WHERE r.seq = g.seq AND r.ended_at IS NOT NULL
        ORDER BY r.run_id FOR UPDATE OF r
    ) AS x;
    -- Those that were deleted before: who asks again may not have heard the answer.
    RETURN QUERY SELECT g.run_id FROM unnest(run_ids, seqs, digests) AS g (run_id, seq, digest)
        JOIN {s}.tombstones t ON t.run_id = g.run_id AND t.seq = g.seq AND t.digest = g.digest
        WHERE NOT EXISTS (SELECT 1 FROM {s}.runs r WHERE r.run_id = g.run_id);
    IF gone IS NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(x.family) FROM (
        SELECT hashtextextended(f.family, 1) AS family FROM unnest(families) AS f (family)
        ORDER BY 1
    ) AS x;
    DELETE FROM {s}.tombstones t WHERE t.run_id IN (
        SELECT o.run_id FROM {s}.tombstones o WHERE o.keep_until <= fallen
        LIMIT 100 + 2 * cardinality(gone) FOR UPDATE SKIP LOCKED
    );
    INSERT INTO {s}.tombstones AS t
        SELECT DISTINCT ON (r.run_id) r.run_id, r.seq, g.digest, r.flow, r.ended_at, g.until
        FROM unnest(run_ids, digests, untils) AS g (run_id, digest, until)
        JOIN {s}.runs r ON r.run_id = g.run_id
        WHERE r.run_id = ANY (gone) ORDER BY r.run_id
        ON CONFLICT (run_id) DO UPDATE SET seq = excluded.seq, digest = excluded.digest,
            flow = excluded.flow, ended_at = excluded.ended_at, keep_until = excluded.keep_until;
    DELETE FROM {s}.records x WHERE x.run_id = ANY (gone);
    DELETE FROM {s}.mail m WHERE m.run_id = ANY (gone);
    DELETE FROM {s}.outcomes o WHERE o.run_id = ANY (gone);
    DELETE FROM {s}.runs r WHERE r.run_id = ANY (gone);
    families := ARRAY(
        SELECT f.family FROM unnest(families) AS f (family)
        WHERE NOT EXISTS (
            SELECT 1 FROM {s}.runs r WHERE r.family = f.family AND r.family <> r.run_id
        ) AND NOT EXISTS (
            SELECT 1 FROM {s}.runs r WHERE r.run_id = f.family AND r.family = r.run_id
        )
    );
    DELETE FROM {s}.nodes n WHERE n.family = ANY (families);
    RETURN QUERY SELECT unnest(gone);
END $$
;
CREATE INDEX runs_by_end ON {s}.runs (ended_at) WHERE ended_at IS NOT NULL
;
