-- pick_loan --
-- The best run of each kind and queue by the index, then the best of these.
SELECT q.id FROM unnest($1::text[]) AS k(kind) CROSS JOIN {open_queues} AS u CROSS JOIN LATERAL (
  SELECT id, priority, due_at FROM live
  WHERE state = {queued} AND live.kind = k.kind AND live.queue = u.id AND pin IS NULL AND needs IS NULL
    AND (start_by IS NULL OR start_by > $2)
  ORDER BY priority DESC, pass, id LIMIT 1 FOR UPDATE SKIP LOCKED) AS q
ORDER BY q.priority + u.priority_offset DESC, q.due_at, q.id LIMIT 1;

-- pick_made_for --
-- The same, of jobs of one organisation that the RPC contract made for somebody, and kept for its workers or nobody.
SELECT q.id FROM unnest($1::text[]) AS k(kind) CROSS JOIN {open_queues} AS u CROSS JOIN LATERAL (
  SELECT l.id, l.priority, l.due_at FROM live l
  WHERE l.state = {queued} AND l.kind = k.kind AND l.queue = u.id AND (l.pin IS NULL OR l.pin = $5) AND l.needs IS NULL
    AND (l.start_by IS NULL OR l.start_by > $2)
    AND EXISTS (SELECT 1 FROM jobs j WHERE j.id = l.job_id AND j.org = $3
      AND CAST(j.annotations AS jsonb) -> 'rpc' ->> 'user_id' IS NOT NULL)
  ORDER BY l.priority DESC, l.pass, l.id LIMIT $4 FOR UPDATE OF l SKIP LOCKED) AS q
ORDER BY q.priority + u.priority_offset DESC, q.due_at, q.id LIMIT $4;

-- load_made_for [claim] --
-- The same, of every organisation, to look at.
SELECT q.id FROM unnest($1::text[]) AS k(kind) CROSS JOIN {open_queues} AS u CROSS JOIN LATERAL (
  SELECT l.id, l.priority, l.due_at FROM live l
  WHERE l.state = {queued} AND l.kind = k.kind AND l.queue = u.id AND (l.pin IS NULL OR l.pin = $3) AND l.needs IS NULL
    AND (l.start_by IS NULL OR l.start_by > $2)
    AND EXISTS (SELECT 1 FROM jobs j WHERE j.id = l.job_id AND CAST(j.annotations AS jsonb) -> 'rpc' ->> 'user_id' IS NOT NULL)
  ORDER BY l.priority DESC, l.pass, l.id LIMIT $4) AS q
ORDER BY q.priority + u.priority_offset DESC, q.due_at, q.id LIMIT $4;
