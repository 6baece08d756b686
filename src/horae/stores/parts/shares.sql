-- lines_below --
-- Kinds, queues and priorities below one in which anything ever waited.
SELECT DISTINCT kind, queue, priority FROM shares WHERE priority < $1;

-- starved --
-- Of the first so many of a line, those that wait since before a moment.
SELECT id FROM (
  SELECT id, COALESCE(eligible_at, due_at) AS since FROM live
  WHERE state = {queued} AND kind = $1 AND queue = $2 AND priority = $3 ORDER BY priority DESC, pass, id LIMIT $5) AS first
WHERE since <= $4;

-- add_line --
INSERT INTO shares (kind, queue, priority, key, pass) VALUES ($1, $2, $3, '', 0)
ON CONFLICT (kind, queue, priority, key) DO NOTHING;

-- lift --
-- To the head of the line above. Since when it waits there is kept where blocked runs have their moment.
UPDATE live SET priority = priority + 1, eligible_at = $2, pass = COALESCE((
  SELECT s.pass FROM shares s
  WHERE s.kind = live.kind AND s.queue = live.queue AND s.priority = live.priority + 1 AND s.key = ''), 0)
WHERE id IN {ids} AND state = {queued} RETURNING id;
