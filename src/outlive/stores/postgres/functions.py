"""What a commit does inside PostgreSQL: one call for a batch of any size.

The functions take arrays, one element per entry, and work on all entries at once; no run occurs
twice in one call. The fence is the WHERE clause of the one UPDATE: a run whose head is not at the
right seq and epoch is not changed, which the row's lock makes certain under any concurrency. What
belongs to an entry beside its record is written only for runs that this call moved or made.

Entries that were not accepted are looked up in the same call. Theirs heads are locked for that: an
entry that was done before is answered as done only after a flush (and a standby's word) that covers
it, and a run's answer can't change before it is given.

Plans are generic, and tables are reached by index alone: they grow by orders of magnitude during a
session, while a plan made for an empty table would stay.
"""

from __future__ import annotations

_HEADER = (
    "flow, version, format, status, family, started_at, wake_at, ended_at, queue, queue_key,"
    " priority, units, parent, tags, reason, chapter, chapter_link"
)
HEADER_TYPES = {
    "format": "bigint",
    "started_at": "bigint",
    "wake_at": "bigint",
    "ended_at": "bigint",
    "priority": "bigint",
    "units": "bigint",
    "chapter": "bigint",
    "chapter_link": "bytea",
}
HEADER_NAMES = tuple(_HEADER.split(", "))

#: Arrays are joined with one another by hashing, with tables by probing an index. Estimates would
#: say otherwise: the server takes every array for one of ten elements.
#: Each names all three ways to join, for one function is called by another.
_LOOKING_UP = "SET plan_cache_mode = force_generic_plan SET enable_seqscan = off"
_INDEXED = f"{_LOOKING_UP} SET jit = off SET enable_mergejoin = off"
_HASHING = f"{_INDEXED} SET enable_hashjoin = on SET enable_nestloop = off"
PROBING = f"{_INDEXED} SET enable_hashjoin = off SET enable_nestloop = on"
_REFUSED = "TABLE (place bigint, seq bigint, epoch bigint, gone boolean)"

#: Milliseconds since 1970: the server's clock, unless a test says otherwise.
_NOW = """
CREATE FUNCTION {s}.now_v1(at bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(at, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$
"""

_REFUSALS = f"""
CREATE FUNCTION {{s}}.refusals_v1(
    run_ids text[], afters bigint[], lasts bigint[], epochs bigint[], bodies bytea[],
    takers text[], at bigint
) RETURNS {_REFUSED} LANGUAGE plpgsql {PROBING} AS $$
BEGIN
    PERFORM 1 FROM {{s}}.runs r WHERE r.run_id = ANY (run_ids)
        ORDER BY r.run_id FOR NO KEY UPDATE;
    RETURN QUERY
        SELECT g.place, coalesce(r.seq, t.seq, 0), coalesce(r.epoch, 0), t.run_id IS NOT NULL
        FROM unnest(run_ids, afters, lasts, epochs, bodies, takers) WITH ORDINALITY
            AS g (run_id, after, last, epoch, body, taker, place)
        LEFT JOIN {{s}}.runs r ON r.run_id = g.run_id
        LEFT JOIN {{s}}.records x ON x.run_id = g.run_id AND x.seq = g.after + 1
        LEFT JOIN {{s}}.tombstones t
            ON t.run_id = g.run_id AND r.run_id IS NULL AND t.keep_until > {{s}}.now_v1(at)
        WHERE NOT coalesce(
            r.seq >= g.last AND r.epoch = g.epoch AND x.body = g.body
            AND (g.taker IS NULL OR r.worker IS NULL OR r.worker = g.taker), false);
END $$
"""

_APPEND = f"""
CREATE FUNCTION {{s}}.append_v1(
    run_ids text[], afters bigint[], lasts bigint[], epochs bigint[], links bytea[], bodies bytea[],
    at bigint
) RETURNS {_REFUSED} LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    moved bigint;
BEGIN
    WITH moved AS (
        UPDATE {{s}}.runs r SET seq = g.last, link = g.link
        FROM unnest(run_ids, afters, lasts, epochs, links, bodies)
            AS g (run_id, after, last, epoch, link, body)
        WHERE r.run_id = g.run_id AND r.seq = g.after AND r.epoch = g.epoch
        RETURNING g.run_id, g.after, g.body
    )
    INSERT INTO {{s}}.records SELECT m.run_id, m.after + 1, m.body FROM moved m;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved <> cardinality(run_ids) THEN
        RETURN QUERY SELECT * FROM {{s}}.refusals_v1(
            run_ids, afters, lasts, epochs, bodies,
            array_fill(NULL::text, ARRAY[cardinality(run_ids)]), at);
    END IF;
END $$
"""

#: What a run that is alone does all the time: no arrays and no join, so far less work.
APPEND_ONE = f"""
CREATE FUNCTION {{s}}.append_one_v1(
    given_run_id text, given_after bigint, given_last bigint, given_epoch bigint, given_link bytea,
    given_body bytea, at bigint
) RETURNS {_REFUSED} LANGUAGE plpgsql {_LOOKING_UP} AS $$
BEGIN
    UPDATE {{s}}.runs r SET seq = given_last, link = given_link
        WHERE r.run_id = given_run_id AND r.seq = given_after AND r.epoch = given_epoch;
    IF FOUND THEN
        INSERT INTO {{s}}.records VALUES (given_run_id, given_after + 1, given_body);
    ELSE
        RETURN QUERY SELECT * FROM {{s}}.refusals_v1(
            ARRAY[given_run_id], ARRAY[given_after], ARRAY[given_last], ARRAY[given_epoch],
            ARRAY[given_body], ARRAY[NULL::text], at);
    END IF;
END $$
"""

#: Several appends to each of some runs: the head moves once, over all of them. Answers which runs
#: stayed where they were, with nothing written.
_CHAIN = f"""
CREATE FUNCTION {{s}}.chain_v1(
    run_ids text[], afters bigint[], lasts bigint[], epochs bigint[], links bytea[],
    record_runs text[], seqs bigint[], bodies bytea[]
) RETURNS TABLE (run_id text) LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    done text[];
BEGIN
    WITH moved AS (
        UPDATE {{s}}.runs r SET seq = g.last, link = g.link
        FROM unnest(run_ids, afters, lasts, epochs, links) AS g (run_id, after, last, epoch, link)
        WHERE r.run_id = g.run_id AND r.seq = g.after AND r.epoch = g.epoch
        RETURNING g.run_id
    )
    SELECT array_agg(m.run_id) INTO done FROM moved m;
    PERFORM {{s}}.keep_v1(done, record_runs, seqs, bodies);
    RETURN QUERY SELECT unnest(run_ids) EXCEPT SELECT unnest(done);
END $$
"""
_KEEP = f"""
CREATE FUNCTION {{s}}.keep_v1(done text[], record_runs text[], seqs bigint[], bodies bytea[])
RETURNS void LANGUAGE plpgsql {_HASHING} AS $$
BEGIN
    INSERT INTO {{s}}.records
    SELECT g.run_id, g.seq, g.body FROM unnest(record_runs, seqs, bodies) AS g (run_id, seq, body)
    JOIN unnest(done) AS d (run_id) USING (run_id);
END $$
"""

_GIVEN_TYPES = ", ".join(
    f"given_{name} {HEADER_TYPES.get(name, 'text')}[]" for name in HEADER_NAMES
)
_GIVEN = ", ".join(f"given_{name}" for name in HEADER_NAMES)
_FROM_GIVEN = ", ".join(f"g.{name}" for name in HEADER_NAMES)
_KEPT_OR_GIVEN = ",\n            ".join(
    f"{name} = CASE WHEN g.flow IS NULL THEN r.{name} ELSE g.{name} END" for name in HEADER_NAMES
)

_MAKE = f"""
CREATE FUNCTION {{s}}.make_v2(
    run_ids text[], afters bigint[], lasts bigint[], epochs bigint[], links bytea[], bodies bytea[],
    leases bigint[], takers text[], {_GIVEN_TYPES}
) RETURNS text[] LANGUAGE plpgsql {_HASHING} AS $$
DECLARE
    done text[];
BEGIN
    WITH g AS (
        -- Numbers in the order of the batch, rows (and so locks) in that of their ids.
        SELECT nextval('{{s}}.runs_id_seq') AS id, g.* FROM unnest(
                run_ids, afters, lasts, epochs, links, bodies, leases, takers, {_GIVEN})
            AS g (run_id, after, last, epoch, link, body, lease, taker, {_HEADER})
        WHERE g.after = 0
    ), made AS (
        INSERT INTO {{s}}.runs AS r (run_id, id, seq, epoch, link, worker, {_HEADER})
        SELECT g.run_id, g.id, g.last, g.epoch, g.link, CASE WHEN g.lease = 1 THEN g.taker END,
            {_FROM_GIVEN}
        FROM g ORDER BY g.run_id
        ON CONFLICT (run_id) DO NOTHING RETURNING r.run_id
    ), kept AS (
        INSERT INTO {{s}}.records AS x SELECT g.run_id, 1, g.body FROM g JOIN made USING (run_id)
        RETURNING x.run_id
    )
    SELECT array_agg(k.run_id) INTO done FROM kept k;
    RETURN done;
END $$
"""

_MOVE = f"""
CREATE FUNCTION {{s}}.move_v2(
    run_ids text[], afters bigint[], lasts bigint[], epochs bigint[], links bytea[], bodies bytea[],
    befores bigint[], leases bigint[], takers text[], {_GIVEN_TYPES}
) RETURNS text[] LANGUAGE plpgsql {PROBING} AS $$
DECLARE
    done text[];
BEGIN
    WITH moved AS (
        UPDATE {{s}}.runs r SET seq = g.last, epoch = g.epoch, link = g.link,
            worker = CASE g.lease WHEN 0 THEN r.worker WHEN 1 THEN g.taker END,
            {_KEPT_OR_GIVEN}
        FROM unnest(run_ids, afters, lasts, epochs, links, bodies, befores, leases, takers,
                {_GIVEN})
            AS g (run_id, after, last, epoch, link, body, before, lease, taker, {_HEADER})
        WHERE g.after > 0 AND r.run_id = g.run_id AND r.seq = g.after AND r.epoch = g.before
        RETURNING g.run_id, g.after, g.body
    ), kept AS (
        INSERT INTO {{s}}.records AS x SELECT m.run_id, m.after + 1, m.body FROM moved m
        RETURNING x.run_id
    )
    SELECT array_agg(k.run_id) INTO done FROM kept k;
    RETURN done;
END $$
"""

_CONSUME = f"""
CREATE OR REPLACE FUNCTION {{s}}.consume_v1(mail_runs text[], mail_ids text[])
RETURNS void LANGUAGE sql {PROBING} AS $$
    WITH gone AS (
        UPDATE {{s}}.mail m SET body = NULL FROM (
            SELECT DISTINCT n.run_id, n.mail_id
            FROM unnest(mail_runs, mail_ids) AS n (run_id, mail_id)
        ) AS n
        WHERE m.run_id = n.run_id AND m.mail_id = n.mail_id AND m.body IS NOT NULL
        RETURNING m.run_id
    )
    UPDATE {{s}}.runs r SET consumed = least(r.posted, r.consumed + c.count)
    FROM (SELECT gone.run_id, count(*) FROM gone GROUP BY 1) AS c WHERE r.run_id = c.run_id
$$
"""

#: ``leases``: 0 keeps the lease, 1 gives it to the taker, 2 frees it. ``gated``: runs of queues may
#: be taken.
_COMMIT_V2 = f"""
CREATE FUNCTION {{s}}.commit_v2(
    run_ids text[], afters bigint[], lasts bigint[], epochs bigint[], links bytea[], bodies bytea[],
    befores bigint[], leases bigint[], takers text[], {_GIVEN_TYPES},
    node_runs text[], addresses bytea[], nodes bytea[], mail_runs text[], mail_ids text[],
    joins text[], at bigint, gated boolean
) RETURNS {_REFUSED} LANGUAGE plpgsql {_HASHING} AS $$
DECLARE
    made text[];
    buried text[];
    done text[];
    min_after CONSTANT bigint := (SELECT min(a) FROM unnest(afters) AS a);
    max_after CONSTANT bigint := (SELECT max(a) FROM unnest(afters) AS a);
    asked CONSTANT bigint[] := afters;
BEGIN
    IF gated THEN
        befores := {{s}}.admit_v1(run_ids, afters, befores, leases, takers, at);
    END IF;
    IF min_after = 0 THEN
        IF cardinality(array_remove(joins, NULL)) > 0 THEN
            afters := {{s}}.join_v1(afters, joins);
        END IF;
        made := {{s}}.make_v2(
            run_ids, afters, lasts, epochs, links, bodies, leases, takers, {_GIVEN});
    END IF;
    -- After the insert, so that a deletion that it had to wait for is seen.
    IF made IS NOT NULL THEN
        SELECT array_agg(t.run_id) INTO buried FROM {{s}}.tombstones t
            WHERE t.run_id = ANY (made) AND t.keep_until > {{s}}.now_v1(at);
        IF buried IS NOT NULL THEN
            DELETE FROM {{s}}.records x WHERE x.run_id = ANY (buried);
            DELETE FROM {{s}}.runs r WHERE r.run_id = ANY (buried);
            made := ARRAY(SELECT unnest(made) EXCEPT SELECT unnest(buried));
        END IF;
    END IF;

    IF max_after > 0 THEN
        done := made || {{s}}.move_v2(
            run_ids, afters, lasts, epochs, links, bodies, befores, leases, takers, {_GIVEN});
    ELSE
        done := made;
    END IF;

    IF cardinality(node_runs) > 0 THEN
        IF made IS NOT NULL THEN
            PERFORM {{s}}.hold_families_v1(
                ARRAY(SELECT unnest(made) INTERSECT SELECT unnest(node_runs)));
        END IF;
        INSERT INTO {{s}}.nodes
        SELECT (SELECT r.family FROM {{s}}.runs r WHERE r.run_id = n.run_id), n.address, n.body
        FROM unnest(node_runs, addresses, nodes) AS n (run_id, address, body)
        JOIN unnest(done) AS d (run_id) USING (run_id)
        ORDER BY 1, 2 ON CONFLICT DO NOTHING;
    END IF;
    IF cardinality(mail_runs) > 0 THEN
        PERFORM {{s}}.consume_v1(array_agg(n.run_id), array_agg(n.mail_id))
        FROM unnest(mail_runs, mail_ids) AS n (run_id, mail_id)
        JOIN unnest(done) AS d (run_id) USING (run_id);
    END IF;
    IF coalesce(cardinality(done), 0) <> cardinality(run_ids) THEN
        RETURN QUERY SELECT * FROM {{s}}.refusals_v1(
            run_ids, asked, lasts, epochs, bodies, takers, at);
    END IF;
END $$
"""
_COMMIT_V3 = _COMMIT_V2.replace("commit_v2", "commit_v3").replace("admit_v1", "admit_v2")
_COMMIT = _COMMIT_V3.replace("commit_v3", "commit_v4").replace(
    "IF min_after = 0 THEN",
    "IF min_after = 0 THEN\n        afters := {s}.free_v1(run_ids, afters);",
)

#: Answers how, and who holds the run: whoever that is wants to know.
_POST = """
CREATE FUNCTION {s}.post_v1(
    given_run_id text, given_mail_id text, given_body bytea, given_mark bytea, at bigint
) RETURNS TABLE (answer text, holder text) LANGUAGE plpgsql AS $$
DECLARE
    run {s}.runs%ROWTYPE;
    earlier bytea;
BEGIN
    SELECT * INTO run FROM {s}.runs r WHERE r.run_id = given_run_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT CASE WHEN EXISTS (
            SELECT 1 FROM {s}.tombstones t
            WHERE t.run_id = given_run_id AND t.keep_until > {s}.now_v1(at)
        ) THEN 'ended' ELSE 'unknown' END, NULL;
        RETURN;
    END IF;
    SELECT m.mark INTO earlier FROM {s}.mail m
        WHERE m.run_id = given_run_id AND m.mail_id = given_mail_id;
    IF FOUND THEN
        -- The same mark: it is this very letter, whose answer was lost.
        RETURN QUERY SELECT CASE WHEN earlier = given_mark THEN 'posted' ELSE 'already' END,
            run.worker;
    ELSIF run.ended_at IS NOT NULL THEN
        RETURN QUERY SELECT 'ended', NULL;
    ELSE
        INSERT INTO {s}.mail (run_id, mail_id, posted_at, mark, body)
            VALUES (given_run_id, given_mail_id, {s}.now_v1(at), given_mark, given_body);
        UPDATE {s}.runs r SET posted = r.posted + 1 WHERE r.run_id = given_run_id;
        RETURN QUERY SELECT 'posted', run.worker;
    END IF;
END $$
"""

_DELETE = """
CREATE FUNCTION {s}.delete_v1(
    given_run_id text, given_seq bigint, given_digest bytea, given_until bigint, at bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    run {s}.runs%ROWTYPE;
BEGIN
    SELECT * INTO run FROM {s}.runs r WHERE r.run_id = given_run_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN EXISTS (
            SELECT 1 FROM {s}.tombstones t WHERE t.run_id = given_run_id AND t.seq = given_seq
            AND t.digest = given_digest
        );
    END IF;
    IF run.seq <> given_seq OR run.ended_at IS NULL THEN
        RETURN false;
    END IF;
    -- Of two who delete the last of a family, one must see that it is the last.
    PERFORM pg_advisory_xact_lock(hashtextextended(run.family, 1));
    DELETE FROM {s}.records x WHERE x.run_id = given_run_id;
    DELETE FROM {s}.mail m WHERE m.run_id = given_run_id;
    DELETE FROM {s}.runs r WHERE r.run_id = given_run_id;
    IF NOT EXISTS (SELECT 1 FROM {s}.runs r WHERE r.family = run.family AND r.family <> r.run_id)
        AND NOT EXISTS (
            SELECT 1 FROM {s}.runs r WHERE r.run_id = run.family AND r.family = r.run_id
        )
    THEN
        DELETE FROM {s}.nodes n WHERE n.family = run.family;
    END IF;
    DELETE FROM {s}.tombstones t WHERE t.run_id IN (
        SELECT o.run_id FROM {s}.tombstones o WHERE o.keep_until <= {s}.now_v1(at)
        LIMIT 100 FOR UPDATE SKIP LOCKED
    );
    INSERT INTO {s}.tombstones AS t
        VALUES (given_run_id, given_seq, given_digest, run.flow, run.ended_at, given_until)
        ON CONFLICT (run_id) DO UPDATE SET seq = excluded.seq, digest = excluded.digest,
            flow = excluded.flow, ended_at = excluded.ended_at, keep_until = excluded.keep_until;
    RETURN true;
END $$
"""

#: As they were when the tables were first made.
#: Since letters are in envelopes: who posts without, by the function of before, is refused.
FUNCTIONS_OF_ENVELOPES = (
    _CONSUME,
    "DROP FUNCTION {s}.post_v1(text, text, bytea, bytea, bigint)",
    _POST.replace("post_v1", "post_v2"),
)

FUNCTIONS = (_NOW, _REFUSALS, _APPEND, _KEEP, _CHAIN, _CONSUME, _POST, _DELETE)
#: Since runs have places in queues.
FUNCTIONS_OF_HEADERS = (_MAKE, _MOVE, _COMMIT_V2)
#: Since no run is too much for its queue.
FUNCTIONS_OF_ANY_COST = (_COMMIT_V3,)
#: Since nobody waits for a run that somebody begins in a transaction of their own.
FUNCTIONS_OF_OPEN_IDS = (_COMMIT,)
