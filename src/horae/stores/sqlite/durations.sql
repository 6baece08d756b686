-- load_planned --
-- Triggers with a moment before another, narrow: what a forecast needs of a hundred thousand of them. By their ids:
-- in the order of their moments each would be looked up somewhere else, which takes twice as long.
SELECT d.trigger_id, d.next_at, d.last_at, j.id, j.org, j.name, j.owner, j.kind, j.policy, j.triggers, s.median,
  s.spread, s.share
FROM due d JOIN jobs j ON j.id = d.job_id LEFT JOIN durations s ON s.job_id = d.job_id
WHERE +d.next_at < $1 AND j.deleted_at IS NULL LIMIT $2;
