-- load_planned_moments --
-- Triggers with a moment before another, narrow: what a forecast needs of a hundred thousand of them. By their ids:
-- in the order of their moments each would be looked up somewhere else, which takes twice as long. One row of columns,
-- each a text: to hand over values one by one would take several times as long. The most is said by an id and not by a
-- LIMIT: that would make a table of its own of the join first, which takes as long as the join.
SELECT json_group_array(trigger_id), json_group_array(next_at), json_group_array(last_at), json_group_array(job_id),
  json_group_array(median), json_group_array(CAST(spread * 10000 + 0.5 AS INTEGER))
FROM (
  SELECT d.trigger_id, d.next_at, d.last_at, d.job_id, s.median, s.spread
  FROM due d LEFT JOIN durations s ON s.job_id = d.job_id
  WHERE +d.next_at < $1 AND d.trigger_id < coalesce(
    (SELECT trigger_id FROM due ORDER BY trigger_id LIMIT 1 OFFSET {most}), 9223372036854775807));

-- load_planned_jobs --
-- The jobs of the same, read at the same time over another connection.
SELECT json_group_array(trigger_id), json_group_array(org), json_group_array(owner), json_group_array(kind),
  json_group_array(policy), group_concat(triggers, char(10))
FROM (
  SELECT d.trigger_id, j.org, j.owner, j.kind, j.policy, j.triggers
  FROM due d JOIN jobs j ON j.id = d.job_id
  WHERE +d.next_at < $1 AND j.deleted_at IS NULL AND d.trigger_id < coalesce(
    (SELECT trigger_id FROM due ORDER BY trigger_id LIMIT 1 OFFSET {most}), 9223372036854775807));

-- load_followers --
-- Jobs that come after others or listen to others, by the index that has them alone: it must be told so.
SELECT j.id, j.org, j.name, j.owner, j.kind, j.policy, j.triggers, s.median, s.spread, s.share
FROM jobs j INDEXED BY jobs_following LEFT JOIN durations s ON s.job_id = j.id
WHERE j.deleted_at IS NULL AND (j.policy LIKE '%"after":[%' OR j.triggers LIKE '%"on":_"%') AND NOT j.paused LIMIT $1;

-- load_parts --
-- Tasks of workflows, in the order in which they were written.
SELECT j.id, j.org, j.name, j.owner, j.kind, j.policy, j.part_of, s.median, s.spread, s.share
FROM jobs j INDEXED BY jobs_part_of LEFT JOIN durations s ON s.job_id = j.id
WHERE j.part_of IS NOT NULL AND j.deleted_at IS NULL ORDER BY j.id LIMIT $1;
