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
