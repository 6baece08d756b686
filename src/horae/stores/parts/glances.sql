-- find_made_since --
-- All moments are looked for together, each time in half of what is left: `below` it lie runs that were made before.
WITH RECURSIVE looked(moment, below, width) AS (
  SELECT j.value, CAST(-1 AS bigint), coalesce((SELECT max(id) FROM history), 0) + 2 FROM {ids} AS j
  UNION ALL
  SELECT moment,
    CASE WHEN (SELECT h.created_at FROM history h WHERE h.id >= below + width / 2 ORDER BY h.id LIMIT 1) < moment
      THEN below + width / 2 ELSE below END,
    width - width / 2
  FROM looked WHERE width > 1
)
SELECT moment, below + 1 FROM looked WHERE width = 1;

-- load_live_marks --
SELECT id, job_id, state, due_at, started_at, NULL FROM live l
WHERE parent_id IS NULL AND due_at < $1 AND (CAST($2 AS integer) IS NULL OR (SELECT j.org FROM jobs j WHERE j.id = l.job_id) = $2)
ORDER BY id DESC LIMIT $3;

-- find_running --
-- Whatever runs has a node, by which there is an index.
SELECT id FROM live l WHERE state = {running} AND node >= '' AND parent_id IS NULL
  AND (CAST($1 AS integer) IS NULL OR (SELECT j.org FROM jobs j WHERE j.id = l.job_id) = $1)
ORDER BY id DESC LIMIT $2;

-- count_late --
SELECT count(*), min(id), min(due_at) FROM (
  SELECT id, due_at FROM live l WHERE state = {queued} AND parent_id IS NULL AND due_at < $1
    AND (CAST($2 AS integer) IS NULL OR (SELECT j.org FROM jobs j WHERE j.id = l.job_id) = $2)
  ORDER BY id LIMIT $3) AS late;

-- count_held --
SELECT reason, count(*), sum(CASE WHEN created_at < $1 THEN 1 ELSE 0 END), min(CASE WHEN created_at < $1 THEN id END),
  min(CASE WHEN created_at < $1 THEN created_at END)
FROM (
  SELECT id, job_id, reason, created_at FROM live WHERE state = {blocked} AND job_id > 0 AND parent_id IS NULL LIMIT $3) AS l
WHERE CAST($2 AS integer) IS NULL OR (SELECT j.org FROM jobs j WHERE j.id = l.job_id) = $2
GROUP BY reason ORDER BY reason;
