-- pick_loan --
-- The best run of each kind and queue by the index, then the best of these.
SELECT q.id FROM unnest($1::text[]) AS k(kind) CROSS JOIN {open_queues} AS u CROSS JOIN LATERAL (
  SELECT id, priority, due_at FROM live
  WHERE state = {queued} AND live.kind = k.kind AND live.queue = u.id AND pin IS NULL AND needs IS NULL
    AND (start_by IS NULL OR start_by > $2)
    AND ($3::integer IS NULL OR (SELECT j.org FROM jobs j WHERE j.id = live.job_id) = $3)
  ORDER BY priority DESC, pass, id LIMIT 1 FOR UPDATE SKIP LOCKED) AS q
ORDER BY q.priority + u.priority_offset DESC, q.due_at, q.id LIMIT 1;

-- pick_made_for --
-- The same, of jobs of one organisation that the RPC contract made for somebody, and kept for its workers or nobody.
SELECT q.id, NULL::bigint, q.queue, q.priority, q.pass, q.due_at, k.kind, NULL::text, NULL::text, NULL::text
FROM unnest($1::text[]) AS k(kind) CROSS JOIN {open_queues} AS u CROSS JOIN LATERAL (
  SELECT l.id, l.queue, l.priority, l.pass, l.due_at FROM live l
  WHERE l.state = {queued} AND l.kind = k.kind AND l.queue = u.id AND (l.pin IS NULL OR l.pin = $5) AND l.needs IS NULL
    AND (l.start_by IS NULL OR l.start_by > $2)
    AND EXISTS (SELECT 1 FROM jobs j WHERE j.id = l.job_id AND j.org = $3
      AND CAST(j.annotations AS jsonb) -> 'rpc' ->> 'user_id' IS NOT NULL)
  ORDER BY l.priority DESC, l.pass, l.id LIMIT $4 FOR UPDATE OF l SKIP LOCKED) AS q
ORDER BY q.priority + u.priority_offset DESC, q.due_at, q.id LIMIT $4;

-- heads_made_for [claim] --
-- The same, of those that limits hold: the first $6 of each of these demands, among its first $7.
SELECT h.id, h.demand, h.queue, h.priority, h.pass, h.due_at, h.kind, NULL::text, NULL::text,
  (SELECT j.policy FROM jobs j WHERE j.id = h.job_id)
FROM unnest($1::bigint[]) AS d(id) CROSS JOIN LATERAL (
  SELECT f.* FROM (
    SELECT id, demand, queue, priority, pass, due_at, kind, job_id FROM live
    WHERE state = {blocked} AND reason = 'limit' AND demand = d.id AND kind = ANY($2::text[]) AND (pin IS NULL OR pin = $3)
      AND needs IS NULL AND (start_by IS NULL OR start_by > $4) AND queue IN (SELECT id FROM {open_queues} AS u)
    ORDER BY priority DESC, pass, id LIMIT $7) AS f
  WHERE EXISTS (SELECT 1 FROM jobs j WHERE j.id = f.job_id AND j.org = $5
    AND CAST(j.annotations AS jsonb) -> 'rpc' ->> 'user_id' IS NOT NULL)
  ORDER BY f.priority DESC, f.pass, f.id LIMIT $6) AS h;

-- release_limited --
-- Limits let them go; one that somebody ends just now is left to that.
UPDATE live SET state = {queued}, reason = '', eligible_at = NULL, note = NULL WHERE id = ANY(ARRAY(
  SELECT id FROM live WHERE id = ANY($1::bigint[]) AND state = {blocked} AND reason = 'limit'
  ORDER BY id FOR UPDATE SKIP LOCKED))
RETURNING id;

-- load_made_for [claim] --
-- The same, to look at.
SELECT q.id FROM unnest($1::text[]) AS k(kind) CROSS JOIN {open_queues} AS u CROSS JOIN LATERAL (
  SELECT l.id, l.priority, l.due_at FROM live l
  WHERE l.state = {queued} AND l.kind = k.kind AND l.queue = u.id AND (l.pin IS NULL OR l.pin = $3) AND l.needs IS NULL
    AND (l.start_by IS NULL OR l.start_by > $2)
    AND EXISTS (SELECT 1 FROM jobs j WHERE j.id = l.job_id AND j.org = $5 AND CAST(j.annotations AS jsonb) -> 'rpc' ->> 'user_id' IS NOT NULL)
  ORDER BY l.priority DESC, l.pass, l.id LIMIT $4) AS q
ORDER BY q.priority + u.priority_offset DESC, q.due_at, q.id LIMIT $4;
