-- pick_loan --
-- The best run of each kind and queue by the index, then the best of these.
SELECT r.id FROM live r JOIN queues u ON u.id = r.queue WHERE r.id IN (
  SELECT (SELECT q.id FROM live q
          WHERE q.state = {queued} AND q.kind = k.value AND q.queue = u.id AND q.pin IS NULL AND q.needs IS NULL
            AND (q.start_by IS NULL OR q.start_by > $2)
            AND ($3 IS NULL OR (SELECT j.org FROM jobs j WHERE j.id = q.job_id) = $3)
          ORDER BY q.priority DESC, q.pass, q.id LIMIT 1)
  FROM json_each($1) AS k CROSS JOIN {open_queues} AS u)
ORDER BY r.priority + u.priority_offset DESC, r.due_at, r.id LIMIT 1;

-- pick_made_for --
-- The same, of jobs of one organisation that the RPC contract made for somebody, and kept for its workers or nobody.
SELECT q.id, NULL, q.queue, q.priority, q.pass, q.due_at, q.kind, NULL, NULL, NULL
FROM live q JOIN jobs j ON j.id = q.job_id JOIN {open_queues} AS u ON u.id = q.queue
WHERE q.state = {queued} AND q.kind IN (SELECT value FROM json_each($1)) AND (q.pin IS NULL OR q.pin = $5) AND q.needs IS NULL
  AND (q.start_by IS NULL OR q.start_by > $2)
  AND j.org = $3 AND json_extract(j.annotations, '$.rpc.user_id') IS NOT NULL
ORDER BY q.priority + u.priority_offset DESC, q.due_at, q.id LIMIT $4;

-- heads_made_for [claim] --
-- The same, of those that limits hold: the first $6 of each of these demands, among its first $7.
SELECT h.id, h.demand, h.queue, h.priority, h.pass, h.due_at, h.kind, NULL, NULL,
  (SELECT j.policy FROM jobs j WHERE j.id = h.job_id)
FROM json_each($1) AS d CROSS JOIN live h ON h.id IN (
  SELECT f.id FROM live f JOIN jobs j ON j.id = f.job_id
  WHERE j.org = $5 AND json_extract(j.annotations, '$.rpc.user_id') IS NOT NULL AND f.id IN (
    SELECT l.id FROM live l
    WHERE l.state = {blocked} AND l.reason = 'limit' AND l.demand = d.value AND l.kind IN (SELECT value FROM json_each($2))
      AND (l.pin IS NULL OR l.pin = $3) AND l.needs IS NULL AND (l.start_by IS NULL OR l.start_by > $4)
      AND l.queue IN (SELECT id FROM {open_queues} AS u)
    ORDER BY l.priority DESC, l.pass, l.id LIMIT $7)
  ORDER BY f.priority DESC, f.pass, f.id LIMIT $6);

-- release_limited --
-- Limits let them go.
UPDATE live SET state = {queued}, reason = '', eligible_at = NULL, note = NULL
WHERE id IN {ids} AND state = {blocked} AND reason = 'limit' RETURNING id;

-- load_made_for [claim] --
-- The same, to look at.
SELECT q.id FROM live q JOIN jobs j ON j.id = q.job_id JOIN {open_queues} AS u ON u.id = q.queue
WHERE q.state = {queued} AND q.kind IN (SELECT value FROM json_each($1)) AND (q.pin IS NULL OR q.pin = $3) AND q.needs IS NULL
  AND (q.start_by IS NULL OR q.start_by > $2)
  AND j.org = $5 AND json_extract(j.annotations, '$.rpc.user_id') IS NOT NULL
ORDER BY q.priority + u.priority_offset DESC, q.due_at, q.id LIMIT $4;
