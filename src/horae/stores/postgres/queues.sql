-- add_queue --
INSERT INTO queues (id, name, state, priority_offset, labels, document, version, created_at, updated_at)
SELECT max(id) + 1, CAST($1 AS text), CAST($2 AS text), CAST($3 AS smallint), CAST($4 AS text[]), CAST($5 AS text), 1,
  CAST($6 AS bigint), CAST($6 AS bigint)
FROM queues HAVING count(*) < $7
ON CONFLICT DO NOTHING
RETURNING id, name, state, priority_offset, labels, document, version, created_at, updated_at;

-- queue_use --
SELECT
  (SELECT count(*) FROM (
    SELECT 1 FROM jobs WHERE deleted_at IS NULL AND policy LIKE '%"queue"%' AND CAST(policy AS jsonb) ->> 'queue' = $2
    LIMIT $3) AS found),
  (SELECT count(*) FROM (SELECT 1 FROM live WHERE queue = $1 LIMIT $3) AS found);

-- queue_rates --
-- What came within the minute and has ended, ended within it. Jobs are read once each, not once a run.
SELECT queue, sum(came), sum(went) FROM (
  SELECT queue, 1 AS came, 0 AS went FROM (SELECT queue, created_at FROM live ORDER BY id DESC LIMIT $2) AS l
  WHERE created_at > $1
  UNION ALL
  SELECT coalesce(q.id, 0), h.came, h.went FROM (
    SELECT job_id, count(*) FILTER (WHERE created_at > $1) AS came, count(*) AS went
    FROM (SELECT job_id, created_at, finished_at, state FROM history ORDER BY id DESC LIMIT $2) AS newest
    WHERE state < {skipped} AND finished_at > $1 GROUP BY job_id) AS h
  JOIN jobs j ON j.id = h.job_id LEFT JOIN queues q ON q.name = CAST(j.policy AS jsonb) ->> 'queue') AS recent
GROUP BY queue;

-- count_waiting --
-- From the jobs of the owner to their runs; those of everybody else are not looked at.
SELECT count(*) FROM (
  SELECT 1 FROM jobs j CROSS JOIN LATERAL (
    SELECT l.state, l.queue FROM live l WHERE l.gate = j.id
    UNION ALL SELECT l.state, l.queue FROM live l WHERE l.gate IS NULL AND l.job_id = j.id) AS l
  WHERE j.org = $1 AND j.deleted_at IS NULL
    AND substr(coalesce(CAST(j.annotations AS jsonb) #>> '{rpc,user_id}', j.owner), 1, 64) = substr($2, 1, 64)
    AND l.state <> {running} AND (CAST($3 AS integer) IS NULL OR l.queue = $3)
  LIMIT $4) AS found;
