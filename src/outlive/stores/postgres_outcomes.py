"""Outcomes of transactional steps in PostgreSQL: kept in the user's transaction, for a while.

``keep_v1`` is called last in that transaction, in one message with its COMMIT. It takes the outcome
in, unless one is there or a later look said that there is none; then it holds the epoch: by a lock
that the claim of a run has to wait for, and that is refused once there was one. Its holder waits
for nothing any more, so nobody waits for long. ``outcome_v1`` leaves a row with no outcome where
there is none: an earlier attempt that is still on its way finds it, and is refused.
"""

from __future__ import annotations

#: What ``keep_v1`` raises: the body ended the transaction; another epoch; it is too late.
NOT_OURS, FENCED, TOO_LATE = "OL001", "OL002", "OL003"
#: The name of a setting of the transaction that says for which attempt it was begun.
MARK = "outlive.attempt"

_TABLE = """
CREATE TABLE {s}.outcomes (
    run_id text COLLATE "C" NOT NULL,
    step text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    body bytea,
    PRIMARY KEY (run_id, step)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)
"""

_KEEP = f"""
CREATE FUNCTION {{s}}.keep_v1(
    given_run_id text, given_step text, given_seq bigint, given_epoch bigint, given_body bytea
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('{MARK}', true) IS DISTINCT FROM given_step || ' ' || given_seq THEN
        RAISE EXCEPTION USING ERRCODE = '{NOT_OURS}', MESSAGE = 'the transaction was ended inside';
    END IF;
    INSERT INTO {{s}}.outcomes AS o VALUES (
        given_run_id, given_step, given_seq, given_epoch, given_body)
        ON CONFLICT (run_id, step) DO UPDATE
        SET seq = excluded.seq, epoch = excluded.epoch, body = excluded.body
        WHERE o.body IS NULL AND o.seq < excluded.seq;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '{TOO_LATE}', MESSAGE = 'there is an outcome, or a verdict';
    END IF;
    PERFORM 1 FROM {{s}}.runs r
        WHERE r.run_id = given_run_id AND r.epoch = given_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '{FENCED}', MESSAGE = 'another driver has the run';
    END IF;
END $$
"""

#: Waits for one that is being committed. The row is locked in any case, so that the answer comes
#: after a flush (and a standby's word) that covers what it says.
_OUTCOME = """
CREATE FUNCTION {s}.outcome_v1(
    given_run_id text, given_step text, given_seq bigint, given_epoch bigint
) RETURNS bytea LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {s}.outcomes AS o VALUES (given_run_id, given_step, given_seq, given_epoch, NULL)
        ON CONFLICT (run_id, step) DO UPDATE SET seq = greatest(o.seq, excluded.seq);
    RETURN (
        SELECT o.body FROM {s}.outcomes o WHERE o.run_id = given_run_id AND o.step = given_step);
END $$
"""

_FORGET = """
CREATE FUNCTION {s}.forget_v1(run_ids text[], steps text[]) RETURNS void LANGUAGE sql AS $$
    DELETE FROM {s}.outcomes o USING unnest(run_ids, steps) AS g (run_id, step)
    WHERE o.run_id = g.run_id AND o.step = g.step
$$
"""

OUTCOMES = (
    _TABLE,
    "ALTER TABLE {s}.outcomes ALTER body SET STORAGE EXTERNAL",
    _KEEP,
    _OUTCOME,
    _FORGET,
    "INSERT INTO {s}.meta VALUES ('outlive.id', gen_random_uuid()::text)",
)
