-- Schema 9: letters and outcomes are in envelopes.

CREATE OR REPLACE FUNCTION {s}.consume_v1(mail_runs text[], mail_ids text[])
RETURNS void LANGUAGE sql {probing} AS $$
    WITH gone AS (
        UPDATE {s}.mail m SET body = NULL FROM (
            SELECT DISTINCT n.run_id, n.mail_id
            FROM unnest(mail_runs, mail_ids) AS n (run_id, mail_id)
        ) AS n
        WHERE m.run_id = n.run_id AND m.mail_id = n.mail_id AND m.body IS NOT NULL
        RETURNING m.run_id
    )
    UPDATE {s}.runs r SET consumed = least(r.posted, r.consumed + c.count)
    FROM (SELECT gone.run_id, count(*) FROM gone GROUP BY 1) AS c WHERE r.run_id = c.run_id
$$
;
DROP FUNCTION {s}.post_v1(text, text, bytea, bytea, bigint)
;

CREATE FUNCTION {s}.post_v2(
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
;
