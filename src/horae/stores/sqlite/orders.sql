-- alive --
SELECT json_group_array(json_array(id, version)) FROM jobs
WHERE id IN (SELECT value FROM json_each($1)) AND deleted_at IS NULL;

-- find_calm --
-- The order that waits for others of its kind.
SELECT id, created_at, latest_at FROM live WHERE job_id = $1 AND debounce = $2;

-- note_calm --
UPDATE live SET debounce = $2, latest_at = $3 WHERE id = $1;

-- later --
-- Orders whose moment has come, with what their jobs say now.
SELECT r.id, r.job_id, r.due_at, r.created_at, r.start_by, r.priority, r.data, r.pin, j.kind, j.policy,
  r.queue, r.share, r.demand, r.trigger_id, r.followed
FROM live r JOIN jobs j ON j.id = r.job_id WHERE r.state = {blocked} AND r.reason IN ('later', 'debounce') AND r.eligible_at <= $1
ORDER BY r.eligible_at, r.id LIMIT $2;
