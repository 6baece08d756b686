-- pick_loan --
-- The best run of each kind and queue by the index, then the best of these.
SELECT r.id FROM live r JOIN queues u ON u.id = r.queue WHERE r.id IN (
  SELECT (SELECT q.id FROM live q
          WHERE q.state = {queued} AND q.kind = k.value AND q.queue = u.id AND q.pin IS NULL AND q.needs IS NULL
            AND (q.start_by IS NULL OR q.start_by > $2)
          ORDER BY q.priority DESC, q.pass, q.id LIMIT 1)
  FROM json_each($1) AS k CROSS JOIN {open_queues} AS u)
ORDER BY r.priority + u.priority_offset DESC, r.due_at, r.id LIMIT 1;

-- pick_made_for --
-- The same, of jobs of one organisation that the RPC contract made for somebody, and kept for its workers or nobody.
SELECT q.id FROM live q JOIN jobs j ON j.id = q.job_id JOIN {open_queues} AS u ON u.id = q.queue
WHERE q.state = {queued} AND q.kind IN (SELECT value FROM json_each($1)) AND (q.pin IS NULL OR q.pin = $5) AND q.needs IS NULL
  AND (q.start_by IS NULL OR q.start_by > $2)
  AND j.org = $3 AND json_extract(j.annotations, '$.rpc.user_id') IS NOT NULL
ORDER BY q.priority + u.priority_offset DESC, q.due_at, q.id LIMIT $4;

-- load_made_for [claim] --
-- The same, of every organisation, to look at.
SELECT q.id FROM live q JOIN jobs j ON j.id = q.job_id JOIN {open_queues} AS u ON u.id = q.queue
WHERE q.state = {queued} AND q.kind IN (SELECT value FROM json_each($1)) AND (q.pin IS NULL OR q.pin = $3) AND q.needs IS NULL
  AND (q.start_by IS NULL OR q.start_by > $2)
  AND json_extract(j.annotations, '$.rpc.user_id') IS NOT NULL
ORDER BY q.priority + u.priority_offset DESC, q.due_at, q.id LIMIT $4;
