-- newest_live --
-- A run has the gate of its job, or none.
SELECT {run_columns_live} FROM live WHERE id IN (
  SELECT max(id) FROM (
    SELECT job_id, id FROM live WHERE gate IN {ids}
    UNION ALL SELECT job_id, id FROM live WHERE gate IS NULL AND job_id IN {ids} AND parent_id IS NULL) AS l GROUP BY job_id);

-- newest_ended --
-- Of each job, the newest run that was neither skipped nor coalesced, nor a task of another.
SELECT {run_columns_history} FROM history WHERE id IN (
  SELECT (SELECT max(newest) FROM (
    SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = {succeeded} AND h.parent_id IS NULL) AS newest
    UNION ALL SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = {failed} AND h.parent_id IS NULL)
    UNION ALL SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = {timed_out} AND h.parent_id IS NULL)
    UNION ALL SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = {cancelled} AND h.parent_id IS NULL)) AS ends)
  FROM {ids} AS j);

-- last_successes --
SELECT job_id, finished_at FROM history WHERE id IN (
  SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = {succeeded} AND h.parent_id IS NULL) FROM {ids} AS j);

-- names_of_jobs --
SELECT id, name FROM jobs WHERE id IN {ids};

-- past_attempts --
SELECT run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output
FROM attempts WHERE run_id IN {ids} AND state <> {blocked} ORDER BY run_id, fence;

-- list_lost --
SELECT run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output
FROM attempts WHERE reason = 'lost' ORDER BY finished_at DESC, run_id DESC LIMIT $1;
