-- purge --
DELETE FROM history WHERE id IN (SELECT value FROM json_each($1)) RETURNING job_id;

-- purge_attempts --
DELETE FROM attempts WHERE run_id IN (SELECT value FROM json_each($1));

-- purge_flows --
DELETE FROM flows WHERE run_id IN (SELECT value FROM json_each($1));

-- outdated_attempts --
SELECT run_id, attempt, fence, output IS NOT NULL OR reason = 'lost' FROM attempts
WHERE run_id IN (SELECT value FROM json_each($1));

-- census --
SELECT
  (SELECT count(*) FROM jobs WHERE deleted_at IS NULL AND part_of IS NULL),
  (SELECT count(*) FROM due),
  (SELECT next_at FROM due WHERE next_at < 9223372036854775807 ORDER BY next_at LIMIT 1),
  (SELECT min(due_at) FROM live WHERE state = {queued});

-- move_mark --
UPDATE settings SET value = $3 WHERE name = $1 AND value = $2 RETURNING name;

-- save_durations --
INSERT INTO durations (job_id, median, spread, share, baseline, learned_at)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'),
  json_extract(value, '$[4]'), $2
FROM json_each($1) WHERE true
ON CONFLICT (job_id) DO UPDATE SET median = excluded.median, spread = excluded.spread, share = excluded.share,
  baseline = excluded.baseline, learned_at = excluded.learned_at;
