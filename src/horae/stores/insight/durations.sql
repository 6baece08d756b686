-- newest_run --
SELECT max(id) FROM (SELECT max(id) AS id FROM live UNION ALL SELECT max(id) FROM history) AS newest;

-- live_upto --
SELECT id FROM live WHERE id <= $1 ORDER BY id DESC LIMIT $2;

-- ended_between --
-- The last of each job; of very many runs, some: chosen by a hash, for ids of one job may be evenly spaced.
SELECT id, job_id, state = {succeeded}, started_at, finished_at FROM (
  SELECT id, job_id, state, started_at, finished_at, row_number() OVER (PARTITION BY job_id ORDER BY id DESC) AS place
  FROM history
  WHERE id > $1 AND id <= $2 AND started_at IS NOT NULL AND state IN ({succeeded}, {failed}, {timed_out})
    AND id % 65536 * 40503 % 65536 % $3 = 0) AS ended
WHERE place <= $4 ORDER BY id;

-- ended_of --
SELECT id, job_id, state = {succeeded}, started_at, finished_at FROM history
WHERE id IN {ids} AND started_at IS NOT NULL AND state IN ({succeeded}, {failed}, {timed_out}) ORDER BY id;

-- load_baselines --
SELECT job_id, baseline FROM durations WHERE job_id IN {ids};

-- drop_durations_of --
DELETE FROM durations WHERE job_id IN {ids};

-- count_queued --
SELECT kind, count(*) FROM live WHERE state = {queued} GROUP BY kind;

-- count_planned --
SELECT count(*) FROM (SELECT 1 FROM due WHERE next_at < $1 LIMIT $2) AS found;
