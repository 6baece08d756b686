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

-- save_durations --
-- The mark moves, and what was learned is written, together or not at all.
WITH moved AS (UPDATE settings SET value = $3 WHERE name = $1 AND value = $2 RETURNING name),
  saved AS (
    INSERT INTO durations (job_id, median, spread, share, baseline, learned_at)
    SELECT u.job_id, u.median, u.spread, u.share, u.baseline, $4::bigint
    FROM moved, unnest($5::bigint[], $6::bigint[], $7::real[], $8::real[], $9::text[])
      AS u (job_id, median, spread, share, baseline)
    ON CONFLICT (job_id) DO UPDATE SET median = excluded.median, spread = excluded.spread, share = excluded.share,
      baseline = excluded.baseline, learned_at = excluded.learned_at)
SELECT name FROM moved;
