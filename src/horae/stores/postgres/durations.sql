-- load_planned_moments --
-- Triggers with a moment before another, narrow: what a forecast needs of a hundred thousand of them. One row of
-- columns: these are read several times faster than as many rows.
SELECT array_agg(trigger_id), array_agg(next_at), array_agg(last_at), array_agg(job_id), array_agg(median),
  array_agg(round(spread * 10000)::int)
FROM (
  SELECT d.trigger_id, d.next_at, d.last_at, d.job_id, s.median, s.spread
  FROM due d LEFT JOIN durations s ON s.job_id = d.job_id WHERE d.next_at < $1 LIMIT {most}) AS planned;

-- load_planned_jobs --
-- The jobs of the same, read at the same time over another connection. Texts are strung together: as arrays they take
-- three times as long.
SELECT array_agg(trigger_id), array_agg(org), string_agg(translate(owner, E'\x1F', ' '), E'\x1F'),
  string_agg(kind, E'\x1F'), string_agg(policy, E'\x1F'), string_agg(triggers, E'\n')
FROM (
  SELECT d.trigger_id, j.org, j.owner, j.kind, j.policy, j.triggers
  FROM due d JOIN jobs j ON j.id = d.job_id WHERE d.next_at < $1 AND j.deleted_at IS NULL LIMIT {most}) AS planned;

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
