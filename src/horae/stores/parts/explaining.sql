-- made_since --
-- The first id that was given to a run made at or after a moment, by halves: ids are given in the order of time, more or
-- less, and moments have no index.
WITH RECURSIVE b(low, high, n) AS (
  SELECT (SELECT min(id) FROM history), (SELECT max(id) + 1 FROM history), 0
  UNION ALL
  SELECT
    CASE WHEN (SELECT h.created_at FROM history h WHERE h.id >= (low + high) / 2 ORDER BY h.id LIMIT 1) < $1
      THEN (low + high) / 2 + 1 ELSE low END,
    CASE WHEN (SELECT h.created_at FROM history h WHERE h.id >= (low + high) / 2 ORDER BY h.id LIMIT 1) < $1
      THEN high ELSE (low + high) / 2 END, n + 1
  FROM b WHERE low < high AND n < 64
)
SELECT low FROM b WHERE low IS NOT NULL ORDER BY n DESC LIMIT 1;

-- line_of --
-- Those that are started before one that waits for an agent: of its line, of its queue, and of other queues.
SELECT
  (SELECT count(*) FROM (SELECT 1 FROM live l WHERE l.state = {queued} AND l.kind = r.kind AND l.queue = r.queue
     AND l.priority = r.priority AND (l.pass, l.id) < (r.pass, r.id) LIMIT $2) AS s),
  (SELECT count(*) FROM (SELECT 1 FROM live l WHERE l.state = {queued} AND l.kind = r.kind AND l.queue = r.queue
     AND l.priority > r.priority LIMIT $2) AS h),
  (SELECT count(*) FROM (SELECT 1 FROM queues o JOIN live l ON l.state = {queued} AND l.kind = r.kind AND l.queue = o.id
     AND l.priority > r.priority + q.priority_offset - o.priority_offset
     WHERE o.id <> r.queue AND o.state <> 'paused' LIMIT $2) AS o)
FROM live r JOIN queues q ON q.id = r.queue WHERE r.id = $1 AND r.state = {queued};

-- heads_of --
-- The first of a run's queue and kind that are started before it, in that order; of other organisations none.
SELECT h.id FROM (
  SELECT l.id, l.job_id, l.priority, l.pass, r.job_id AS own FROM live l, (SELECT * FROM live WHERE id = $1) AS r
  WHERE l.state = {queued} AND l.kind = r.kind AND l.queue = r.queue
    AND (l.priority > r.priority OR (l.priority = r.priority AND (l.pass, l.id) < (r.pass, r.id)))
  ORDER BY l.priority DESC, l.pass, l.id LIMIT 100) AS h
JOIN jobs j ON j.id = h.job_id AND j.org = (SELECT o.org FROM jobs o WHERE o.id = h.own)
ORDER BY h.priority DESC, h.pass, h.id LIMIT $2;

-- busy_of --
SELECT id, job_id, node, kind, started_at FROM live WHERE state = {running} AND node IN {names} ORDER BY node, id LIMIT $2;

-- beside --
SELECT * FROM (
  SELECT id, job_id, node, kind, created_at, started_at, finished_at FROM history WHERE id < $1 ORDER BY id DESC LIMIT $2) AS b
UNION ALL SELECT * FROM (
  SELECT id, job_id, node, kind, created_at, started_at, finished_at FROM history WHERE id > $1 ORDER BY id LIMIT $2) AS a
UNION ALL SELECT * FROM (
  SELECT id, job_id, node, kind, created_at, started_at, CAST(NULL AS bigint) AS finished_at FROM live
  WHERE state = {running} AND node = $3 AND id <> $1 LIMIT $2) AS l;

-- names_in --
SELECT id, name FROM jobs WHERE id IN {ids} AND org = $2;

-- done_to --
-- Of the last deeds done to something, those of an organisation: by the index of subjects, however many others there are.
SELECT at, who, change FROM (
  SELECT id, at, who, org, outcome, change FROM audit WHERE kind = $1 AND subject = $2 ORDER BY id DESC LIMIT $4) AS d
WHERE org = $3 AND outcome = 'done' AND change <> '' ORDER BY id DESC;

-- owner_of --
SELECT owner, since_at FROM segments WHERE segment = $1;
