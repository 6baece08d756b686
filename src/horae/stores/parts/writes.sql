-- load_cursors [claim] --
SELECT job_id, value, moved_at, run_id FROM cursors WHERE job_id IN {ids};

-- move_cursor --
-- By a run that has just succeeded; not by one that began before somebody set it.
INSERT INTO cursors (job_id, value, run_id, fence, moved_at)
SELECT job_id, CAST($2 AS text), id, fence, CAST($3 AS bigint) FROM history WHERE id = $1 AND state = {succeeded}
ON CONFLICT (job_id) DO UPDATE
SET value = excluded.value, run_id = excluded.run_id, fence = excluded.fence, moved_at = excluded.moved_at
WHERE excluded.run_id > cursors.past_run_id
  OR (excluded.run_id = cursors.past_run_id AND excluded.fence > cursors.past_fence);

-- set_cursor --
INSERT INTO cursors (job_id, value, moved_at, past_run_id, past_fence)
SELECT CAST($1 AS bigint), CAST($2 AS text), CAST($3 AS bigint), COALESCE(r.id, 0), COALESCE(r.fence, 0)
FROM (SELECT 1) AS one
LEFT JOIN (
  SELECT id, fence FROM live WHERE (gate = $1 OR (gate IS NULL AND job_id = $1)) AND state = {running}
  ORDER BY id DESC LIMIT 1) AS r ON 1 = 1
WHERE 1 = 1
ON CONFLICT (job_id) DO UPDATE
SET value = excluded.value, moved_at = excluded.moved_at, run_id = NULL, past_run_id = excluded.past_run_id,
  past_fence = excluded.past_fence;

-- drop_locks --
DELETE FROM locks WHERE run_id IN {ids};

-- note_blocked --
-- That a node had it stays known, once.
INSERT INTO attempts (run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output)
SELECT id, attempt, fence, node, {blocked}, '', started_at, CAST($3 AS bigint), NULL, '', NULL FROM live
WHERE id = $1 AND fence = $2 AND state = {running} AND node IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.run_id = live.id AND a.node = live.node);

-- block_run --
-- An attempt that did not begin, for what it writes is being written. One that somebody wants cancelled keeps its reason.
UPDATE live SET state = {blocked}, reason = CASE WHEN cancel THEN reason ELSE 'destination_busy' END, attempt = attempt - 1,
  node = NULL, started_at = NULL, phase = 1, waits_for = $3, note = $4, eligible_at = $5, start_by = $6
WHERE id = $1 AND fence = $2 AND state = {running}
RETURNING cancel, job_id;
