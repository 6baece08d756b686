-- purge --
-- Answers the jobs whose runs went.
WITH gone AS (DELETE FROM history WHERE id = ANY($1::bigint[]) RETURNING job_id),
  a AS (DELETE FROM attempts WHERE run_id = ANY($1::bigint[])),
  f AS (DELETE FROM flows WHERE run_id = ANY($1::bigint[]))
SELECT DISTINCT job_id FROM gone;

-- outdated_attempts --
SELECT run_id, attempt, fence, output IS NOT NULL OR reason = 'lost' FROM attempts WHERE run_id = ANY($1::bigint[]);

-- census --
-- Big tables are estimated: a count of a million rows is not worth a glance at a dashboard.
SELECT
  (SELECT CASE WHEN reltuples > 50000 THEN reltuples::bigint ELSE (SELECT count(*) FROM jobs WHERE deleted_at IS NULL AND part_of IS NULL)
          END FROM pg_class WHERE oid = 'jobs'::regclass),
  (SELECT CASE WHEN reltuples > 50000 THEN reltuples::bigint ELSE (SELECT count(*) FROM due) END
   FROM pg_class WHERE oid = 'due'::regclass),
  (SELECT next_at FROM due WHERE next_at < 9223372036854775807 ORDER BY next_at LIMIT 1),
  (SELECT min(due_at) FROM live WHERE state = {queued});
