-- Schema 8: limits may be nonsense.

CREATE OR REPLACE FUNCTION {s}.spent_v1(queue_name text, rate_ms bigint, instant bigint)
RETURNS bigint LANGUAGE plpgsql {probing} AS $$
DECLARE
    width CONSTANT bigint := greatest(1, (least(rate_ms, 1::bigint << 50) + 19) / 20);
    here CONSTANT bigint := instant - instant % width;
BEGIN
    RETURN (SELECT coalesce(sum(x.units), 0) FROM {s}.spent x
        WHERE x.queue = queue_name AND x.slice_at BETWEEN here - 21 * width AND here);
END $$
;

CREATE OR REPLACE FUNCTION {s}.spend_v1(queue_name text, rate_ms bigint, instant bigint, more bigint)
RETURNS void LANGUAGE plpgsql {probing} AS $$
DECLARE
    width CONSTANT bigint := greatest(1, (least(rate_ms, 1::bigint << 50) + 19) / 20);
    here CONSTANT bigint := instant - instant % width;
    ahead bigint;
BEGIN
    WITH gone AS (
        DELETE FROM {s}.spent x WHERE x.queue = queue_name
        AND (x.slice_at > here OR x.slice_at < here - 21 * width)
        RETURNING x.slice_at, x.units
    )
    SELECT coalesce(sum(gone.units), 0) INTO ahead FROM gone WHERE gone.slice_at > here;
    IF ahead + more > 0 THEN
        INSERT INTO {s}.spent AS x VALUES (queue_name, here, ahead + more)
        ON CONFLICT (queue, slice_at) DO UPDATE SET units = x.units + excluded.units;
    END IF;
END $$
;
