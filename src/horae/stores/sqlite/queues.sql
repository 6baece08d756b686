-- add_queue --
INSERT INTO queues (id, name, state, priority_offset, labels, document, version, created_at, updated_at)
SELECT max(id) + 1, $1, $2, $3, $4, $5, 1, $6, $6 FROM queues WHERE true HAVING count(*) < $7
ON CONFLICT DO NOTHING
RETURNING id, name, state, priority_offset, labels, document, version, created_at, updated_at;

-- queue_use --
SELECT
  (SELECT count(*) FROM (
    SELECT 1 FROM jobs WHERE deleted_at IS NULL AND json_extract(policy, '$.queue') = $2 LIMIT $3)),
  (SELECT count(*) FROM (SELECT 1 FROM live WHERE queue = $1 LIMIT $3));

-- queue_rates --
-- What came within the minute and has ended, ended within it. Jobs are read once each, not once a run.
SELECT queue, sum(came), sum(went) FROM (
  SELECT queue, 1 AS came, 0 AS went FROM (SELECT queue, created_at FROM live ORDER BY id DESC LIMIT $2)
  WHERE created_at > $1
  UNION ALL
  SELECT coalesce(q.id, 0), h.came, h.went FROM (
    SELECT job_id, sum(created_at > $1) AS came, count(*) AS went
    FROM (SELECT job_id, created_at, finished_at, state FROM history ORDER BY id DESC LIMIT $2)
    WHERE state < {skipped} AND finished_at > $1 GROUP BY job_id) AS h
  JOIN jobs j ON j.id = h.job_id LEFT JOIN queues q ON q.name = json_extract(j.policy, '$.queue'))
GROUP BY queue;

-- count_waiting --
-- From the jobs of the owner to their runs; those of everybody else are not looked at.
SELECT count(*) FROM (
  SELECT 1 FROM jobs j CROSS JOIN live l ON l.gate = j.id
  WHERE j.org = $1 AND j.deleted_at IS NULL
    AND substr(coalesce(CAST(json_extract(j.annotations, '$.rpc.user_id') AS text), j.owner), 1, 64) = substr($2, 1, 64)
    AND l.state <> {running} AND ($3 IS NULL OR l.queue = $3)
  UNION ALL
  SELECT 1 FROM jobs j CROSS JOIN live l ON l.job_id = j.id AND l.gate IS NULL
  WHERE j.org = $1 AND j.deleted_at IS NULL
    AND substr(coalesce(CAST(json_extract(j.annotations, '$.rpc.user_id') AS text), j.owner), 1, 64) = substr($2, 1, 64)
    AND l.state <> {running} AND ($3 IS NULL OR l.queue = $3)
  LIMIT $4);
