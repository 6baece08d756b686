-- newest_live --
-- A run has the gate of its job, or none.
SELECT {run_columns_live} FROM live WHERE id IN (
  SELECT max(id) FROM (
    SELECT job_id, id FROM live WHERE gate IN {ids}
    UNION ALL SELECT job_id, id FROM live WHERE gate IS NULL AND job_id IN {ids} AND parent_id IS NULL) AS l GROUP BY job_id);

-- newest_ended --
-- Of each job, the newest run that was neither skipped nor coalesced, nor a task of another.
-- Apart from the rows that are then read: else PostgreSQL looks for each newest one twice.
WITH newest AS MATERIALIZED (
  SELECT (SELECT max(newest) FROM (
    SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = {succeeded} AND h.parent_id IS NULL) AS newest
    UNION ALL SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = {failed} AND h.parent_id IS NULL)
    UNION ALL SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = {timed_out} AND h.parent_id IS NULL)
    UNION ALL SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = {cancelled} AND h.parent_id IS NULL)) AS ends) AS id
  FROM {ids} AS j)
SELECT {run_columns_history} FROM history WHERE id IN (SELECT id FROM newest);

-- newest_ends --
-- The same, but only the newest of each end, which an index has.
SELECT j.value,
  (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = {succeeded} AND h.parent_id IS NULL),
  (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = {failed} AND h.parent_id IS NULL),
  (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = {timed_out} AND h.parent_id IS NULL),
  (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = {cancelled} AND h.parent_id IS NULL)
FROM {ids} AS j;

-- live_states --
SELECT job_id, id, state, phase FROM live WHERE gate IN {ids}
UNION ALL SELECT job_id, id, state, phase FROM live WHERE gate IS NULL AND job_id IN {ids} AND parent_id IS NULL
ORDER BY 2;

-- last_successes --
WITH newest AS MATERIALIZED (
  SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = {succeeded} AND h.parent_id IS NULL) AS id
  FROM {ids} AS j)
SELECT job_id, finished_at FROM history WHERE id IN (SELECT id FROM newest);

-- names_of_jobs --
SELECT id, name FROM jobs WHERE id IN {ids};

-- past_attempts --
SELECT run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output
FROM attempts WHERE run_id IN {ids} AND state <> {blocked} ORDER BY run_id, fence;

-- list_lost --
SELECT run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output
FROM attempts WHERE reason = 'lost' ORDER BY finished_at DESC, run_id DESC LIMIT $1;
