-- drop_idle_shares --
-- Those that would go on from where their line is by now: it makes no difference whether they are known.
DELETE FROM shares WHERE (kind, queue, priority, key) IN (
  SELECT s.kind, s.queue, s.priority, s.key FROM shares s JOIN shares l USING (kind, queue, priority)
  WHERE s.key <> '' AND l.key = '' AND s.pass <= l.pass - $1 LIMIT $2)
RETURNING key;
