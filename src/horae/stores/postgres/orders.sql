-- enqueue --
-- Runs by request, by the same rule as those of triggers, all in one statement. They come as JSON: of one order, sixteen
-- arrays would cost more than the rest. Keys that were used before make none,
-- nor do jobs that are deleted or of another version by now. Those that are left are locked against their deletion and
-- change, which would not see what is being made here. Who waits for a later moment takes no gate. `forbid` runs that
-- find it taken become history at once; those of `queue` and `replace` are left to the caller.
WITH c AS (
  SELECT COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), alive AS MATERIALIZED (
  SELECT id, version FROM jobs WHERE id = ANY($2::bigint[]) AND deleted_at IS NULL ORDER BY id FOR KEY SHARE
), asked AS MATERIALIZED (
  SELECT t.*, alive.version AS found, placed_id IS NULL AND run_at > (SELECT now FROM c) AS is_later
  FROM ROWS FROM (json_to_recordset($3::json) AS (
      job_id bigint, kind text, priority smallint, overlap smallint, start_by bigint, data text, needs text, pin text,
      version int, run_at bigint, start_within bigint, scope text, key text, digest text, placed_id bigint,
      placed_at bigint))
    WITH ORDINALITY AS t(job_id, kind, priority, overlap, start_by, data, needs, pin, version, run_at, start_within,
                         scope, key, digest, placed_id, placed_at, number)
  LEFT JOIN alive ON alive.id = t.job_id
), v AS MATERIALIZED (
  SELECT asked.*, COALESCE(placed_id, nextval('run_id')) AS run_id, COALESCE(placed_at, (SELECT now FROM c)) AS made_at,
    CASE WHEN placed_id IS NOT NULL OR is_later THEN run_at ELSE (SELECT now FROM c) END AS due_at
  FROM asked WHERE found IS NOT NULL AND (version IS NULL OR version = found)
), keyed AS (
  INSERT INTO idempotency (scope, key, digest, ids, created_at)
  SELECT scope, key, digest, '[' || run_id || ']', (SELECT now FROM c) FROM v WHERE key IS NOT NULL ORDER BY scope, key
  ON CONFLICT (scope, key) DO NOTHING
  RETURNING scope, key
), fresh AS MATERIALIZED (
  SELECT * FROM v WHERE key IS NULL OR (scope, key) IN (SELECT scope, key FROM keyed)
), made AS (
  INSERT INTO live (id, job_id, due_at, created_at, gate, start_by, eligible_at, state, reason, priority, overlap, kind,
                    needs, data, pin)
  SELECT run_id, job_id, due_at, made_at, CASE WHEN overlap <> 1 AND is_later IS NOT TRUE THEN job_id END,
    COALESCE(due_at + start_within, start_by), CASE WHEN is_later THEN run_at END,
    CASE WHEN is_later THEN {blocked} ELSE {queued} END, CASE WHEN is_later THEN 'later' ELSE '' END, priority, overlap,
    kind, needs::text[], data, pin
  FROM fresh ORDER BY number ON CONFLICT (gate) WHERE gate IS NOT NULL DO NOTHING
  RETURNING id
), skipped AS (
  INSERT INTO history ({history_columns})
  SELECT run_id, job_id, NULL, due_at, made_at, NULL, (SELECT now FROM c), NULL, 0, NULL, {skipped}, 0, priority, 0, kind,
    'overlap', NULL, 'another run of this job was live', NULL, NULL, data
  FROM fresh WHERE overlap = 0 AND run_id NOT IN (SELECT id FROM made)
)
SELECT ARRAY(SELECT found FROM asked ORDER BY number),
  ARRAY(SELECT f.run_id FROM asked LEFT JOIN fresh f USING (number) ORDER BY number),
  ARRAY(SELECT id FROM made), (SELECT now FROM c);

-- take_later --
-- Orders whose moment has come, taken out of the way to be made into runs in the same transaction. Their jobs first, as
-- a deletion locks them.
WITH w AS MATERIALIZED (
  SELECT id, job_id FROM live WHERE state = {blocked} AND reason = 'later' AND eligible_at <= $1
  ORDER BY eligible_at, id LIMIT $2
), j AS MATERIALIZED (
  SELECT id, kind, policy FROM jobs WHERE id = ANY(ARRAY(SELECT job_id FROM w)) AND deleted_at IS NULL ORDER BY id
  FOR KEY SHARE
), d AS (
  DELETE FROM live USING j WHERE live.id = ANY(ARRAY(SELECT id FROM w)) AND live.job_id = j.id AND live.state = {blocked}
    AND live.reason = 'later'
  RETURNING live.id, live.job_id, live.due_at, live.created_at, live.start_by, live.priority, live.data, live.pin, j.kind,
    j.policy
)
SELECT * FROM d ORDER BY due_at, id;
