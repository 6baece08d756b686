-- get_run [claim] --
SELECT {run_columns_live} FROM live WHERE id = $1
UNION ALL
SELECT {run_columns_history} FROM history WHERE id = $1;

-- load_runs --
SELECT {run_columns_live} FROM live WHERE id IN {ids}
UNION ALL
SELECT {run_columns_history} FROM history WHERE id IN {ids};

-- tally_tasks --
-- Items of one task are counted together: convert[17] is one of convert.
SELECT name, state, count(*), max(id) FROM (
  SELECT CASE WHEN task LIKE '%]' THEN rtrim(rtrim(task, '0123456789]'), '[') ELSE task END AS name, state, id
  FROM live WHERE parent_id = $1
  UNION ALL
  SELECT CASE WHEN task LIKE '%]' THEN rtrim(rtrim(task, '0123456789]'), '[') ELSE task END AS name, state, id
  FROM history WHERE parent_id = $1) AS made
GROUP BY name, state;

-- document_of_flow --
SELECT document, adopted FROM flows WHERE run_id = $1;

-- list_attempts --
SELECT run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output
FROM attempts WHERE run_id = $1 AND state <> {blocked} ORDER BY fence;

-- list_turns --
-- Attempts that have waited: what they wrote until then.
SELECT run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output
FROM attempts WHERE run_id = $1 AND state = {blocked} AND output IS NOT NULL ORDER BY fence;

-- load_attempts --
SELECT run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output
FROM attempts WHERE run_id IN {ids} AND state <> {blocked} ORDER BY run_id, fence;

-- outdated --
-- Oldest ids first, by the primary key, past what is kept: no index of ends is paid for by every run.
-- Tasks are kept for as long as the run waits of which they are.
SELECT id, attempt, fence, output IS NOT NULL OR reason = 'lost', finished_at < $1
  AND (parent_id IS NULL OR NOT EXISTS (SELECT 1 FROM live l WHERE l.id = history.parent_id))
FROM history WHERE id > $2 ORDER BY id LIMIT $3;

-- without_runs --
-- Those of these ids from which on there is no run, live or ended, for as many ids as a range has.
SELECT r.value FROM {ids} AS r
WHERE NOT EXISTS (SELECT 1 FROM live WHERE id >= r.value AND id < r.value + CAST($2 AS bigint))
  AND NOT EXISTS (SELECT 1 FROM history WHERE id >= r.value AND id < r.value + CAST($2 AS bigint));

-- drop_tombstones --
-- Of jobs deleted long ago of which nothing is left. Their ids are never given out again.
DELETE FROM jobs WHERE id IN (
  SELECT j.id FROM jobs j
  WHERE j.deleted_at < $1 AND j.deleted_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM history h WHERE h.job_id = j.id)
    AND NOT EXISTS (SELECT 1 FROM live l WHERE l.gate = j.id)
    AND NOT EXISTS (SELECT 1 FROM live l WHERE l.gate IS NULL AND l.job_id = j.id)
  ORDER BY j.deleted_at LIMIT $2)
RETURNING id;

-- parked --
-- Triggers without a next moment whose last one was long ago, by their ids.
SELECT d.trigger_id, j.triggers FROM due d JOIN jobs j ON j.id = d.job_id
WHERE d.next_at = 9223372036854775807 AND d.trigger_id > $2 AND d.last_at < $1 AND NOT j.paused
ORDER BY d.trigger_id LIMIT $3;

-- drop_parked --
DELETE FROM due WHERE trigger_id IN {ids} AND next_at = 9223372036854775807;

-- drop_nodes --
-- Names of nodes that were gone long ago; what they held was taken back when they went.
DELETE FROM nodes WHERE state = 'gone' AND evicted_at IS NULL AND heartbeat_at < $1
  AND NOT EXISTS (SELECT 1 FROM live l WHERE l.state = {running} AND l.node = nodes.name)
RETURNING name;

-- purge_keys --
DELETE FROM idempotency WHERE (scope, key) IN (
  SELECT scope, key FROM idempotency WHERE created_at < $1 ORDER BY created_at LIMIT $2)
RETURNING 1;

-- count_live --
SELECT state, count(*) FROM live GROUP BY state;

-- drop_cursors --
-- Those of deleted jobs of which no run is left, among the jobs of these runs.
DELETE FROM cursors WHERE job_id IN (
  SELECT j.id FROM jobs j JOIN {ids} AS gone ON gone.value = j.id
  WHERE j.deleted_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM history h WHERE h.job_id = j.id)
    AND NOT EXISTS (SELECT 1 FROM live l WHERE l.gate = j.id)
    AND NOT EXISTS (SELECT 1 FROM live l WHERE l.gate IS NULL AND l.job_id = j.id));

-- drop_cursors_of --
DELETE FROM cursors WHERE job_id IN {ids};
