-- list_queues [claim] --
SELECT id, name, state, priority_offset, labels, document, version, created_at, updated_at FROM queues ORDER BY name;

-- get_queue --
SELECT id, name, state, priority_offset, labels, document, version, created_at, updated_at FROM queues WHERE name = $1;

-- save_queue --
UPDATE queues SET state = $2, priority_offset = $3, labels = $4, document = $5, updated_at = $6, version = version + 1
WHERE name = $1 AND version = $7
RETURNING id, name, state, priority_offset, labels, document, version, created_at, updated_at;

-- set_queue_state --
UPDATE queues SET state = $2, updated_at = $3, version = version + 1 WHERE name = $1 AND state <> $2
RETURNING id, name, state, priority_offset, labels, document, version, created_at, updated_at;

-- delete_queue --
DELETE FROM queues WHERE name = $1 AND version = $2 AND id <> 0 RETURNING id;

-- delete_shares --
DELETE FROM shares WHERE queue = $1;

-- queue_waiting --
-- Along the index by which they are claimed, and never further than counted.
SELECT q.id,
  (SELECT count(*) FROM (SELECT 1 FROM live l WHERE l.queue = q.id AND l.state = {queued} LIMIT $1) AS found),
  (SELECT min(due_at) FROM (SELECT l.due_at FROM live l WHERE l.queue = q.id AND l.state = {queued} LIMIT $1) AS found)
FROM queues q;

-- queue_running --
-- Whatever runs has a node, by which there is an index.
SELECT queue, count(*) FROM live WHERE state = {running} AND node >= '' GROUP BY queue;

-- count_served --
-- Of the jobs each is read by its id.
SELECT queue, owner, count(*) FROM (
  SELECT r.queue, (SELECT j.owner FROM jobs j WHERE j.id = r.job_id AND (CAST($1 AS integer) IS NULL OR j.org = $1)) AS owner
  FROM (SELECT queue, job_id FROM live WHERE state = {running} AND node >= '' LIMIT $2) AS r) AS served
WHERE owner IS NOT NULL GROUP BY queue, owner;

-- queue_blocked --
SELECT queue, reason, count(*)
FROM (SELECT queue, reason FROM live WHERE state = {blocked} AND job_id > 0 LIMIT $1) AS found GROUP BY queue, reason;

-- count_waiting_in --
SELECT count(*) FROM (
  SELECT 1 FROM live l JOIN jobs j ON j.id = l.job_id
  WHERE j.org = $1 AND l.state <> {running} AND l.parent_id IS NULL LIMIT $2) AS found;

-- count_jobs_in --
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE org = $1 AND deleted_at IS NULL LIMIT $2) AS found;

-- list_quotas --
SELECT id, most_waiting, most_jobs FROM organisations
WHERE deleted_at IS NULL AND (most_waiting IS NOT NULL OR most_jobs IS NOT NULL);

-- count_failures [claim] --
SELECT count(*) FROM (
  SELECT 1 FROM history WHERE job_id = $1 AND state IN ({failed}, {timed_out}) AND created_at >= $2 AND parent_id IS NULL
    AND id > coalesce((SELECT max(h.id) FROM history h WHERE h.job_id = $1 AND h.state = {succeeded} AND h.parent_id IS NULL), 0)
  LIMIT $3) AS found;
