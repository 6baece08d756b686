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

-- load_followers --
-- Jobs that come after others or listen to others, by the index that has them alone.
SELECT j.id, j.org, j.name, j.owner, j.kind, j.policy, j.triggers, s.median, s.spread, s.share
FROM jobs j LEFT JOIN durations s ON s.job_id = j.id
WHERE j.deleted_at IS NULL AND (j.policy LIKE '%"after":[%' OR j.triggers LIKE '%"on":_"%') AND NOT j.paused LIMIT $1;

-- load_parts --
-- Tasks of workflows, in the order in which they were written.
SELECT j.id, j.org, j.name, j.owner, j.kind, j.policy, j.part_of, s.median, s.spread, s.share
FROM jobs j LEFT JOIN durations s ON s.job_id = j.id
WHERE j.part_of IS NOT NULL AND j.deleted_at IS NULL ORDER BY j.id LIMIT $1;

-- count_queued --
SELECT kind, count(*) FROM live WHERE state = {queued} GROUP BY kind;
